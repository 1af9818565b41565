"""Validates produced records and converts them to the message format of their topic.

                 sent as 2                                 sent as 0 or 1 (Produce 0 to 2)
    stored 2     checked, unchanged (`checks`)             checked, rebuilt as batches
    stored 0, 1  checked, rebuilt as messages; never       checked; rebuilt where the formats differ
                 idempotent or transactional

Conversion keeps keys, values, codec and timestamps; a conversion to format 0 or 1 loses headers. A set of messages too
large for one batch becomes several batches, where Apache Kafka refuses it. Conversion is slow compared with the common
path, so it runs on a thread where it could take long: `validate` is for the thread, `validate_if_small` for the event
loop. Source: Kafka's LogValidator; `ProduceRequest.validateRecords`, which checks nothing in versions before 3.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import NamedTuple

from headrace.broker.produce.checks import CODECS, CheckedBatch, check_timestamps, checked_batch
from headrace.broker.produce.rejected_records import RejectedRecords
from headrace.config import TopicConfig
from headrace.errors import (
    CorruptMessage,
    InvalidRecord,
    KafkaError,
    MessageTooLarge,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from headrace.limits import (
    DECOMPRESSED_BATCH_BYTES_MAX,
    INLINE_COMPRESS_BYTES_MAX,
    INLINE_DECOMPRESS_BYTES_MAX,
    INLINE_DECOMPRESSED_BYTES_MAX,
    INT32_MAX,
)
from headrace.records.codecs.compression import Codec
from headrace.records.format2.build import build_batch, fitting_rows
from headrace.records.format2.columns import RecordColumns
from headrace.records.format2.header import (
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    crc_is_valid,
    read_header,
    set_base_offset,
)
from headrace.records.legacy.conversion import convert_batches
from headrace.records.legacy.message_columns import build_message_set, scan_message_set
from headrace.records.legacy.produced_sets import CheckedSet, PlacedSet, check_produced_set, place_set

BATCHES_ALONE_FROM, ZSTD_FROM = 3, 7
"""The first version of Produce that carries only batches of format 2, and the first that allows zstd."""

_MAGIC_AT, _CODEC_BITS = 16, 0x07
_MESSAGE_ATTRIBUTES_AT, _BATCH_ATTRIBUTES_AT = 17, 22  # the byte with the codec
_WORK_BEFORE_BITS = _CODEC_BITS | TRANSACTIONAL_BIT


class Conversion(NamedTuple):
    """The cost of converting records to another format."""

    records: int = 0
    elapsed_ns: int = 0


class RebuiltBatches(NamedTuple):
    """Batches of format 2 converted from messages; none for an empty produce."""

    batches: list[CheckedBatch]
    conversion: Conversion


class CheckedMessages(NamedTuple):
    """Validated messages of format 0 or 1, which get their offsets at the append. `placed` is the set as prepared for
    base offset `placed_at`."""

    records: memoryview
    checked: CheckedSet
    conversion: Conversion
    placed_at: int = -1
    placed: PlacedSet | None = None

    def is_costly_to_place(self, config: TopicConfig) -> bool:
        """Whether setting the offsets requires compressing the set again."""
        return not (self.checked.in_place and target_codec(config) in (None, self.checked.codec))

    def at(self, base_offset: int, config: TopicConfig, now_ms: int) -> PlacedSet:
        """The set with its offsets. Raises MessageTooLarge, UnsupportedCompressionType."""
        if self.placed is not None and self.placed_at == base_offset:
            return self.placed
        return place_set(
            self.records,
            self.checked,
            base_offset=base_offset,
            log_append_time_ms=now_ms if config.message_timestamp_type == "LogAppendTime" else None,
            codec=target_codec(config),
            level=config.compression_level,
            max_message_bytes=config.max_message_bytes,
        )


Checked = CheckedBatch | RebuiltBatches | CheckedMessages


def target_codec(config: TopicConfig) -> Codec | None:
    """The topic's codec; None for the producer's own."""
    return None if config.compression_type == "producer" else CODECS[config.compression_type]


def is_plain_batch(records: memoryview | bytes | None) -> bool:
    """Whether `records` begin with a batch of format 2 that is neither compressed nor transactional, so that nothing is
    to be done before it is checked and appended."""
    return (
        records is not None
        and len(records) > _BATCH_ATTRIBUTES_AT
        and records[_MAGIC_AT] == MAGIC
        and not records[_BATCH_ATTRIBUTES_AT] & _WORK_BEFORE_BITS
    )


def is_costly(records: memoryview | bytes | None) -> bool:
    """Whether checking `records` requires decompression, or converting them may take long."""
    if records is None or len(records) <= _BATCH_ATTRIBUTES_AT:
        return False
    if records[_MAGIC_AT] >= MAGIC:
        return bool(records[_BATCH_ATTRIBUTES_AT] & _CODEC_BITS)
    return bool(records[_MESSAGE_ATTRIBUTES_AT] & _CODEC_BITS) or len(records) > INLINE_DECOMPRESS_BYTES_MAX


def is_costly_to_compress(records: memoryview | bytes | None, config: TopicConfig) -> bool:
    """Whether storing `records` requires compressing many bytes with the topic's own codec."""
    if records is None or len(records) <= INLINE_COMPRESS_BYTES_MAX:
        return False
    codec = target_codec(config)
    return codec not in (None, Codec.NONE, _codec_of(records))


