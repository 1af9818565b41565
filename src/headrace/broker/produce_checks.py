"""What a produced batch must pass before it is appended, and the two ways in which it is changed first.

The rules of the bytes themselves are in `records.validation`; here are those of the topic: its clock, its codec, and
that there is no transaction yet. Source: Kafka's `LogValidator`, `ProduceRequest.validateRecords`.
"""

from typing import NamedTuple

from headrace.config import TopicConfig
from headrace.errors import CorruptMessage, ErrorCode, InvalidRecord, KafkaError
from headrace.limits import (
    DECOMPRESSED_BATCH_BYTES_MAX,
    INLINE_DECOMPRESS_BYTES_MAX,
    INLINE_DECOMPRESSED_BYTES_MAX,
)
from headrace.records.batch import BatchHeader
from headrace.records.compression import Codec
from headrace.records.recompression import recompress
from headrace.records.validation import check_produced

_CODEC_MASK = 0x07
_ATTRIBUTES_LOW_BYTE = 22
_CODECS = {
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


def is_compressed(records: memoryview | bytes | None) -> bool:
    """Whether `records` would have to be decompressed to be checked."""
    return (
        records is not None
        and len(records) > _ATTRIBUTES_LOW_BYTE
        and bool(records[_ATTRIBUTES_LOW_BYTE] & _CODEC_MASK)
    )


def verdict_if_small(
    records: memoryview | bytes, config: TopicConfig, now_ms: int, check_records: bool
) -> CheckedBatch | KafkaError | None:
    """`verdict` on a compressed batch; None when it is too large for the event loop, packed or unpacked."""
    if len(records) > INLINE_DECOMPRESS_BYTES_MAX:
        return None
    found = verdict(records, config, now_ms, check_records, INLINE_DECOMPRESSED_BYTES_MAX)
    is_unclear = isinstance(found, KafkaError) and found.code is CorruptMessage.code
    return None if is_unclear else found  # damaged, or more comes out: a thread will tell which


def verdict(
    records: memoryview | bytes | None,
    config: TopicConfig,
    now_ms: int,
    check_records: bool,
    decompressed_bytes_max: int = DECOMPRESSED_BATCH_BYTES_MAX,
) -> CheckedBatch | KafkaError:
    """What `checked_batch` returns or raises.

    The error is a copy: the one raised has a traceback, and with it all that the batch was decompressed to, for as
    long as somebody holds it.
    """
    try:
        return checked_batch(records, config, now_ms, check_records, decompressed_bytes_max)
    except KafkaError as error:
        return KafkaError(error.message, error.code)


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
        _check_timestamps(header, config, now_ms)
    wanted = config.compression_type
    if wanted != "producer" and _CODECS[wanted] != header.codec:
        return CheckedBatch(*recompress(view, header, _CODECS[wanted], max_bytes=decompressed_bytes_max))
    return CheckedBatch(view, header)


def _check_timestamps(header: BatchHeader, config: TopicConfig, now_ms: int) -> None:
    if header.max_timestamp - now_ms > config.after_max_ms:
        raise KafkaError(
            f"timestamp {header.max_timestamp} is over {config.after_max_ms} ms ahead of the "
            f"broker's {now_ms}: message.timestamp.after.max.ms",
            ErrorCode.INVALID_TIMESTAMP,
        )
    if 0 <= header.base_timestamp < now_ms - config.before_max_ms:
        raise KafkaError(
            f"timestamp {header.base_timestamp} is over {config.before_max_ms} ms behind the "
            f"broker's {now_ms}: message.timestamp.before.max.ms",
            ErrorCode.INVALID_TIMESTAMP,
        )
