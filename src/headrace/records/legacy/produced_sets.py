"""Validation of a produced message set of format 0 or 1, and assignment of its offsets, before the broker appends it.

    a set is     any number of plain messages, or a single wrapper
    frame        complete entries that fill the bytes, none larger than `max.message.bytes`, each with its CRC right
    messages     one format in all of them, a wrapper's inner ones too; none inside a wrapper compressed; a key in each,
                 inner ones too, when the topic is compacted
    timestamps   0 and above, or -1; a producer must not set the type LogAppendTime

    set          assignment of offsets
    plain        in each entry, in place; log append time in each message, with a new CRC
    wrapper, 1   only in the wrapper, in place, with its timestamp: inner offsets are relative. If a producer did not
                 write 0, 1, 2… they are corrected, and the wrapper is compressed again
    wrapper, 0   inner offsets are absolute: the wrapper is decompressed, changed, and compressed again

Damage in transit (a wrong CRC, data that does not decompress) raises CorruptMessage, which clients retry. A set that
its producer built wrongly raises InvalidRecord or InvalidTimestamp, which they do not retry. Source: Kafka 3.9's
LogValidator. Kafka drops an incomplete last message and acknowledges the set; headrace refuses the set.
"""

from struct import Struct
from typing import NamedTuple

from headrace.errors import CorruptMessage, InvalidRecord, InvalidTimestamp, KafkaError, MessageTooLarge
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX, INT32_MAX
from headrace.records.any_format import read_any_header
from headrace.records.codecs.compression import Bytes, Codec
from headrace.records.format2.header import LOG_APPEND_TIME_BIT, LOG_OVERHEAD_BYTES, NO_TIMESTAMP
from headrace.records.legacy import message_kernel
from headrace.records.legacy.message import (
    CODEC_BITS,
    TimestampType,
    check_timestamp,
    crc_matches,
    parse_message,
    seal_message,
    value_of,
)
from headrace.records.legacy.message_codecs import decompress_messages
from headrace.records.legacy.message_set import iter_entries, wrap

_int64 = Struct(">q")
_ATTRIBUTES_AT = 17
_TIMESTAMP_AT = 18


class CheckedSet(NamedTuple):
    """The properties of a valid produced set."""

    magic: int
    codec: Codec
    """The wrapper's codec; NONE for plain messages."""
    record_count: int
    max_timestamp: int
    """-1 when no message has one, as in format 0."""
    index_of_max: int
    """The index (from 0) of the first message with the max timestamp; -1 for none."""
    min_timestamp: int
    """The smallest timestamp except -1; -1 when no message has one. For the limits of a topic."""
    in_place: bool
    """Whether offsets can be assigned without a new compression."""
    inner: Bytes | None
    """The wrapper's messages, decompressed, when they have to be rewritten."""


class PlacedSet(NamedTuple):
    """A message set with its offsets in the log."""

    data: bytearray | memoryview
    """The bytes to append: the produced bytes, changed in place, or new ones."""
    last_offset: int
    max_timestamp: int
    """The largest timestamp in ms. In format 0 it is -1 for every timestamp type: the file has none."""
    offset_of_max: int
    """The offset of the first message with the max timestamp; -1 for none."""
    is_rewritten: bool
    """Whether `data` are new bytes, which Kafka counts as a conversion."""


