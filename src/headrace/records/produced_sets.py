"""What a broker asks of a produced message set of format 0 or 1 before it appends it, and how it gives it offsets.

    a set is     plain messages, as many as there are; or one wrapper, alone
    frame        complete entries that fill the bytes, none larger than `max.message.bytes`, each with its CRC right
    messages     one format in all of them, a wrapper's inner ones too; none inside a wrapper compressed; a key in each,
                 inner ones too, when the topic is compacted
    timestamps   0 and above, or -1; the type LogAppendTime is not a producer's to set

    given        how offsets get there
    plain        into each entry, in place; log append time into each message, with a new CRC
    wrapper, 1   into the wrapper alone, in place, with its timestamp: inner offsets are relative. Where a producer did
                 not write 0, 1, 2… they are put right, which means compressing them anew
    wrapper, 0   inner offsets are absolute: decompressed, written, compressed anew

Damage on the way (a CRC, data that do not decompress) is CorruptMessage, which clients retry; a set that its producer
made wrong is InvalidRecord or InvalidTimestamp, which they do not. Source: Kafka 3.9's LogValidator; unlike it, a
last message that is cut off is refused here, where Kafka drops it and acknowledges.
"""

from struct import Struct
from typing import NamedTuple

from headrace.errors import CorruptMessage, InvalidRecord, InvalidTimestamp, KafkaError, MessageTooLarge
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX, INT32_MAX
from headrace.records import message_kernel
from headrace.records.any_format import read_any_header
from headrace.records.compression import Bytes, Codec
from headrace.records.header import LOG_APPEND_TIME_BIT, LOG_OVERHEAD_BYTES, NO_TIMESTAMP
from headrace.records.message import (
    CODEC_BITS,
    TimestampType,
    check_timestamp,
    crc_matches,
    parse_message,
    seal_message,
    value_of,
)
from headrace.records.message_codecs import decompress_messages
from headrace.records.message_set import iter_entries, wrap

_int64 = Struct(">q")
_ATTRIBUTES_AT = 17
_TIMESTAMP_AT = 18


class CheckedSet(NamedTuple):
    """What is known of a produced set that may be appended."""

    magic: int
    codec: Codec
    """Of its wrapper; NONE for plain messages."""
    record_count: int
    max_timestamp: int
    """-1 when no message has one, as in format 0."""
    index_of_max: int
    """Which message is the first to have it, from 0; -1 for none."""
    min_timestamp: int
    """The smallest but -1; -1 when no message has one. For `message.timestamp.before.max.ms` and its like."""
    in_place: bool
    """Whether it can be given offsets without compressing it anew."""
    inner: Bytes | None
    """The wrapper's messages, decompressed, when they have to be rewritten."""


class PlacedSet(NamedTuple):
    """A set with its offsets in the log."""

    data: bytearray | memoryview
    """The bytes to append: those that came, changed in place, or new ones."""
    last_offset: int
    max_timestamp: int
    """-1 in format 0, whatever the topic's timestamp type is: the file will say nothing else."""
    offset_of_max: int
    """The first that has it; -1 for none."""
    is_rewritten: bool
    """Whether `data` are new bytes: what Kafka counts as a conversion."""


def check_produced_set(
    buf: memoryview,
    *,
    magic_max: int = 1,
    max_message_bytes: int,
    compacted: bool = False,
    max_decompressed_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX,
) -> CheckedSet:
    """What the set that fills `buf` is, once everything above holds; its messages do not become objects.

    The bounds that a topic puts on timestamps are the caller's to check, with the smallest and the largest. Raises
    CorruptMessage, InvalidRecord, InvalidTimestamp, MessageTooLarge, or UnsupportedCompressionType.
    """
    if not len(buf):
        raise InvalidRecord("a message set of no messages")
    header = read_any_header(buf)
    magic = header.magic
    if magic > magic_max:
        raise InvalidRecord(f"magic {magic}: this version of Produce carries messages up to format {magic_max}")
    if header.attributes & CODEC_BITS:
        return _check_wrapper(buf, header.size_bytes, max_message_bytes, compacted, max_decompressed_bytes)
    problem, count, latest, latest_at, earliest, _, _ = message_kernel.check(
        buf, 0, len(buf), magic, False, compacted, max_message_bytes
    )
    if problem == message_kernel.NESTED:
        raise InvalidRecord(f"message {count} of the set is a wrapper, which comes alone")
    _raise_problem(problem, f"message {count} of the set", max_message_bytes)
    return CheckedSet(magic, Codec.NONE, count, latest, latest_at, earliest, True, None)


