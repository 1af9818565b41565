"""The primitives of generated codecs: the few encodings that one `struct` call cannot read or write.

    unsigned varint   7 bits a byte, low bits first, high bit = more follows; at most 5 bytes
    tagged section    count, then per field: tag, size, bytes        (all three unsigned varints)

The struct call before a varint reads its first byte, so `uvarint` continues from a byte that is already read.
"""

from collections.abc import Callable
from struct import Struct, pack, unpack_from
from typing import NamedTuple, Protocol

from headrace.errors import InvalidRequest
from headrace.limits import TAGGED_FIELDS_MAX

Buffer = bytes | bytearray | memoryview


class Chunk(Protocol):
    """Record bytes that stay in their file until the socket takes them."""

    @property
    def size(self) -> int:
        """The number of bytes."""


FOR_GENERATED = (
    "BYTE",
    "PLAIN",
    "check_uuid",
    "malformed",
    "read_numbers",
    "read_uvarint",
    "skip_tags",
    "uvarint",
    "write_numbers",
    "write_tags",
    "write_uvarint",
)
PLAIN = frozenset((bytes, bytearray, memoryview))
FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
SMALL = 16
_small_arrays: dict[str, "NumberArrays"] = {}
BYTE = [bytes((value,)) for value in range(128)]


def malformed(field: str) -> InvalidRequest:
    """The error for a length, a null or a count that the schema or the frame does not allow."""
    return InvalidRequest(f"malformed bytes: {field}")


def uvarint(buf: memoryview, pos: int, first: int) -> tuple[int, int]:
    """The varint whose first byte, `first` >= 128, lies before `pos`: (value, position after it)."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return value, pos
    raise malformed("a varint has more than five bytes")


def read_uvarint(buf: memoryview, pos: int) -> tuple[int, int]:
    """A whole varint at `pos`."""
    first = buf[pos]
    return (first, pos + 1) if first < 128 else uvarint(buf, pos + 1, first)


def write_uvarint(value: int) -> bytes:
    """An unsigned varint."""
    if value < 128:
        return BYTE[value]
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(buf: memoryview, pos: int, count: int) -> int:
    """The position after a tagged section none of whose fields is known; `count` is its first byte. Raises
    `InvalidRequest` for more fields than any version of any message has."""
    if count > TAGGED_FIELDS_MAX:
        raise malformed("a structure has too many tagged fields")
    for _ in range(count):
        _tag, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        pos += size
    return pos


class NumberArrays(NamedTuple):
    """The struct calls for arrays of one number type with fewer than `SMALL` elements, by element count."""

    unpack: tuple[Callable[[memoryview, int], tuple[int, ...]], ...]
    pack: tuple[Callable[..., bytes], ...]


def small_arrays(code: str) -> NumberArrays:
    """The calls for one struct code; mainly for replica lists."""
    if code not in _small_arrays:
        runs = [Struct(f">{count}{code}") for count in range(SMALL)]
        _small_arrays[code] = NumberArrays(tuple(run.unpack_from for run in runs), tuple(run.pack for run in runs))
    return _small_arrays[code]


def read_numbers(code: str, size: int, count: int, buf: memoryview, pos: int) -> list[int]:
    """`count` numbers of one struct code; the caller moves on by count * size."""
    if count * size > len(buf) - pos:
        raise malformed("an array is longer than the remaining bytes")
    return list(unpack_from(f">{count}{code}", buf, pos))


def write_numbers(code: str, values: list[int]) -> bytes:
    """The inverse of `read_numbers`, without the count."""
    return pack(f">{len(values)}{code}", *values)


def check_uuid(value: bytes) -> bytes:
    """Checks that a UUID has sixteen bytes; struct would pad or cut it silently."""
    if len(value) != 16:
        raise ValueError(f"a UUID has 16 bytes, not {len(value)}")
    return value


def write_tags(fields: list[tuple[int, list[bytes]]]) -> bytes:
    """A tagged section of (tag, pieces of its value), which come in ascending order."""
    out = [write_uvarint(len(fields))]
    for tag, pieces in fields:
        value = b"".join(pieces)
        out += (write_uvarint(tag), write_uvarint(len(value)), value)
    return b"".join(out)


def name_of(code: str) -> str:
    """A run's struct code as part of an identifier."""
    return code.replace("?", "o")


def unpackers(codes: set[str], arrays: set[str]) -> dict[str, object]:
    """The reads of these runs of fixed-size fields and number arrays, by the names that generated code uses."""
    runs = {f"u_{name_of(code)}": Struct(">" + code).unpack_from for code in codes}
    return runs | {f"us_{name_of(code)}": small_arrays(code).unpack for code in arrays}


def packers(codes: set[str], arrays: set[str]) -> dict[str, object]:
    """The writes."""
    runs = {f"p_{name_of(code)}": Struct(">" + code).pack for code in codes}
    return runs | {f"ps_{name_of(code)}": small_arrays(code).pack for code in arrays}
