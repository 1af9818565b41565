# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""Records one at a time, as Python objects: `RowBuffer` writes them, `take` reads them. Compiled.

A program that handles each record as an object pays for the object; this module adds little to that cost. `RowBuffer`
encodes each record directly behind the one before, in the bytes of the future batch. `take` makes tuples of the spans
that `kernel.scan` found. Like `kernel`, the module is plain Python, with C types in `rows.pxd`. It compares each index
with the length of its buffer before it uses it. Source: Kafka's MemoryRecordsBuilder, DefaultRecord.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
    from cython.cimports.headrace.records.format2.untracked import headrace_row
    from cython.cimports.libc.string import memcpy

COMPILED: bool = cython.compiled
"""Whether this is the C version."""

Buffer: TypeAlias = "bytes | bytearray | memoryview"
Ints: TypeAlias = "array[int] | memoryview"
Row = TypeVar("Row", bound="tuple[Any, ...]")

_RECORD_BYTES_MAX = 0x7FFFFFFF - 128
_INT64_MAX = 0x7FFFFFFFFFFFFFFF


class RowBuffer:
    """The encoded records of a future batch, after `start` bytes that are reserved for its header."""

    def __init__(self, start: int) -> None:
        self.data: bytearray = bytearray(start)
        self.end: int = start
        self.count: int = 0
        self.timestamps_ms: list[int] = []
        self.max_timestamp: int = 0
        self._base_timestamp = 0
        self._last_ms = 0
        self._last: int | None = None

    def append(
        self, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Sequence[tuple[str, bytes | None]]
    ) -> None:
        """Add a record. Raises TypeError for a field that is not bytes, and ValueError for one that no record can have;
        neither changes the buffer."""
        key, value = _as_bytes(key), _as_bytes(value)
        if not self.count:
            self._base_timestamp = self.max_timestamp = timestamp_ms
        elif _difference_overflows(timestamp_ms, self._base_timestamp):
            raise ValueError(f"timestamps {self._base_timestamp} and {timestamp_ms} are too far apart for one batch")
        key_length = -1 if key is None else len(key)
        value_length = -1 if value is None else len(value)
        tail = b"\x00" if not headers else _encoded_headers(headers)
        if max(key_length, 0) + max(value_length, 0) + len(tail) > _RECORD_BYTES_MAX:
            raise ValueError("a record can have at most 2 GiB")
        size = 1 + _varint_size(timestamp_ms - self._base_timestamp) + _varint_size(self.count)
        size += _varint_size(key_length) + max(key_length, 0) + _varint_size(value_length) + max(value_length, 0)
        size += len(tail)
        needed = self.end + _varint_size(size) + size
        if needed > len(self.data):
            self.data += bytes(max(needed - len(self.data), min(len(self.data), 1 << 20), 256))
        pos = _put_varint(self.data, self.end, size)
        self.data[pos] = 0
        pos = _put_varint(self.data, pos + 1, timestamp_ms - self._base_timestamp)
        pos = _put_varint(self.data, pos, self.count)
        pos = _put_varint(self.data, pos, key_length)
        if key is not None and key_length > 0:
            pos = _put_bytes(self.data, pos, key, key_length)
        pos = _put_varint(self.data, pos, value_length)
        if value is not None and value_length > 0:
            pos = _put_bytes(self.data, pos, value, value_length)
        self.end = _put_bytes(self.data, pos, tail, len(tail))
        if timestamp_ms > self.max_timestamp:
            self.max_timestamp = timestamp_ms
        if self._last is None or timestamp_ms != self._last_ms:
            self._last = self._last_ms = timestamp_ms
        self.timestamps_ms.append(self._last)  # one object for all records of a millisecond
        self.count += 1


def _as_bytes(given: Any) -> bytes | None:
    """Bytes and None unchanged, and other buffers as bytes. Raises TypeError for other objects."""
    if given is None or isinstance(given, bytes):
        return given
    return bytes(memoryview(given))