def _codec_of(records: memoryview | bytes) -> int:
    """The codec of the first batch or message, whose attributes are there."""
    at = _BATCH_ATTRIBUTES_AT if records[_MAGIC_AT] >= MAGIC else _MESSAGE_ATTRIBUTES_AT
    return records[at] & _CODEC_BITS


def validate_if_small(
    records: memoryview | bytes, config: TopicConfig, version: int, now_ms: int, check_records: bool
) -> Checked | KafkaError | None:
    """As `validate`, for compressed records; None when they are too large for the event loop, compressed or not."""
    if len(records) > INLINE_DECOMPRESS_BYTES_MAX:
        return None
    bytes_max = INLINE_DECOMPRESSED_BYTES_MAX
    if target_codec(config) not in (None, Codec.NONE, _codec_of(records)):
        bytes_max = INLINE_COMPRESS_BYTES_MAX  # what is decompressed is compressed again
    found = validate(records, config, version, now_ms, check_records, bytes_max)
    is_unclear = isinstance(found, KafkaError) and found.code is CorruptMessage.code
    return None if is_unclear else found  # damaged, or larger than the limit: the check on a thread tells which


def validate(
    records: memoryview | bytes | None,
    config: TopicConfig,
    version: int,
    now_ms: int,
    check_records: bool,
    decompressed_bytes_max: int = DECOMPRESSED_BATCH_BYTES_MAX,
) -> Checked | KafkaError:
    """The result of `checked_records`, or its error as a value.

    The error is a copy: the traceback of the raised one would keep the decompressed batch in memory for as long as
    somebody holds the error.
    """
    try:
        return checked_records(records, config, version, now_ms, check_records, decompressed_bytes_max)
    except RejectedRecords as error:
        return error.copy()
    except KafkaError as error:
        return KafkaError(error.message, error.code)


def checked_records(
    records: memoryview | bytes | None,
    config: TopicConfig,
    version: int,
    now_ms: int,
    check_records: bool,
    decompressed_bytes_max: int = DECOMPRESSED_BATCH_BYTES_MAX,
) -> Checked:
    """Validates the records of one partition in a Produce of `version`, and converts them to the topic's format. Raises
    `KafkaError` with Kafka's code for what is wrong."""
    if version >= BATCHES_ALONE_FROM and config.magic == MAGIC:
        return checked_batch(records, config, now_ms, check_records, decompressed_bytes_max)
    if not records and version < BATCHES_ALONE_FROM:
        return RebuiltBatches([], Conversion())
    view = memoryview(records or b"")
    if version < BATCHES_ALONE_FROM and (len(view) <= _MAGIC_AT or view[_MAGIC_AT] != MAGIC):
        return _checked_messages(view, config, now_ms, decompressed_bytes_max)
    if config.magic < MAGIC:
        _refuse_producers(view)
    batch = checked_batch(view, config, now_ms, check_records, decompressed_bytes_max)
    if version < ZSTD_FROM and batch.header.codec is Codec.ZSTD:
        raise UnsupportedCompressionType(
            f"zstd requires Produce version {ZSTD_FROM} or later, but the request has version {version}"
        )
    return batch if config.magic == MAGIC else _as_messages(batch, config, decompressed_bytes_max)


