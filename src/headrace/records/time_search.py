"""Time search: finds the first record of a batch of any format at or after a timestamp.

The kernels read the records in place and allocate nothing; a compressed batch is decompressed first. The search runs in
steps, between which other threads get the interpreter's lock. Source: Kafka's FileRecords.searchForTimestamp.
"""

from typing import NamedTuple

from headrace.errors import CorruptMessage
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX, INT64_MAX
from headrace.records.codecs.compression import Bytes, Codec
from headrace.records.format2 import kernel
from headrace.records.format2.batch import records_of
from headrace.records.format2.header import LOG_OVERHEAD_BYTES, MAGIC, NO_TIMESTAMP, BatchHeader
from headrace.records.legacy import message_kernel
from headrace.records.legacy.message import TimestampType, parse_message, value_of
from headrace.records.legacy.message_codecs import decompress_messages

RECORDS_PER_PIECE = 1 << 16
"""About a millisecond."""


class FoundRecord(NamedTuple):
    """The offset and the timestamp of a found record."""

    offset: int
    timestamp_ms: int


def first_record_from(
    batch: Bytes,
    header: BatchHeader,
    *,
    from_offset: int,
    from_timestamp_ms: int,
    max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX,
) -> FoundRecord | None:
    """The first record at or after `from_offset`, and at or after `from_timestamp_ms`, in a complete batch, or None.

    The caller checks the CRC. Raises CorruptMessage when an earlier record is damaged, or the batch decompresses to
    more than `max_bytes`.
    """
    if header.magic == MAGIC:
        return _in_batch(batch, header, from_offset, from_timestamp_ms, max_bytes)
    if header.codec is not Codec.NONE:
        return _in_wrapper(batch, header, from_offset, from_timestamp_ms, max_bytes)
    if header.base_offset >= from_offset and header.max_timestamp >= from_timestamp_ms:
        return FoundRecord(header.base_offset, header.max_timestamp)
    return None


def _in_batch(
    batch: Bytes, header: BatchHeader, from_offset: int, from_timestamp_ms: int, max_bytes: int
) -> FoundRecord | None:
    data, position, end = records_of(batch, 0, header, max_bytes)
    base_timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp
    done = 0
    while done < header.record_count:
        problem, count, position, offset, timestamp_ms = kernel.find_time(
            data, position, end, min(RECORDS_PER_PIECE, header.record_count - done), header.base_offset,
            base_timestamp, header.is_log_append_time, from_offset, from_timestamp_ms,
        )  # fmt: skip
        done += count
        if problem:
            raise CorruptMessage(
                f"record {done} of the batch at offset {header.base_offset}: {kernel.PROBLEMS[problem]}"
            )
        if offset >= 0:
            return FoundRecord(offset, timestamp_ms)
    return None


def _in_wrapper(
    entry: Bytes, header: BatchHeader, from_offset: int, from_timestamp_ms: int, max_bytes: int
) -> FoundRecord | None:
    """As `first_record_from`, for a wrapper of format 0 or 1.

    In format 1 the inner offsets are relative to the wrapper's offset, which is the last one's. So the messages are
    read twice: once for the last relative offset, and once for the search.
    """
    wrapper = parse_message(entry, LOG_OVERHEAD_BYTES, header.size_bytes, with_value=False)
    value = value_of(entry, LOG_OVERHEAD_BYTES, header.size_bytes)
    data = b"" if value is None else decompress_messages(wrapper.codec, wrapper.magic, value, max_bytes)
    if not data:
        raise CorruptMessage(f"the wrapper at offset {header.base_offset} has no messages")
    is_append_time = wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME
    base_offset = 0

    def walk(from_offset: int) -> tuple[int, FoundRecord | None]:
        position, last_offset, offset, timestamp_ms = 0, -1, -1, NO_TIMESTAMP
        while position < len(data) and offset < 0:
            problem, position, last_offset, offset, timestamp_ms = message_kernel.find_time(
                data, position, len(data), wrapper.magic, base_offset, last_offset, is_append_time,
                wrapper.timestamp_ms, from_offset, from_timestamp_ms, RECORDS_PER_PIECE,
            )  # fmt: skip
            if problem:
                raise CorruptMessage(
                    f"the wrapper at offset {header.base_offset}, the message at byte {position} in it: "
                    f"{message_kernel.PROBLEMS[problem]}"
                )
        return last_offset, FoundRecord(offset, timestamp_ms) if offset >= 0 else None

    if wrapper.magic == 1 and header.base_offset > 0:
        last_offset, _ = walk(INT64_MAX)
        if last_offset > header.base_offset:
            raise CorruptMessage(f"the wrapper at offset {header.base_offset} ends with relative offset {last_offset}")
        base_offset = header.base_offset - last_offset
    return walk(from_offset)[1]
