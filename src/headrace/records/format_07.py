"""Messages of Kafka 0.7, the line before offsets counted messages.

    entry, magic 0:  length int32 (5 + n) | magic int8 | crc uint32 | payload, n bytes
    entry, magic 1:  length int32 (6 + n) | magic int8 | attributes int8 | crc uint32 | payload, n bytes

    attributes       0-1 codec of the payload: 0 none, 1 gzip, 2 snappy (xerial-framed)
    crc              CRC-32 of the payload alone: neither magic nor attributes are covered

A message has a payload and nothing else: no key, no timestamp, no null. It is named by where its entry begins in all
bytes that its partition ever held; the next one is named by where this one ends. The payload of a compressed message
is a set of entries, which may be compressed again (a mirror of 0.7 wrapped what was wrapped already); what is inside
has no place of its own, and counts as where the outermost entry begins. Source: Kafka 0.7.2's Message,
ByteBufferMessageSet and CompressionUtils.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from headrace.errors import CorruptMessage, UnsupportedCompressionType
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX, INT32_MAX
from headrace.records.compression import Bytes, Codec, compress, decompress

LENGTH_BYTES = 4
"""Before each message; not counted in the length itself."""

NESTING_MAX = 4
"""Wrappers inside one another; 0.7 itself made two."""

CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY)

_CODEC_BITS = 0x03
LAYOUTS = (
    (Struct(">ibI"), ("length", "magic", "crc")),
    (Struct(">ibbI"), ("length", "magic", "attributes", "crc")),
)
"""What comes before the payload, by magic: its struct, and its fields' names."""

OVERHEAD_BYTES = tuple(layout.size for layout, _ in LAYOUTS)
"""Bytes of an entry beside its payload, by magic: 9 and 10."""

LENGTH_MIN = OVERHEAD_BYTES[0] - LENGTH_BYTES
_length = Struct(">i")
_V0, _V1 = LAYOUTS[0][0], LAYOUTS[1][0]


class Entry(NamedTuple):
    """One entry as it lies in its buffer."""

    position: int
    size_bytes: int
    """With its length field: the next entry begins at `position + size_bytes`."""
    magic: int
    attributes: int
    """0 in magic 0, which has none."""
    crc: int
    payload: memoryview

    @property
    def codec(self) -> Codec:
        """How the payload is compressed. UnsupportedCompressionType for number 3, which 0.7 does not know."""
        number = self.attributes & _CODEC_BITS
        if number >= len(CODECS):
            raise UnsupportedCompressionType(f"codec {number} is not one of Kafka 0.7's: 0 none, 1 gzip, 2 snappy")
        return CODECS[number]

    @property
    def crc_is_valid(self) -> bool:
        """Whether the payload is what the checksum was taken of."""
        return crc32(self.payload) == self.crc


class Message(NamedTuple):
    """One message, out of whatever it was wrapped in."""

    offset: int
    """Where its entry begins; of a compressed one, where the outermost wrapper does."""
    next_offset: int
    """Where to go on reading: behind that entry."""
    payload: bytes


def entry_size(buf: Bytes, pos: int) -> int:
    """Bytes of the entry at `pos`, its length field included. CorruptMessage when no message has such a length.

    The four bytes of the length are there; whether the rest is, the caller compares.
    """
    length = int(_length.unpack_from(buf, pos)[0])
    if length < LENGTH_MIN:
        raise CorruptMessage(f"a message of {length} bytes: the smallest of Kafka 0.7's has {LENGTH_MIN}")
    return LENGTH_BYTES + length


def read_entry(buf: Bytes, pos: int = 0) -> Entry:
    """The entry at `pos`, its checksum not compared. CorruptMessage when it is cut off, or of another format."""
    view = memoryview(buf)
    if len(view) - pos < LENGTH_BYTES:
        raise CorruptMessage(f"a message's length is cut off: {len(view) - pos} bytes are left")
    size = entry_size(view, pos)
    if size > len(view) - pos:
        raise CorruptMessage(f"a message of {size - LENGTH_BYTES} bytes is cut off: {len(view) - pos} bytes are left")
    magic = view[pos + LENGTH_BYTES]
    if magic == 0:
        _, _, crc = _V0.unpack_from(view, pos)
        return Entry(pos, size, 0, 0, crc, view[pos + _V0.size : pos + size])
    if magic == 1:
        if size < _V1.size:
            raise CorruptMessage(f"a message of magic 1 has {size - LENGTH_BYTES} bytes: the smallest has 6")
        _, _, attributes, crc = _V1.unpack_from(view, pos)
        return Entry(pos, size, 1, attributes, crc, view[pos + _V1.size : pos + size])
    raise CorruptMessage(f"magic {magic}: messages of Kafka 0.7 have 0 or 1")