def _refuse_producers(view: memoryview) -> None:
    """Raises UnsupportedForMessageFormat for a valid batch that the older formats cannot represent."""
    header = read_header(view)
    if not (header.is_control or header.is_transactional or header.producer_id >= 0):
        return
    if header.size_bytes == len(view) and crc_is_valid(view, 0, header):
        what = "a control" if header.is_control else "a transactional" if header.is_transactional else "an idempotent"
        raise UnsupportedForMessageFormat(
            f"{what} batch cannot be stored in this topic: its message.format.version is before 0.11.0"
        )


def _as_messages(batch: CheckedBatch, config: TopicConfig, decompressed_bytes_max: int) -> CheckedMessages:
    """Converts a batch to messages of the topic's format. Raises UnsupportedCompressionType for zstd."""
    started = perf_counter_ns()
    set_base_offset(batch.records, 0, -1)
    converted = convert_batches(batch.records, config.magic, max_batch_bytes=decompressed_bytes_max, is_stored=True)
    data = converted.data
    messages = memoryview(data)
    checked = _check_set(messages, config, decompressed_bytes_max)
    return CheckedMessages(messages, checked, Conversion(checked.record_count, perf_counter_ns() - started))


def _check_set(view: memoryview, config: TopicConfig, decompressed_bytes_max: int) -> CheckedSet:
    return check_produced_set(
        view,
        max_message_bytes=config.max_message_bytes,
        compacted=config.is_compacted,
        max_decompressed_bytes=decompressed_bytes_max,
    )


def _checked_messages(
    view: memoryview, config: TopicConfig, now_ms: int, decompressed_bytes_max: int
) -> RebuiltBatches | CheckedMessages:
    """Validates a set of messages and converts it to the topic's format."""
    started = perf_counter_ns()
    checked = _check_set(view, config, decompressed_bytes_max)
    if config.message_timestamp_type == "CreateTime" and checked.magic > 0:
        check_timestamps(checked.min_timestamp, checked.max_timestamp, config, now_ms)
    if checked.magic == config.magic:
        return CheckedMessages(view, checked, Conversion())
    plain = place_set(
        view, checked, base_offset=0, codec=Codec.NONE, max_decompressed_bytes=decompressed_bytes_max
    ).data  # producers may set any offsets, even equal ones; the scan needs ascending ones
    rows = scan_message_set(plain, max_bytes=INT32_MAX, check_crcs=False)
    if rows.count != checked.record_count:
        raise InvalidRecord(f"only {rows.count} of {checked.record_count} messages are readable")
    target = target_codec(config)
    codec, level = checked.codec if target is None else target, config.compression_level
    if config.magic == MAGIC:
        batches = _batches_of(rows, codec, level, config.max_message_bytes)
        return RebuiltBatches(batches, Conversion(rows.count, perf_counter_ns() - started))
    data = memoryview(
        build_message_set(
            rows.keys, rows.values, 0, rows.count, rows.timestamps_ms, magic=config.magic, codec=codec, level=level
        )
    )
    rebuilt = _check_set(data, config, decompressed_bytes_max)
    return CheckedMessages(data, rebuilt, Conversion(rows.count, perf_counter_ns() - started))


def _batches_of(rows: RecordColumns, codec: Codec, level: int | None, max_message_bytes: int) -> list[CheckedBatch]:
    """Builds batches of format 2: one when compressed, else as many as `max.message.bytes` requires."""
    limit = max_message_bytes if codec is Codec.NONE else INT32_MAX
    batches = []
    start = 0
    while start < rows.count:
        after, _ = fitting_rows(rows.keys, rows.values, start, rows.count, rows.timestamps_ms, max_batch_bytes=limit)
        batch = build_batch(rows.keys, rows.values, start, after, rows.timestamps_ms, codec=codec, level=level)
        if len(batch) > max_message_bytes:
            raise MessageTooLarge(
                f"the converted batch has {len(batch)} bytes, more than max.message.bytes={max_message_bytes}"
            )
        header: BatchHeader = read_header(batch)
        batches.append(CheckedBatch(memoryview(batch), header))
        start = after
    return batches
