"""The message format of Kafka 0.7, in which offsets are byte positions.

    entry, magic 0:  length int32 (5 + n) | magic int8 | crc uint32 | payload, n bytes
    entry, magic 1:  length int32 (6 + n) | magic int8 | attributes int8 | crc uint32 | payload, n bytes

    attributes       0-1 codec of the payload: 0 none, 1 gzip, 2 snappy (xerial-framed)
    crc              CRC-32 of the payload alone: neither magic nor attributes are covered

A message has only a payload: no key, no timestamp, no null. Its offset is the position of its entry in all bytes that
the partition ever had, and the next offset is the entry's end. The payload of a compressed message is a set of entries,
which may be compressed again (a mirror of 0.7 wrapped wrappers). An inner message has the offset of the outermost
entry. Source: Kafka 0.7.2's Message07, ByteBufferMessageSet and CompressionUtils.
"""

from array import array
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple, Protocol
from zlib import crc32

from headrace.errors import CorruptMessage, InvalidRecord, MessageTooLarge, UnsupportedCompressionType
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX, INT32_MAX
from headrace.records.binary import BinaryColumn, as_bytes, as_int32s
from headrace.records.codecs.compression import Bytes, Codec, compress, decompress

LENGTH_BYTES = 4
"""The size of the length field, which the length does not count."""

NESTING_MAX = 4
"""The most levels of nested wrappers. Kafka 0.7 itself made two."""

CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY)

_CODEC_BITS = 0x03
_RATIO_MAX = 1032
"""The most that gzip can decompress a byte to; snappy's is less."""
LAYOUTS = (
    (Struct(">ibI"), ("length", "magic", "crc")),
    (Struct(">ibbI"), ("length", "magic", "attributes", "crc")),
)
"""The fields before the payload, by magic: their struct and their names."""

OVERHEAD_BYTES = tuple(layout.size for layout, _ in LAYOUTS)
"""The size of an entry in bytes without its payload, by magic: 9 and 10."""

LENGTH_MIN = OVERHEAD_BYTES[0] - LENGTH_BYTES
_length = Struct(">i")
_V0, _V1 = LAYOUTS[0][0], LAYOUTS[1][0]


class Entry07(NamedTuple):
    """One entry in its buffer."""

    position: int
    size_bytes: int
    """The size with the length field: the next entry begins at `position + size_bytes`."""
    magic: int
    attributes: int
    """The attributes; 0 in magic 0, which has none."""
    crc: int
    payload: memoryview

    @property
    def codec(self) -> Codec:
        """The payload's compression. Raises UnsupportedCompressionType for number 3, which 0.7 does not have."""
        number = self.attributes & _CODEC_BITS
        if number >= len(CODECS):
            raise UnsupportedCompressionType(f"unknown codec {number}: Kafka 0.7 has 0 (none), 1 (gzip) and 2 (snappy)")
        return CODECS[number]

    @property
    def crc_is_valid(self) -> bool:
        """Whether the payload matches the CRC."""
        return crc32(self.payload) == self.crc


class Message07(NamedTuple):
    """One message, unwrapped."""

    offset: int
    """The position of its entry, or of the outermost wrapper."""
    next_offset: int
    """The offset to continue at: the end of that entry."""
    payload: bytes


def entry_size(buf: Bytes, pos: int) -> int:
    """The size of the entry at `pos` in bytes, with its length field. Raises CorruptMessage for an invalid length.

    `buf` must have the four bytes of the length. The caller checks whether it has the rest.
    """
    length = int(_length.unpack_from(buf, pos)[0])
    if length < LENGTH_MIN:
        raise CorruptMessage(f"message length {length} is less than the minimum {LENGTH_MIN} of Kafka 0.7")
    return LENGTH_BYTES + length