def _check_wrapper(
    buf: memoryview, size: int, max_message_bytes: int, compacted: bool, max_decompressed_bytes: int
) -> CheckedSet:
    """The set that is one wrapper."""
    if size != len(buf):
        if size > len(buf):
            raise InvalidRecord(f"a wrapper of {size} bytes, of which {len(buf)} are there")
        raise InvalidRecord(f"a wrapper comes alone, and {len(buf) - size} bytes follow it")
    if size > max_message_bytes:
        raise MessageTooLarge(f"a wrapper of {size} bytes, over max.message.bytes ({max_message_bytes})")
    if not crc_matches(buf, LOG_OVERHEAD_BYTES, size):
        raise CorruptMessage("the wrapper does not match its CRC")
    wrapper = parse_message(buf, LOG_OVERHEAD_BYTES, size, with_value=False)
    if wrapper.attributes & LOG_APPEND_TIME_BIT:
        raise InvalidTimestamp(
            f"timestamp type LogAppendTime in a wrapper of format {wrapper.magic}: the broker sets it"
        )
    check_timestamp(wrapper.magic, wrapper.timestamp_ms)
    value = value_of(buf, LOG_OVERHEAD_BYTES, size)
    if value is None:
        raise InvalidRecord("a wrapper without a value")
    inner = decompress_messages(wrapper.codec, wrapper.magic, value, max_decompressed_bytes)
    problem, count, latest, latest_at, earliest, last_offset, consecutive = message_kernel.check(
        inner, 0, len(inner), wrapper.magic, True, compacted, INT32_MAX
    )
    _raise_problem(problem, f"message {count} in the wrapper", max_message_bytes)
    if not count:
        raise InvalidRecord("a wrapper that holds no messages")
    offset = _int64.unpack_from(buf)[0]
    in_place = wrapper.magic == 1 and consecutive and offset in (0, last_offset)
    return CheckedSet(
        wrapper.magic, wrapper.codec, count, latest, latest_at, earliest, in_place, None if in_place else inner
    )


def _raise_problem(problem: int, where: str, max_message_bytes: int) -> None:
    """What the kernel found, as the error that it is."""
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
    """The set that `check_produced_set` was given, its messages at `base_offset` and on.

    In place where that is possible and `buf` is writable. With `log_append_time_ms` that is everybody's timestamp (in
    format 1). `codec` is a topic's own, None for the producer's: another one means compressing anew, NONE unpacking.
    MessageTooLarge when what was compressed anew is over `max_message_bytes`; UnsupportedCompressionType for zstd.
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
                f"compressed anew a message has {largest} bytes, over max.message.bytes ({max_message_bytes})"
            )
    return PlacedSet(placed, last_offset, latest, latest_at, True)


def _inner_of(buf: Bytes, checked: CheckedSet, max_bytes: int) -> Bytes:
    """The messages of the wrapper."""
    if checked.inner is not None:
        return checked.inner
    value = value_of(buf, LOG_OVERHEAD_BYTES, len(buf))
    if value is None:
        raise CorruptMessage("a message set changed while it was placed")
    return decompress_messages(checked.codec, checked.magic, value, max_bytes)


def _place(data: memoryview, base_offset: int, checked: CheckedSet, stamped: bool, time_ms: int) -> None:
    """Offsets, attributes and, with `stamped`, timestamps of plain messages, in place."""
    attributes = LOG_APPEND_TIME_BIT if stamped else 0
    problem, count = message_kernel.place(data, 0, len(data), base_offset, attributes, stamped, time_ms)
    if problem or count != checked.record_count:
        raise CorruptMessage("a message set changed while it was placed")


def _place_wrapper(data: memoryview, last_offset: int, stamped: bool, time_ms: int) -> None:
    """Offset, type and timestamp of a wrapper of format 1, in place; a new CRC where one of the latter changes."""
    _int64.pack_into(data, 0, last_offset)
    attributes = data[_ATTRIBUTES_AT] & CODEC_BITS | (LOG_APPEND_TIME_BIT if stamped else 0)
    if attributes != data[_ATTRIBUTES_AT] or _int64.unpack_from(data, _TIMESTAMP_AT)[0] != time_ms:
        data[_ATTRIBUTES_AT] = attributes
        _int64.pack_into(data, _TIMESTAMP_AT, time_ms)
        seal_message(data, LOG_OVERHEAD_BYTES, len(data))
