"""A message of format 0 (Kafka 0.8 and 0.9) or 1 (0.10), the element of a message set.

      0  crc         uint32  CRC-32 of everything below
      4  magic       int8    0 or 1
      5  attributes  int8    0-2 codec | 3 log append time (format 1) | 4-7 unused
      6  timestamp   int64   ms since 1970, -1 for none: format 1 only
      .  key_length int32 (-1: null) | key | value_length int32 (-1: null) | value

With a codec the message is a wrapper: its key is null and its value a whole message set, compressed; see
`message_set`. Without timestamps (format 0) a message has -1 and CreateTime, whatever its attributes say.

A timestamp is -1, or 0 and above; in format 0 always -1. Only format 1 has the type LogAppendTime. Other combinations
raise InvalidTimestamp with the combination. Source: Kafka's LegacyRecord, and its Message of 0.10.
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from headrace.errors import CorruptMessage, InvalidTimestamp
from headrace.limits import INT32_MAX
from headrace.records.codecs.compression import Bytes, Codec
from headrace.records.format2.header import LOG_APPEND_TIME_BIT, LOG_OVERHEAD_BYTES, NO_TIMESTAMP

MAGICS = (0, 1)
MESSAGE_OVERHEAD_BYTES = (14, 22)
"""The size in bytes, by magic, of a message with null key and null value, without its offset and size in a set."""

CODEC_BITS = 0x07
CHECKED_FROM = 4
"""The position in a message from which on the CRC covers its bytes."""

_KEY_AT = (6, 14)
_MAGIC_AT = 4

_heads = (Struct(">IbB"), Struct(">IbBq"))
_uint32 = Struct(">I")
_int32 = Struct(">i")


class TimestampType(IntEnum):
    """The source of a timestamp: the producer, or the broker at the append."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Message(NamedTuple):
    """One message, or a wrapper. Its set has its offset."""

    magic: int
    crc: int
    attributes: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> Codec:
        """The value's compression. Raises UnsupportedCompressionType for an unknown codec number."""
        return Codec.of_attributes(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        """The timestamp's type. In format 0 it is always CreateTime."""
        return timestamp_type_of(self.magic, self.attributes)


def timestamp_type_of(magic: int, attributes: int) -> TimestampType:
    """The timestamp type in a message's attributes. In format 0 it is always CreateTime."""
    return TimestampType(1 if magic > 0 and attributes & LOG_APPEND_TIME_BIT else 0)


def check_timestamp(
    magic: int, timestamp_ms: int, timestamp_type: TimestampType | int = TimestampType.CREATE_TIME
) -> None:
    """Raise InvalidTimestamp, with the combination, unless a message of format `magic` may have this timestamp."""
    if timestamp_type not in (0, 1):
        raise InvalidTimestamp(f"timestamp type {timestamp_type} is invalid in format {magic}: expected 0 or 1")
    if timestamp_ms < NO_TIMESTAMP:
        raise InvalidTimestamp(
            f"timestamp {timestamp_ms} is invalid in format {magic}: expected {NO_TIMESTAMP}, which means none, or more"
        )
    if magic == 0 and timestamp_ms != NO_TIMESTAMP:
        raise InvalidTimestamp(
            f"timestamp {timestamp_ms} is invalid in format 0, which has no timestamps: expected {NO_TIMESTAMP}"
        )
    if magic == 0 and timestamp_type == TimestampType.LOG_APPEND_TIME:
        raise InvalidTimestamp("timestamp type LogAppendTime is invalid in format 0, which has no timestamps")


def check_magic(magic: int) -> None:
    """Raise ValueError unless the magic is 0 or 1."""
    if magic not in MAGICS:
        raise ValueError(f"unknown message format {magic}: expected 0 or 1")


def encode_message(
    magic: int,
    key: bytes | None,
    value: Bytes | None,
    timestamp_ms: int = NO_TIMESTAMP,
    timestamp_type: TimestampType | int = TimestampType.CREATE_TIME,
    codec: Codec = Codec.NONE,
) -> bytearray:
    """Encode one message. With a codec it is a wrapper, and `value` is compressed already.

    Raises InvalidTimestamp for a timestamp that the format does not allow; ValueError for another format, or more than
    2 GiB.
    """
    check_magic(magic)
    check_timestamp(magic, timestamp_ms, timestamp_type)
    attributes = codec | (LOG_APPEND_TIME_BIT if timestamp_type else 0)
    message = bytearray(_heads[magic].pack(0, magic, attributes, *(() if magic == 0 else (timestamp_ms,))))
    for part in (key, value):
        message += _int32.pack(-1 if part is None else len(part))
        message += part or b""
    if len(message) > INT32_MAX - LOG_OVERHEAD_BYTES:
        raise ValueError(f"a message of {len(message)} bytes is too large")
    seal_message(message, 0, len(message))
    return message


def parse_message(buf: Bytes, pos: int, end: int, with_value: bool = True) -> Message:
    """The message in `buf[pos:end]`. Without `with_value` its value is None: see `value_of`.

    The caller checks the CRC. Raises CorruptMessage when the message is shorter than its format's overhead, has another
    format, or its lengths do not match its size.
    """
    if end > len(buf) or end - pos < MESSAGE_OVERHEAD_BYTES[0]:
        raise CorruptMessage(f"a message has {end - pos} bytes, less than the minimum {MESSAGE_OVERHEAD_BYTES[0]}")
    magic = buf[pos + _MAGIC_AT]
    if magic not in MAGICS:
        raise CorruptMessage(f"magic {magic} is not that of a message of format 0 or 1")
    if end - pos < MESSAGE_OVERHEAD_BYTES[magic]:
        raise CorruptMessage(
            f"a message of format {magic} has at least {MESSAGE_OVERHEAD_BYTES[magic]} bytes, not {end - pos}"
        )
    crc, _, attributes, *stamp = _heads[magic].unpack_from(buf, pos)
    key, at = _read_part(buf, pos + _KEY_AT[magic], end)
    length = _length_at(buf, at, end)
    at += 4
    if at + max(0, length) != end:
        raise CorruptMessage(f"{end - at - max(0, length)} bytes follow the value of a message")
    value = bytes(buf[at:end]) if with_value and length >= 0 else None
    return Message(magic, crc, attributes, stamp[0] if stamp else NO_TIMESTAMP, key, value)


def value_of(buf: Bytes, pos: int, end: int) -> memoryview | None:
    """The value of the message in `buf[pos:end]`, which `parse_message` has accepted, without a copy."""
    magic = buf[pos + _MAGIC_AT]
    at = pos + _KEY_AT[magic]
    at += 4 + max(0, _length_at(buf, at, end))
    return memoryview(buf)[at + 4 : end] if _length_at(buf, at, end) >= 0 else None


def _read_part(buf: Bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    """A key, and the position after it."""
    length = _length_at(buf, pos, end)
    pos += 4
    if length < 0:
        return None, pos
    return bytes(buf[pos : pos + length]), pos + length


def _length_at(buf: Bytes, pos: int, end: int) -> int:
    """The length of a key or a value; -1 for null."""
    if end - pos < 4:
        raise CorruptMessage("a message ends inside a length")
    length: int = _int32.unpack_from(buf, pos)[0]
    if length < -1 or length > end - pos - 4:
        raise CorruptMessage(
            f"a key or value claims {length} bytes, but only {end - pos - 4} bytes of the message are left"
        )
    return length


def message_crc(buf: Bytes, pos: int, end: int) -> int:
    """The computed CRC-32 of the message in `buf[pos:end]`."""
    return crc32(memoryview(buf)[pos + CHECKED_FROM : end])


def seal_message(buf: bytearray | memoryview, pos: int, end: int) -> int:
    """Write the CRC of the message in `buf[pos:end]`, in place, and return it."""
    crc = message_crc(buf, pos, end)
    _uint32.pack_into(buf, pos, crc)
    return crc


def crc_matches(buf: Bytes, pos: int, end: int) -> bool:
    """Whether the message in `buf[pos:end]` matches its CRC."""
    stored: int = _uint32.unpack_from(buf, pos)[0]
    return stored == message_crc(buf, pos, end)
