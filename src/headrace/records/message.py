"""One message of format 0 (Kafka 0.8 and 0.9) or 1 (0.10), as it stands in a message set.

      0  crc         uint32  CRC-32 of everything below
      4  magic       int8    0 or 1
      5  attributes  int8    0-2 codec | 3 log append time (format 1) | 4-7 unused
      6  timestamp   int64   ms since 1970, -1 for none: format 1 only
      .  key_length int32 (-1: null) | key | value_length int32 (-1: null) | value

With a codec the message is a wrapper: its key is null and its value a whole message set, compressed; see
`message_set`. Without timestamps (format 0) a message has -1 and CreateTime, whatever its attributes say.

What a timestamp may be: -1, or 0 and above; nothing but -1 in format 0; and the type LogAppendTime only in format 1.
Anything else is InvalidTimestamp, which names the combination. Source: Kafka's LegacyRecord, and its Message of 0.10.
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from headrace.errors import CorruptMessage, InvalidTimestamp
from headrace.limits import INT32_MAX
from headrace.records.compression import Bytes, Codec
from headrace.records.header import LOG_APPEND_TIME_BIT, LOG_OVERHEAD_BYTES, NO_TIMESTAMP

MAGICS = (0, 1)
MESSAGE_OVERHEAD_BYTES = (14, 22)
"""By magic: a message with null key and null value, without the offset and size that precede it in a set."""

CODEC_BITS = 0x07
CHECKED_FROM = 4
"""Where in a message the bytes start that its CRC covers."""

_KEY_AT = (6, 14)
_ATTRIBUTES_AT = 5
_MAGIC_AT = 4

_heads = (Struct(">IbB"), Struct(">IbBq"))
_uint32 = Struct(">I")
_int32 = Struct(">i")


class TimestampType(IntEnum):
    """Who set a timestamp: the producer, or the broker that appended."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Message(NamedTuple):
    """One message, or a wrapper; its offset is its set's."""

    magic: int
    crc: int
    attributes: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> Codec:
        """How the value is compressed. UnsupportedCompressionType for a number that is no codec."""
        return Codec.of_attributes(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        """CreateTime in format 0, whatever the attributes say."""
        return timestamp_type_of(self.magic, self.attributes)


def timestamp_type_of(magic: int, attributes: int) -> TimestampType:
    """The type that a message's attributes tell."""
    return TimestampType(1 if magic > 0 and attributes & LOG_APPEND_TIME_BIT else 0)


def check_timestamp(
    magic: int, timestamp_ms: int, timestamp_type: TimestampType | int = TimestampType.CREATE_TIME
) -> None:
    """InvalidTimestamp, naming the combination, unless a message of format `magic` may say this."""
    if timestamp_type not in (0, 1):
        raise InvalidTimestamp(f"timestamp type {timestamp_type} in format {magic}: there are 0 and 1")
    if timestamp_ms < NO_TIMESTAMP:
        raise InvalidTimestamp(f"timestamp {timestamp_ms} in format {magic}: negative, and not {NO_TIMESTAMP} for none")
    if magic == 0 and timestamp_ms != NO_TIMESTAMP:
        raise InvalidTimestamp(f"timestamp {timestamp_ms} in format 0, which has none: it must be {NO_TIMESTAMP}")
    if magic == 0 and timestamp_type == TimestampType.LOG_APPEND_TIME:
        raise InvalidTimestamp("timestamp type LogAppendTime in format 0, which has no timestamps")


def check_magic(magic: int) -> None:
    """ValueError unless it is 0 or 1."""
    if magic not in MAGICS:
        raise ValueError(f"messages have format 0 or 1, not {magic}")


def message_size(magic: int, key: bytes | None, value: bytes | None) -> int:
    """Bytes of a message, without the offset and size that precede it in a set (`LOG_OVERHEAD_BYTES`)."""
    return MESSAGE_OVERHEAD_BYTES[magic] + len(key or b"") + len(value or b"")


def encode_message(
    magic: int,
    key: bytes | None,
    value: Bytes | None,
    timestamp_ms: int = NO_TIMESTAMP,
    timestamp_type: TimestampType | int = TimestampType.CREATE_TIME,
    codec: Codec = Codec.NONE,
) -> bytearray:
    """One message; with a codec a wrapper, whose value has been compressed already.

    InvalidTimestamp for what its format cannot say; ValueError for another format, or more than 2 GiB.
    """
    check_magic(magic)
    check_timestamp(magic, timestamp_ms, timestamp_type)
    attributes = codec | (LOG_APPEND_TIME_BIT if timestamp_type else 0)
    message = bytearray(_heads[magic].pack(0, magic, attributes, *(() if magic == 0 else (timestamp_ms,))))
    for part in (key, value):
        message += _int32.pack(-1 if part is None else len(part))
        message += part or b""
    if len(message) > INT32_MAX - LOG_OVERHEAD_BYTES:
        raise ValueError(f"a message of {len(message)} bytes")
    seal_message(message, 0, len(message))
    return message


def parse_message(buf: Bytes, pos: int, end: int, with_value: bool = True) -> Message:
    """The message that fills [pos, end) of `buf`; without its value (None) when that is not wanted, see `value_of`.

    The CRC is the caller's to check.

    CorruptMessage when it is shorter than its format's overhead, of another format, or its lengths do not fill it.
    """
    if end > len(buf) or end - pos < MESSAGE_OVERHEAD_BYTES[0]:
        raise CorruptMessage(f"a message of {end - pos} bytes: the smallest has {MESSAGE_OVERHEAD_BYTES[0]}")
    magic = buf[pos + _MAGIC_AT]
    if magic not in MAGICS:
        raise CorruptMessage(f"magic {magic} where a message of format 0 or 1 should be")
    if end - pos < MESSAGE_OVERHEAD_BYTES[magic]:
        raise CorruptMessage(f"a message of format {magic} has {MESSAGE_OVERHEAD_BYTES[magic]} bytes, not {end - pos}")
    crc, _, attributes, *stamp = _heads[magic].unpack_from(buf, pos)
    key, at = _read_part(buf, pos + _KEY_AT[magic], end)
    length = _length_at(buf, at, end)
    at += 4
    if at + max(0, length) != end:
        raise CorruptMessage(f"{end - at - max(0, length)} bytes follow the value of a message")
    value = bytes(buf[at:end]) if with_value and length >= 0 else None
    return Message(magic, crc, attributes, stamp[0] if stamp else NO_TIMESTAMP, key, value)


def value_of(buf: Bytes, pos: int, end: int) -> memoryview | None:
    """The value of the message that fills [pos, end) and that `parse_message` took, without a copy."""
    magic = buf[pos + _MAGIC_AT]
    at = pos + _KEY_AT[magic]
    at += 4 + max(0, _length_at(buf, at, end))
    return memoryview(buf)[at + 4 : end] if _length_at(buf, at, end) >= 0 else None


def _read_part(buf: Bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    """A key, and the position behind it."""
    length = _length_at(buf, pos, end)
    pos += 4
    if length < 0:
        return None, pos
    return bytes(buf[pos : pos + length]), pos + length


def _length_at(buf: Bytes, pos: int, end: int) -> int:
    """The length of a key or a value, -1: null."""
    if end - pos < 4:
        raise CorruptMessage("a message ends inside a length")
    length: int = _int32.unpack_from(buf, pos)[0]
    if length < -1 or length > end - pos - 4:
        raise CorruptMessage(f"a key or value of {length} bytes in a message of which {end - pos - 4} are left")
    return length


def message_crc(buf: Bytes, pos: int, end: int) -> int:
    """The CRC-32 of the message that fills [pos, end)."""
    return crc32(memoryview(buf)[pos + CHECKED_FROM : end])


def seal_message(buf: bytearray | memoryview, pos: int, end: int) -> int:
    """Write the CRC of the message that fills [pos, end), in place; returns it."""
    crc = message_crc(buf, pos, end)
    _uint32.pack_into(buf, pos, crc)
    return crc


def crc_matches(buf: Bytes, pos: int, end: int) -> bool:
    """Whether the message that fills [pos, end) is what its writer put the checksum on."""
    stored: int = _uint32.unpack_from(buf, pos)[0]
    return stored == message_crc(buf, pos, end)
