# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, annotation_typing=False, binding=False
"""The two columns of an index in memory, and how an append adds to them.

The base of `index_file.IndexFile`. Compiled, because each batch of a common producer gets an entry in both indexes of
its segment; it also runs uncompiled.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Any

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if cython.compiled:
    from cython.cimports.cpython.array import resize_smart
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
else:
    from headrace.octets import put32, put64

WRITE_BYTES = 4096
"""Entries are written once this many bytes of them wait."""

_WRITE_BYTES, _VALUE_BYTES = WRITE_BYTES, 4
_INT32_MAX = 0x7FFFFFFF

EMPTY = {code: array(code) for code in "iq"}
NOTHING = bytearray()
"""Of all indexes without entries: columns of their own would take 430 bytes of each partition. Never written to."""


class IndexColumns:
    """The columns `keys`, which ascend, and `values`; and the entries that the file does not have yet."""

    __slots__ = ("_has_wide_keys", "base_offset", "entries_max", "entry", "key_type", "keys", "unwritten", "values")

    base_offset: int
    entries_max: int

    def __init__(self, base_offset: int, entries_max: int, entry: Struct, key_type: str) -> None:
        """`entry`: key and value, as the file has them. `key_type`: the array type of the keys; values are int32."""
        self.base_offset, self.entries_max, self.entry, self.key_type = base_offset, entries_max, entry, key_type
        self.keys, self.values, self.unwritten = EMPTY[key_type], EMPTY["i"], NOTHING
        self._has_wide_keys = key_type == "q"

    def put(self, key: int, value: int) -> bool:
        """Add an entry, unless its key, which is not negative, is no larger than the last one. Whether so many entries
        wait that they are to be written."""
        return self.put_entry(key, value)

    def put_entry(self, key: int, value: int) -> bool:
        """See `put`. Compiled, for compiled modules only."""
        if value < -_INT32_MAX - 1 or value > _INT32_MAX or (key > _INT32_MAX and not self._has_wide_keys):
            raise OverflowError(f"an index entry ({key}, {value}) does not fit its columns")
        if not len(self.keys) or not len(self.unwritten):
            self.own()
        keys: Any = self.keys
        values: Any = self.values
        unwritten = self.unwritten
        count = len(keys)
        if not cython.compiled:
            if count and key <= keys[count - 1]:
                return False
            keys.append(key)
            values.append(value)
            unwritten += self.entry.pack(key, value)
            return len(unwritten) >= _WRITE_BYTES
        if count:
            last: int = keys.data.as_longlongs[count - 1] if self._has_wide_keys else keys.data.as_ints[count - 1]
            if key <= last:
                return False
        size = PyByteArray_GET_SIZE(unwritten)
        end: int = size + (12 if self._has_wide_keys else 8)
        PyByteArray_Resize(unwritten, end)
        resize_smart(values, count + 1)
        resize_smart(keys, count + 1)
        out = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(unwritten))
        if self._has_wide_keys:
            keys.data.as_longlongs[count] = key
            put64(out, size, key)
        else:
            keys.data.as_ints[count] = key
            put32(out, size, key)
        values.data.as_ints[count] = value
        put32(out, end - _VALUE_BYTES, value)
        return end >= _WRITE_BYTES

    def own(self) -> None:
        """Make columns of its own of those that all empty indexes share."""
        if not self.keys:
            self.keys, self.values = array(self.key_type), array("i")
        if not self.unwritten:
            self.unwritten = bytearray()
