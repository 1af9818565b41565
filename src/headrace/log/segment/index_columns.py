# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False, binding=False
"""The two columns of an index in memory, and how an append adds to them.

The base of `index_file.IndexFile`. Compiled, because each batch of a common producer gets an entry in both indexes of
its segment; it also runs uncompiled.
"""

from __future__ import annotations

from array import array
from struct import Struct

WRITE_BYTES = 4096
"""Entries are written once this many bytes of them wait."""

_WRITE_BYTES = WRITE_BYTES

EMPTY = {code: array(code) for code in "iq"}
NOTHING = bytearray()
"""Of all indexes without entries: columns of their own would take 430 bytes of each partition. Never written to."""


class IndexColumns:
    """The columns `keys`, which ascend, and `values`; and the entries that the file does not have yet."""

    __slots__ = ("base_offset", "entries_max", "entry", "key_type", "keys", "unwritten", "values")

    base_offset: int
    entries_max: int

    def __init__(self, base_offset: int, entries_max: int, entry: Struct, key_type: str) -> None:
        """`entry`: key and value, as the file has them. `key_type`: the array type of the keys; values are int32."""
        self.base_offset, self.entries_max, self.entry, self.key_type = base_offset, entries_max, entry, key_type
        self.keys, self.values, self.unwritten = EMPTY[key_type], EMPTY["i"], NOTHING

    def put(self, key: int, value: int) -> bool:
        """Add an entry, unless its key, which is not negative, is no larger than the last one. Whether so many entries
        wait that they are to be written."""
        keys = self.keys
        count = len(keys)
        if not count or not self.unwritten:
            self.own()
            keys = self.keys
        if count and key <= keys[count - 1]:
            return False
        keys.append(key)
        self.values.append(value)
        self.unwritten += self.entry.pack(key, value)
        return len(self.unwritten) >= _WRITE_BYTES

    def own(self) -> None:
        """Make columns of its own of those that all empty indexes share."""
        if not self.keys:
            self.keys, self.values = array(self.key_type), array("i")
        if not self.unwritten:
            self.unwritten = bytearray()