def check_produced_set(
    buf: memoryview,
    *,
    magic_max: int = 1,
    max_message_bytes: int,
    compacted: bool = False,
    max_decompressed_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX,
) -> CheckedSet:
    """Check the set that fills `buf` by the rules above, without an object per message.

    The caller checks the topic's bounds for timestamps, with the smallest and the largest one. Raises CorruptMessage,
    InvalidRecord, InvalidTimestamp, MessageTooLarge, or UnsupportedCompressionType.
    """
    if not len(buf):
        raise InvalidRecord("the message set is empty")
    header = read_any_header(buf)
    magic = header.magic
    if magic > magic_max:
        raise InvalidRecord(
            f"magic {magic} is refused: this version of Produce allows messages up to format {magic_max}"
        )
    if header.attributes & CODEC_BITS:
        return _check_wrapper(buf, header.size_bytes, max_message_bytes, compacted, max_decompressed_bytes)
    problem, count, latest, latest_at, earliest, _, _ = message_kernel.check(
        buf, 0, len(buf), magic, False, compacted, max_message_bytes
    )
    if problem == message_kernel.NESTED:
        raise InvalidRecord(f"message {count} of the set is a wrapper, but a wrapper must be the only message")
    _raise_problem(problem, f"message {count} of the set", max_message_bytes)
    return CheckedSet(magic, Codec.NONE, count, latest, latest_at, earliest, True, None)


def _check_wrapper(
    buf: memoryview, size: int, max_message_bytes: int, compacted: bool, max_decompressed_bytes: int
) -> CheckedSet:
    """Check a set with one wrapper."""
    if size != len(buf):
        if size > len(buf):
            raise InvalidRecord(f"the wrapper has only {len(buf)} of its {size} bytes")
        raise InvalidRecord(f"{len(buf) - size} bytes follow the wrapper, but a wrapper must be the only message")
    if size > max_message_bytes:
        raise MessageTooLarge(f"the wrapper has {size} bytes, more than max.message.bytes={max_message_bytes}")
    if not crc_matches(buf, LOG_OVERHEAD_BYTES, size):
        raise CorruptMessage("the wrapper does not match its CRC")
    wrapper = parse_message(buf, LOG_OVERHEAD_BYTES, size, with_value=False)
    if wrapper.attributes & LOG_APPEND_TIME_BIT:
        raise InvalidTimestamp(
            f"a wrapper of format {wrapper.magic} has the timestamp type LogAppendTime, which only the broker sets"
        )
    check_timestamp(wrapper.magic, wrapper.timestamp_ms)
    value = value_of(buf, LOG_OVERHEAD_BYTES, size)
    if value is None:
        raise InvalidRecord("the wrapper has no value")
    inner = decompress_messages(wrapper.codec, wrapper.magic, value, max_decompressed_bytes)
    problem, count, latest, latest_at, earliest, last_offset, consecutive = message_kernel.check(
        inner, 0, len(inner), wrapper.magic, True, compacted, INT32_MAX
    )
    _raise_problem(problem, f"message {count} in the wrapper", max_message_bytes)
    if not count:
        raise InvalidRecord("the wrapper has no messages")
    offset = _int64.unpack_from(buf)[0]
    in_place = wrapper.magic == 1 and consecutive and offset in (0, last_offset)
    return CheckedSet(
        wrapper.magic, wrapper.codec, count, latest, latest_at, earliest, in_place, None if in_place else inner
    )


def _raise_problem(problem: int, where: str, max_message_bytes: int) -> None:
    """Raise the error for a problem that the kernel found; 0 is no problem."""
    if problem:
        kinds: dict[int, type[KafkaError]] = {
            message_kernel.BAD_CRC: CorruptMessage,
            message_kernel.BAD_TIMESTAMP: InvalidTimestamp,
            message_kernel.BAD_TYPE: InvalidTimestamp,
            message_kernel.TOO_LARGE: MessageTooLarge,
        }
        bound = f" ({max_message_bytes})" if problem == message_kernel.TOO_LARGE else ""
        raise kinds.get(problem, InvalidRecord)(f"{where}: {message_kernel.PROBLEMS[problem]}{bound}")