def read_entry(buf: Bytes, pos: int = 0) -> Entry07:
    """The entry at `pos`, without a CRC check. Raises CorruptMessage when it is incomplete, or has another format."""
    view = memoryview(buf)
    if len(view) - pos < LENGTH_BYTES:
        raise CorruptMessage(f"the length of a message is cut off after {len(view) - pos} bytes")
    size = entry_size(view, pos)
    if size > len(view) - pos:
        raise CorruptMessage(
            f"a message of {size - LENGTH_BYTES} bytes is cut off: only {len(view) - pos} bytes are left"
        )
    magic = view[pos + LENGTH_BYTES]
    if magic == 0:
        _, _, crc = _V0.unpack_from(view, pos)
        return Entry07(pos, size, 0, 0, crc, view[pos + _V0.size : pos + size])
    if magic == 1:
        if size < _V1.size:
            raise CorruptMessage(f"a message of magic 1 has {size - LENGTH_BYTES} bytes, less than the minimum of 6")
        _, _, attributes, crc = _V1.unpack_from(view, pos)
        return Entry07(pos, size, 1, attributes, crc, view[pos + _V1.size : pos + size])
    raise CorruptMessage(f"unknown magic {magic}: messages of Kafka 0.7 have magic 0 or 1")


def iter_entries(buf: Bytes, pos: int = 0, end: int | None = None) -> Iterator[Entry07]:
    """Each complete entry from `pos` to `end` (exclusive; None: the buffer's end), wrappers unopened.

    Stops before an incomplete entry, as the last one of a fetch response may be. Raises CorruptMessage as `read_entry`.
    """
    view = memoryview(buf)[:end]
    while len(view) - pos >= LENGTH_BYTES and entry_size(view, pos) <= len(view) - pos:
        entry = read_entry(view, pos)
        yield entry
        pos += entry.size_bytes


class Sink(Protocol):
    """Takes payloads, in order."""

    def append(self, payload: memoryview, /) -> None:
        """Take one; raise an error to stop."""


def payloads_of(entry: Entry07, max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX) -> list[memoryview]:
    """The payloads in an entry, in order: its own, or those of its inner entries, up to NESTING_MAX levels deep.

    CorruptMessage when a checksum does not match, something does not decompress, all together is more than
    `max_bytes`, or a wrapped set ends inside a message; UnsupportedCompressionType for an unknown codec.
    """
    found: list[memoryview] = []
    _open(entry, RoomOf07(max_bytes, 0), 0, found)
    return found


class RoomOf07:
    """What the sets of one request may have together: bytes to decompress, at every level, and messages."""

    __slots__ = ("bytes_left", "messages_left")

    def __init__(self, max_bytes: int, max_messages: int) -> None:
        self.bytes_left, self.messages_left = max_bytes, max_messages


class _Column:
    """Payloads as a column of bytes."""

    def __init__(self, room: RoomOf07) -> None:
        self.offsets, self.data, self._room = array("i", [0]), bytearray(), room

    def append(self, payload: memoryview) -> None:
        if self._room.messages_left <= 0:
            raise InvalidRecord("the request has too many messages: send several requests")
        self._room.messages_left -= 1
        self.data += payload
        self.offsets.append(len(self.data))


def has_wrapper(messages: Bytes) -> bool:
    """Whether `column_of_set` would decompress something of a set."""
    try:
        return any(entry.attributes for entry in iter_entries(messages))
    except CorruptMessage:
        return False  # none before the damage


def column_of_set(messages: Bytes, room: RoomOf07, max_payload_bytes: int = INT32_MAX) -> tuple[BinaryColumn, Codec]:
    """The payloads of a set that a producer sent, and the codec of its first entry. Takes from `room`.

    Raises as `payloads_of`; MessageTooLarge, before it is opened, for an entry whose payload is larger than
    `max_payload_bytes`; CorruptMessage when the set ends inside a message; InvalidRecord when `room` has no more
    messages.
    """
    column, codec, pos = _Column(room), Codec.NONE, 0
    while pos < len(messages):
        entry = read_entry(messages, pos)
        if len(entry.payload) > max_payload_bytes:
            raise MessageTooLarge(
                f"a payload has {len(entry.payload)} bytes, more than max.message.bytes={max_payload_bytes}"
            )
        codec = codec if pos else entry.codec
        _open(entry, room, 0, column)
        pos += entry.size_bytes
    return BinaryColumn(column.offsets, column.data, None, 0), codec