def iter_entries(buf: Bytes, pos: int = 0, end: int | None = None) -> Iterator[Entry]:
    """Each complete entry from `pos` to `end` (exclusive; None: the buffer's end), wrappers unopened.

    Stops before one that is cut off, as the last one of a fetch answer may be. CorruptMessage as `read_entry`.
    """
    view = memoryview(buf)[:end]
    while len(view) - pos >= LENGTH_BYTES and entry_size(view, pos) <= len(view) - pos:
        entry = read_entry(view, pos)
        yield entry
        pos += entry.size_bytes


def payloads_of(entry: Entry, max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX) -> list[memoryview]:
    """The payloads in an entry, in order: its own, or all that it wraps, at any depth up to NESTING_MAX.

    CorruptMessage when a checksum does not match, something does not decompress, all together is more than
    `max_bytes`, or a wrapped set ends inside a message; UnsupportedCompressionType for an unknown codec.
    """
    found: list[memoryview] = []
    _open(entry, max_bytes, 0, found)
    return found


def _open(entry: Entry, max_bytes: int, depth: int, found: list[memoryview]) -> int:
    """Append what is in an entry; how many of `max_bytes` are left."""
    if not entry.crc_is_valid:
        raise CorruptMessage(f"the message at position {entry.position} does not match its CRC {entry.crc}")
    codec = entry.codec
    if codec is Codec.NONE:
        found.append(entry.payload)
        return max_bytes
    if depth == NESTING_MAX:
        raise CorruptMessage(f"more than {NESTING_MAX} compressed messages inside one another")
    data = memoryview(decompress(codec, entry.payload, max_bytes))
    max_bytes -= len(data)
    pos = 0
    while pos < len(data):
        inner = read_entry(data, pos)
        max_bytes = _open(inner, max_bytes, depth + 1, found)
        pos += inner.size_bytes
    return max_bytes


def iter_messages(
    buf: Bytes, base_offset: int = 0, *, max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
) -> Iterator[Message]:
    """Each message of a set whose first byte is at `base_offset` of its partition, wrappers opened.

    Stops before an entry that is cut off. Errors as `read_entry` and `payloads_of`; what came before was yielded.
    """
    for entry in iter_entries(buf):
        offset = base_offset + entry.position
        for payload in payloads_of(entry, max_bytes):
            yield Message(offset, offset + entry.size_bytes, bytes(payload))


def encode_entry(payload: Bytes, *, magic: int = 1, codec: Codec = Codec.NONE) -> bytes:
    """One entry; `codec` says how `payload` was compressed, and needs magic 1.

    ValueError for a magic or a combination that 0.7 does not have, or a payload that no int32 counts.
    """
    if magic not in (0, 1) or codec not in CODECS or (magic == 0 and codec is not Codec.NONE):
        raise ValueError(f"Kafka 0.7 has no message of magic {magic} with {codec.name.lower()} compression")
    length = OVERHEAD_BYTES[magic] - LENGTH_BYTES + len(payload)
    if length > INT32_MAX:
        raise ValueError(f"a payload of {len(payload)} bytes does not fit a message")
    if magic == 0:
        return b"".join((_V0.pack(length, 0, crc32(payload)), payload))
    return b"".join((_V1.pack(length, 1, codec, crc32(payload)), payload))


def encode_set(payloads: Iterable[Bytes], *, magic: int = 1, codec: Codec = Codec.NONE) -> bytes:
    """A set of the payloads: entry behind entry or, with a codec, one entry that wraps them all. ValueError as above.

    Nothing at all for no payloads, as in 0.7.
    """
    entries = b"".join(encode_entry(payload, magic=magic) for payload in payloads)
    if codec is Codec.NONE or not entries:
        return entries
    if codec not in CODECS:
        raise ValueError(f"Kafka 0.7 does not know {codec.name.lower()} compression")
    return encode_entry(compress(codec, entries), magic=1, codec=codec)