def place_set(
    buf: Bytes,
    checked: CheckedSet,
    *,
    base_offset: int,
    log_append_time_ms: int | None = None,
    codec: Codec | None = None,
    level: int | None = None,
    max_message_bytes: int = INT32_MAX,
    max_decompressed_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX,
) -> PlacedSet:
    """Assign offsets from `base_offset` on to the messages of a set that `check_produced_set` has checked.

    Works in place when that is possible and `buf` is writable. `log_append_time_ms` becomes the timestamp of all
    messages (in format 1). `codec` is the topic's, or None for the producer's. Another codec than the producer's
    compresses the set again, and NONE decompresses it. Raises MessageTooLarge when a newly compressed message exceeds
    `max_message_bytes`; UnsupportedCompressionType for zstd.
    """
    target = checked.codec if codec is None else codec
    last_offset = base_offset + checked.record_count - 1
    stamped = log_append_time_ms is not None and checked.magic == 1
    latest = NO_TIMESTAMP if checked.magic == 0 else checked.max_timestamp
    latest_at = -1 if latest < 0 else base_offset + checked.index_of_max
    if stamped and log_append_time_ms is not None:
        latest, latest_at = log_append_time_ms, base_offset
    if target is checked.codec and checked.in_place:
        data = memoryview(buf)
        if data.readonly:
            data = memoryview(bytearray(buf))
        if target is Codec.NONE:
            _place(data, base_offset, checked, stamped, latest)
        else:
            _place_wrapper(data, last_offset, stamped, latest)
        return PlacedSet(data, last_offset, latest, latest_at, False)
    inner = bytearray(buf if checked.codec is Codec.NONE else _inner_of(buf, checked, max_decompressed_bytes))
    is_relative = checked.magic == 1 and target is not Codec.NONE
    _place(memoryview(inner), 0 if is_relative else base_offset, checked, stamped, latest)
    placed = inner
    if target is not Codec.NONE:
        stamp = TimestampType.LOG_APPEND_TIME if stamped else TimestampType.CREATE_TIME
        placed = wrap(inner, last_offset, checked.magic, target, latest, stamp, level)
    if len(placed) > max_message_bytes:
        largest = max(entry.end - entry.start + LOG_OVERHEAD_BYTES for entry in iter_entries(placed))
        if largest > max_message_bytes:
            raise MessageTooLarge(
                f"a recompressed message has {largest} bytes, more than max.message.bytes={max_message_bytes}"
            )
    return PlacedSet(placed, last_offset, latest, latest_at, True)


def _inner_of(buf: Bytes, checked: CheckedSet, max_bytes: int) -> Bytes:
    """The decompressed messages of the wrapper."""
    if checked.inner is not None:
        return checked.inner
    value = value_of(buf, LOG_OVERHEAD_BYTES, len(buf))
    if value is None:
        raise CorruptMessage("a message set changed while its offsets were assigned")
    return decompress_messages(checked.codec, checked.magic, value, max_bytes)


def _place(data: memoryview, base_offset: int, checked: CheckedSet, stamped: bool, time_ms: int) -> None:
    """Set the offsets, the attributes and, with `stamped`, the timestamps of plain messages, in place."""
    attributes = LOG_APPEND_TIME_BIT if stamped else 0
    problem, count = message_kernel.place(data, 0, len(data), base_offset, attributes, stamped, time_ms)
    if problem or count != checked.record_count:
        raise CorruptMessage("a message set changed while its offsets were assigned")


def _place_wrapper(data: memoryview, last_offset: int, stamped: bool, time_ms: int) -> None:
    """Set the offset, the timestamp type and the timestamp of a wrapper of format 1, in place.

    Writes a new CRC when the type or the timestamp changes.
    """
    _int64.pack_into(data, 0, last_offset)
    attributes = data[_ATTRIBUTES_AT] & CODEC_BITS | (LOG_APPEND_TIME_BIT if stamped else 0)
    if attributes != data[_ATTRIBUTES_AT] or _int64.unpack_from(data, _TIMESTAMP_AT)[0] != time_ms:
        data[_ATTRIBUTES_AT] = attributes
        _int64.pack_into(data, _TIMESTAMP_AT, time_ms)
        seal_message(data, LOG_OVERHEAD_BYTES, len(data))