def _open(entry: Entry07, room: RoomOf07, depth: int, found: Sink) -> None:
    """Append the payloads in an entry to `found`."""
    if not entry.crc_is_valid:
        raise CorruptMessage(f"the message at position {entry.position} does not match its CRC {entry.crc}")
    codec = entry.codec
    if codec is Codec.NONE:
        found.append(entry.payload)
        return
    if depth == NESTING_MAX:
        raise CorruptMessage(f"compressed messages are nested more than {NESTING_MAX} deep")
    try:
        data = memoryview(decompress(codec, entry.payload, room.bytes_left))
    except CorruptMessage:  # it may have taken as much work as one that is not corrupt
        room.bytes_left -= min(room.bytes_left, _RATIO_MAX * len(entry.payload))
        raise
    room.bytes_left -= len(data)
    pos = 0
    while pos < len(data):
        inner = read_entry(data, pos)
        _open(inner, room, depth + 1, found)
        pos += inner.size_bytes


def iter_messages(
    buf: Bytes, base_offset: int = 0, *, max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
) -> Iterator[Message07]:
    """Each message of a set whose first byte is at `base_offset` of its partition, with wrappers opened.

    Stops before an incomplete entry. Raises as `read_entry` and `payloads_of`, after the messages before the error.
    """
    for entry in iter_entries(buf):
        offset = base_offset + entry.position
        for payload in payloads_of(entry, max_bytes):
            yield Message07(offset, offset + entry.size_bytes, bytes(payload))


def encode_entry(payload: Bytes, *, magic: int = 1, codec: Codec = Codec.NONE) -> bytes:
    """Encode one entry. `codec` is the compression of `payload`, and needs magic 1.

    Raises ValueError for a magic or a combination that 0.7 does not have, and for a payload too large for an int32.
    """
    if magic not in (0, 1) or codec not in CODECS or (magic == 0 and codec is not Codec.NONE):
        raise ValueError(f"Kafka 0.7 has no message of magic {magic} with {codec.name.lower()} compression")
    length = OVERHEAD_BYTES[magic] - LENGTH_BYTES + len(payload)
    if length > INT32_MAX:
        raise ValueError(f"a payload of {len(payload)} bytes is too large for a message")
    if magic == 0:
        return b"".join((_V0.pack(length, 0, crc32(payload)), payload))
    return b"".join((_V1.pack(length, 1, codec, crc32(payload)), payload))


def encode_set(payloads: Iterable[Bytes], *, magic: int = 1, codec: Codec = Codec.NONE) -> bytes:
    """Encode the payloads as a set: one entry each or, with a codec, one entry that wraps them all.

    Without payloads the set is empty, as in 0.7. Raises ValueError as `encode_entry`.
    """
    entries = b"".join(encode_entry(payload, magic=magic) for payload in payloads)
    if codec is Codec.NONE or not entries:
        return entries
    if codec not in CODECS:
        raise ValueError(f"Kafka 0.7 does not support {codec.name.lower()} compression")
    return encode_entry(compress(codec, entries), magic=1, codec=codec)


def encode_rows(values: BinaryColumn, start: int, stop: int) -> bytearray:
    """Encode the rows [start, stop) as uncompressed entries of magic 1. A null becomes an empty payload."""
    offsets, data = as_int32s(values.offsets), as_bytes(values.data)
    pack, overhead = _V1.pack, _V1.size - LENGTH_BYTES
    out = bytearray()
    at = offsets[start]
    for row in range(start, stop):
        end = offsets[row + 1]
        payload = data[at:end]
        out += pack(overhead + end - at, 1, 0, crc32(payload))
        out += payload
        at = end
    return out