def _encoded_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    out = bytearray(10)
    del out[_put_varint(out, 0, len(headers)) :]
    number = bytearray(10)
    for name, content in headers:
        encoded = name.encode()
        out += number[: _put_varint(number, 0, len(encoded))]
        out += encoded
        out += number[: _put_varint(number, 0, -1 if content is None else len(content))]
        if content is not None:
            out += bytes(memoryview(content))
    return bytes(out)


def _difference_overflows(one: int, other: int) -> bool:
    """Whether the difference of two 64-bit numbers does not fit 64 bits."""
    if other >= 0:
        return one < -_INT64_MAX - 1 + other
    return one > _INT64_MAX + other


def _varint_size(value: int) -> int:
    """The encoded size of a zigzag number of up to 64 bits."""
    folded = value * 2 if value >= 0 else -(value + 1) * 2 + 1
    size = 1
    while folded > 0x7F:
        folded >>= 7
        size += 1
    return size


def _put_varint(out: bytearray, pos: int, value: int) -> int:
    """Write a zigzag number of up to 64 bits; returns the position behind it. The caller has checked the size."""
    folded = value * 2 if value >= 0 else -(value + 1) * 2 + 1
    while folded > 0x7F:
        out[pos] = (folded & 0x7F) | 0x80
        folded >>= 7
        pos += 1
    out[pos] = folded
    return pos + 1


def _put_bytes(out: bytearray, pos: int, given: bytes, length: int) -> int:
    """Write bytes; returns the position behind them. The caller has checked the size."""
    if cython.compiled:
        target: Any = out
        source: Any = given
        memcpy(target + pos, source, length)
    else:
        out[pos : pos + length] = given
    return pos + length


def take(
    kind: type[Row],
    topic: str,
    partition: int,
    data: Buffer,
    spans: Ints,
    offsets: Ints,
    timestamps_ms: Ints,
    timestamp_types: Buffer,
    start: int,
    stop: int,
    headers_of: Callable[[Buffer, int, int], object],
) -> list[Row]:
    """The rows [start, stop) of a scan of `data`, as tuples of a class.

    A row is (topic, partition, offset, timestamp_ms, timestamp_type, key, value, headers). Headers come from
    `headers_of(data, position, count)`, which is called only for records that have any. Raises ValueError if a part
    lies outside its buffer.
    """
    if start < 0 or stop > len(spans) // 6 or stop > len(offsets) or stop > len(timestamps_ms):
        raise ValueError("these rows were not scanned")
    if stop > len(timestamp_types):
        raise ValueError("these rows were not scanned")
    if not issubclass(kind, tuple):
        raise TypeError(f"rows are tuples, and {kind} is none")
    is_plain = not kind.__dictoffset__  # without attributes of its own, which could lead back to it
    partition_number: object = partition
    found: list[Row] = []
    for row in range(start, stop):
        count = spans[row * 6 + 5]
        offset: object = offsets[row]
        timestamp_ms: object = timestamps_ms[row]
        timestamp_type: object = timestamp_types[row]
        key = _part(data, spans[row * 6], spans[row * 6 + 1])
        value = _part(data, spans[row * 6 + 2], spans[row * 6 + 3])
        headers: object = () if count == 0 else headers_of(data, spans[row * 6 + 4], count)
        if cython.compiled and is_plain:
            made = headrace_row(
                kind, topic, partition_number, offset, timestamp_ms, timestamp_type, key, value, headers
            )
        else:
            made = tuple.__new__(
                kind, (topic, partition_number, offset, timestamp_ms, timestamp_type, key, value, headers)
            )
        found.append(made)
    return found


def _part(data: Buffer, start: int, length: int) -> bytes | None:
    """One field; None if its length is -1."""
    if length < 0:
        return None
    if start < 0 or length > len(data) - start:
        raise ValueError("a field of a record lies outside the batch")
    if cython.compiled:
        if length == 0:
            return b""
        part: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, cython.address(data[start])), length)
        return part
    return bytes(data[start : start + length])
