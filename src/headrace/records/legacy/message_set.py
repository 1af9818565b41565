"""Message sets of formats 0 and 1 as Python objects: the content of a Produce, a Fetch, and a segment.

    set:      consecutive entries; the last one of a Fetch response may be incomplete
    entry:    offset int64 | message_size int32 | message (see `message`)
    wrapper:  a message with a codec: its value is a set of messages without one, compressed; one level, no more

                     offset of the wrapper      offsets of its inner messages
        format 0     the last inner one's       absolute
        format 1     the last inner one's       relative: rising from 0, or with gaps after compaction
                     (0 from some librdkafka producers, which then means that the inner ones are absolute)

A wrapper with LogAppendTime gives its timestamp to all its inner messages; with CreateTime each has its own, and the
wrapper's is the largest. This module is for code that handles few messages. The tests compare `message_columns`, which
makes no object per message, with it. Source: Kafka's AbstractLegacyRecordBatch, MemoryRecordsBuilder.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

from headrace.errors import CorruptMessage
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX, INT64_MAX
from headrace.records.codecs.compression import Bytes, Codec
from headrace.records.format2.batch import Record
from headrace.records.format2.header import LOG_OVERHEAD_BYTES, NO_TIMESTAMP
from headrace.records.legacy.message import (
    MESSAGE_OVERHEAD_BYTES,
    Message,
    TimestampType,
    check_magic,
    crc_matches,
    encode_message,
    parse_message,
)
from headrace.records.legacy.message_codecs import check_codec, compress_messages, decompress_messages

_entry = Struct(">qi")


class MessageSetEntry(NamedTuple):
    """One entry of a set. Its message is `buf[start:end]`, and the entry starts 12 bytes before it."""

    offset: int
    start: int
    end: int


class DeepMessage(NamedTuple):
    """A message with its absolute offset and its timestamp, which may be its wrapper's."""

    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    message: Message


def iter_entries(buf: Bytes, pos: int = 0, end: int | None = None) -> Iterator[MessageSetEntry]:
    """The complete entries of a set, with wrappers unopened. Stops before an incomplete entry.

    Raises CorruptMessage for a size below that of the smallest message.
    """
    if end is None:
        end = len(buf)
    while end - pos >= LOG_OVERHEAD_BYTES:
        offset, size = _entry.unpack_from(buf, pos)
        if size < MESSAGE_OVERHEAD_BYTES[0]:
            raise CorruptMessage(
                f"message size {size} at byte {pos} is less than the minimum {MESSAGE_OVERHEAD_BYTES[0]}"
            )
        start = pos + LOG_OVERHEAD_BYTES
        if size > end - start:
            return
        yield MessageSetEntry(offset, start, start + size)
        pos = start + size


def iter_messages(
    buf: Bytes, *, check_crcs: bool = True, max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
) -> Iterator[DeepMessage]:
    """The messages of a set and of its wrappers, with absolute offsets. Stops before an incomplete entry.

    Raises CorruptMessage for a damaged message, and for a wrapper that is empty, that has another wrapper, another
    format, an incomplete message or wrong offsets in it, or that decompresses to more than `max_bytes`.
    """
    for entry in iter_entries(buf):
        if check_crcs and not crc_matches(buf, entry.start, entry.end):
            raise CorruptMessage(f"the message at offset {entry.offset} does not match its CRC")
        message = parse_message(buf, entry.start, entry.end)
        if message.codec is Codec.NONE:
            yield DeepMessage(entry.offset, message.timestamp_ms, message.timestamp_type, message)
        else:
            yield from open_wrapper(entry.offset, message, max_bytes)


