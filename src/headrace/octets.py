# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""The fields of Kafka's protocol at their places in a buffer: for the compiled modules that read and write requests
without an object per field.

    int16, int32, int64   big-endian, signed
    length                int16 or int32; compact: an unsigned varint of at most 5 bytes, one more than the length
    varint                unsigned, 7 bits a byte, the lowest first

Only what takes an `end` looks where a buffer ends. Compiled, a field's buffer is a pointer to its first byte: the view
of a buffer is a struct of 208 bytes, which each call would copy. Fields of a fixed size are inline C. The module also
runs uncompiled.
"""

from __future__ import annotations

from typing import TypeAlias

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
    from cython.cimports.cpython.unicode import PyUnicode_DecodeASCII

Buffer: TypeAlias = "bytes | bytearray | memoryview"

COMPACT = 0
"""The width of a compact length."""

_VARINT_BITS_MAX = 28


if not cython.compiled:  # see octet_fields.pxd

    def int16_at(buf: Buffer, pos: int) -> int:
        value = buf[pos] << 8 | buf[pos + 1]
        return value - 0x10000 if value >= 0x8000 else value

    def uint32_at(buf: Buffer, pos: int) -> int:
        first = buf[pos]
        return first << 24 | buf[pos + 1] << 16 | buf[pos + 2] << 8 | buf[pos + 3]

    def int32_at(buf: Buffer, pos: int) -> int:
        value = uint32_at(buf, pos)
        return value - (value >> 31 << 32)

    def int64_at(buf: Buffer, pos: int) -> int:
        return int32_at(buf, pos) << 32 | uint32_at(buf, pos + 4)

    def put16(out: memoryview, pos: int, value: int) -> int:
        """Writes an int16, and returns the position behind it; so do the others."""
        out[pos] = value >> 8 & 0xFF
        out[pos + 1] = value & 0xFF
        return pos + 2

    def put32(out: memoryview, pos: int, value: int) -> int:
        out[pos] = value >> 24 & 0xFF
        out[pos + 1] = value >> 16 & 0xFF
        out[pos + 2] = value >> 8 & 0xFF
        out[pos + 3] = value & 0xFF
        return pos + 4

    def put64(out: memoryview, pos: int, value: int) -> int:
        return put32(out, put32(out, pos, value >> 32), value)


def length_at(buf: Buffer, pos: int, end: int, width: int) -> tuple[int, int]:
    """A length of `width` bytes, or `COMPACT`, and the position behind it; position -1 if it is cut off or too long."""
    if width:
        if end - pos < width:
            return 0, -1
        return (int16_at(buf, pos) if width == 2 else int32_at(buf, pos)), pos + width
    value, shift = 0, 0
    while pos < end and shift <= _VARINT_BITS_MAX:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value - 1, pos
        shift += 7
    return 0, -1


def is_ascii(buf: Buffer, pos: int, end: int) -> bool:
    """Whether all bytes of `buf[pos:end]` are ASCII."""
    while pos < end:
        if buf[pos] >= 0x80:
            return False
        pos += 1
    return True


def bytes_at(buf: Buffer, start: int, end: int) -> bytes:
    """A copy of `buf[start:end]`."""
    if cython.compiled:
        found: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, cython.address(buf[start])), end - start)
        return found
    return bytes(buf[start:end])


def text_at(buf: Buffer, start: int, end: int) -> str:
    """ASCII as text."""
    if cython.compiled:
        text: str = PyUnicode_DecodeASCII(
            cython.cast(cython.p_char, cython.address(buf[start])), end - start, cython.NULL
        )
        return text
    return str(buf[start:end], "ascii")


def put_varint(out: memoryview, pos: int, value: int) -> int:
    while value > 0x7F:
        out[pos] = value & 0x7F | 0x80
        value >>= 7
        pos += 1
    out[pos] = value
    return pos + 1


def put_length(out: memoryview, pos: int, value: int, width: int) -> int:
    """A length of `width` bytes, or `COMPACT`."""
    if width == 2:
        return put16(out, pos, value)
    if width == 4:
        return put32(out, pos, value)
    return put_varint(out, pos, value + 1)
