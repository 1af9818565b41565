"""What a produced batch must pass before it is appended, and the two ways in which it is changed first.

The rules of the bytes themselves are in `records.validation`; here are those of the topic: its clock, its codec, and
that there is no transaction yet. Formats before 2 are for `produce_formats`. Source: Kafka's
`LogValidator`, `ProduceRequest.validateRecords`.
"""

from typing import NamedTuple

from headrace.config import TopicConfig
from headrace.errors import ErrorCode, InvalidRecord, KafkaError
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX
from headrace.records.batch import BatchHeader
from headrace.records.compression import Codec
from headrace.records.recompression import recompress
from headrace.records.validation import check_produced

CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class CheckedBatch(NamedTuple):
    """A batch that may be appended: writable bytes and their header."""

    records: memoryview
    header: BatchHeader


def checked_batch(
    records: memoryview | bytes | None,
    config: TopicConfig,
    now_ms: int,
    check_records: bool,
    decompressed_bytes_max: int = DECOMPRESSED_BATCH_BYTES_MAX,
) -> CheckedBatch:
    """The one batch of `records`, fit for the topic. Raises `KafkaError` with Kafka's code for what is wrong."""
    if not records:
        raise InvalidRecord("a produce request carries exactly one record batch per partition, this one has none")
    view = memoryview(records)
    header = check_produced(
        view,
        max_message_bytes=config.max_message_bytes,
        compacted=config.is_compacted,
        check_records=check_records,
        max_decompressed_bytes=decompressed_bytes_max,
    )
    if header.is_transactional:
        raise KafkaError("a transactional batch, and no transaction was begun", ErrorCode.INVALID_TXN_STATE)
    if config.message_timestamp_type == "CreateTime":
        check_timestamps(header.base_timestamp, header.max_timestamp, config, now_ms)
    wanted = config.compression_type
    if wanted != "producer" and CODECS[wanted] != header.codec:
        return CheckedBatch(*recompress(view, header, CODECS[wanted], max_bytes=decompressed_bytes_max))
    return CheckedBatch(view, header)


def check_timestamps(first_ms: int, largest_ms: int, config: TopicConfig, now_ms: int) -> None:
    """Raises KafkaError with INVALID_TIMESTAMP for records too far from the broker's clock; -1 is no timestamp."""
    if largest_ms - now_ms > config.after_max_ms:
        raise KafkaError(
            f"timestamp {largest_ms} is over {config.after_max_ms} ms ahead of the broker's {now_ms}: "
            "message.timestamp.after.max.ms",
            ErrorCode.INVALID_TIMESTAMP,
        )
    if 0 <= first_ms < now_ms - config.before_max_ms:
        raise KafkaError(
            f"timestamp {first_ms} is over {config.before_max_ms} ms behind the broker's {now_ms}: "
            "message.timestamp.before.max.ms",
            ErrorCode.INVALID_TIMESTAMP,
        )