def open_wrapper(offset: int, wrapper: Message, max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX) -> list[DeepMessage]:
    """The messages of a wrapper at `offset` in the log. Raises CorruptMessage as `iter_messages`."""
    if wrapper.value is None:
        raise CorruptMessage(f"the wrapper at offset {offset} has no value")
    inner = decompress_messages(wrapper.codec, wrapper.magic, wrapper.value, max_bytes)
    entries = list(iter_entries(inner))
    if not entries or entries[-1].end != len(inner):
        raise CorruptMessage(f"the wrapper at offset {offset} has no complete message, or ends inside a message")
    base = _base_of(offset, wrapper.magic, entries)
    stamped = wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME
    found = []
    last = -1
    for entry in entries:
        message = parse_message(inner, entry.start, entry.end)
        if message.attributes & 7:
            raise CorruptMessage(f"the wrapper at offset {offset} contains another wrapper")
        if message.magic != wrapper.magic:
            raise CorruptMessage(
                f"a wrapper of format {wrapper.magic} at offset {offset} contains a message of format {message.magic}"
            )
        if entry.offset < 0 or not last < base + entry.offset <= INT64_MAX:
            raise CorruptMessage(
                f"inner offset {entry.offset} in the wrapper at offset {offset} is not above the one before"
            )
        last = base + entry.offset
        timestamp_ms = wrapper.timestamp_ms if stamped else message.timestamp_ms
        found.append(DeepMessage(last, timestamp_ms, wrapper.timestamp_type, message))
    return found


def _base_of(offset: int, magic: int, entries: list[MessageSetEntry]) -> int:
    """The number to add to the offsets of a wrapper's entries."""
    last = entries[-1].offset
    if magic == 0 or offset == 0:
        return 0
    if offset < last:
        raise CorruptMessage(f"the wrapper at offset {offset} ends with relative offset {last}")
    return offset - last


def decode_message_set(
    buf: Bytes, *, check_crcs: bool = True, max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
) -> list[Record]:
    """All messages of a set as records without headers. Raises CorruptMessage as `iter_messages`."""
    return [
        Record(offset, timestamp_ms, message.key, message.value)
        for offset, timestamp_ms, _, message in iter_messages(buf, check_crcs=check_crcs, max_bytes=max_bytes)
    ]


def encode_message_set(
    records: Sequence[Record],
    *,
    magic: int,
    codec: Codec = Codec.NONE,
    base_offset: int | None = 0,
    log_append_time_ms: int | None = None,
    level: int | None = None,
) -> bytearray:
    """Encode the records as a message set: plain messages, or all in one wrapper.

    The first record is at `base_offset`, and the others follow; with None each keeps its offset. Headers are lost, and
    in format 0 timestamps too. `log_append_time_ms` is the timestamp of all messages, in format 1. Raises ValueError
    for another format, without records, and for offsets that do not rise; InvalidTimestamp; UnsupportedCompressionType
    for zstd.
    """
    check_magic(magic)
    check_codec(codec, magic)
    if not records:
        raise ValueError("a message set needs at least one message")
    stamp = TimestampType.CREATE_TIME if log_append_time_ms is None or magic == 0 else TimestampType.LOG_APPEND_TIME
    offsets = [row.offset for row in records] if base_offset is None else range(base_offset, base_offset + len(records))
    if offsets[0] < 0 or any(one >= following for one, following in pairwise(offsets)):
        raise ValueError("the offsets of a message set must be ascending, and not negative")
    first = offsets[0] if magic > 0 and codec is not Codec.NONE else 0
    body = bytearray()
    latest = NO_TIMESTAMP
    for offset, row in zip(offsets, records, strict=True):
        timestamp_ms = NO_TIMESTAMP
        if magic > 0:
            timestamp_ms = row.timestamp_ms if log_append_time_ms is None else log_append_time_ms
        latest = max(latest, timestamp_ms)
        message = encode_message(magic, row.key, row.value, timestamp_ms, stamp)
        body += _entry.pack(offset - first, len(message))
        body += message
    if codec is Codec.NONE:
        return body
    return wrap(body, offsets[-1], magic, codec, latest, stamp, level)


def wrap(
    inner: Bytes,
    last_offset: int,
    magic: int,
    codec: Codec,
    timestamp_ms: int = NO_TIMESTAMP,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    level: int | None = None,
) -> bytearray:
    """Compress the set `inner` to a set of one wrapper at `last_offset`. `inner` has the offsets of format `magic`."""
    value = compress_messages(codec, magic, inner, level)
    message = encode_message(magic, None, value, timestamp_ms, timestamp_type, codec)
    return bytearray(_entry.pack(last_offset, len(message))) + message
