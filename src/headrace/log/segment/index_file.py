"""The base of both sparse indexes of a segment: two ascending columns in memory, fixed-size entries in a file.

In memory the columns are arrays, so that a look-up is one bisection in C. New entries are written by the page, or with
a flush, because an index can be rebuilt from its segment, and is rebuilt after a crash. An index file is open only
while it is read or written, so a partition needs one descriptor instead of three.

    file:   entries, then, while the segment is active, a hole (zeros) up to `segment.index.bytes`

An index file gets its full size at its first write, and is cut to its entries at a roll and at a clean stop. So an
active segment uses disk blocks only for its entries, and Apache Kafka can map the file as its own. An index has no
checksum: a look-up compares the entry with the batch that it names. Source: Kafka's AbstractIndex. Left out: its
memory map.
"""

import operator
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from contextlib import suppress
from itertools import islice
from struct import Struct
from typing import ClassVar, Self

from headrace.log.files import AtPath, Files, LogFile, PathText, folder_and_name
from headrace.log.segment.index_columns import NOTHING, WRITE_BYTES, IndexColumns

READ_BYTES = 32 << 10
MULTIPLE = 24
"""A common multiple of both entry sizes, in bytes."""

RELATIVE_OFFSET_MAX = 2**31 - 1


class CorruptIndex(Exception):
    """An index file does not belong to its segment."""


def is_ascending(column: "array[int]", *, strictly: bool) -> bool:
    """Whether each value is greater than the one before, or at least equal to it when not `strictly`."""
    return all(map(operator.lt if strictly else operator.le, column, islice(column, 1, None)))


def read_used(files: Files, path: PathText) -> bytes:
    """The used part of an index file's content, and perhaps some of the zeros behind it. Raises OSError.

    Entries ascend, so no entry follows a chunk of zeros. So a preallocated file of 10 MiB with few entries is not read
    to its end. A length that is no multiple of the entry size stays so.
    """
    file = files.open_readonly(path)
    size, data = file.size(), b""
    while len(data) < size:
        chunk = file.read(READ_BYTES, len(data))
        data += chunk
        if chunk.count(0) == len(chunk):
            return data + bytes((size - len(data)) % MULTIPLE)
    return data


def used_part(data: bytes, entry: Struct, name: str) -> bytes:
    """The entries of an index file without the zeros behind them. Raises CorruptIndex for half an entry."""
    if len(data) % entry.size:
        raise CorruptIndex(f"{name}: {len(data)} bytes are not a multiple of the entry size {entry.size}")
    return data[: -(-len(data.rstrip(b"\0")) // entry.size) * entry.size]


def check_columns(keys: "array[int]", values: "array[int]", name: str, *, strictly: bool) -> None:
    """Check two columns of an index file: `keys` ascend strictly, and `values` too or not. Raises CorruptIndex."""
    if keys and (keys[0] < 0 or values[0] < 0):
        raise CorruptIndex(f"{name}: the first entry is negative")
    if not (is_ascending(keys, strictly=True) and is_ascending(values, strictly=strictly)):
        raise CorruptIndex(f"{name}: the entries are not ascending")


class IndexFile(IndexColumns, AtPath, ABC):
    """The two columns of an index, `keys` and `values`, and their file. `keys` ascend."""

    ENTRY: ClassVar[Struct]
    """An entry in the file: key, value."""
    KEY_TYPE: ClassVar[str]
    """The array type of the keys. Values are int32."""

    __slots__ = (
        "_folder",
        "_name",
        "is_extended",
        "written_bytes",
    )

    def __init__(self, path: PathText, base_offset: int, bytes_max: int) -> None:
        super().__init__(base_offset, bytes_max // self.ENTRY.size, self.ENTRY, self.KEY_TYPE)
        self._folder, self._name = folder_and_name(path)
        self.written_bytes = 0
        self.is_extended = False
        """Whether the file was extended to its full size, or the disk does not allow it."""

    @classmethod
    @abstractmethod
    def read_columns(cls, data: bytes, name: str) -> "tuple[array[int], array[int]]":
        """The keys and the values in a file's content. Raises CorruptIndex."""

    @classmethod
    def load(cls, files: Files, path: PathText, base_offset: int, bytes_max: int) -> Self:
        """Read the file. Raises CorruptIndex, or FileNotFoundError."""
        index = cls(path, base_offset, bytes_max)
        index.keys, index.values = cls.read_columns(read_used(files, index.text), index._name)
        index.written_bytes = len(index) * cls.ENTRY.size
        return index

    def __len__(self) -> int:
        return len(self.keys)

    def add(self, files: Files, key: int, value: int) -> None:
        """Add an entry at the end, unless its key is no larger than the last one.

        Ignores a failed write, which the next entry repeats: the batch is written, and must not fail for its index.
        """
        if self.put(key, value):
            self.write_waiting(files)

    def write_waiting(self, files: Files) -> None:
        """Write the waiting entries, if they are many. Ignores a failure; see `add`."""
        if len(self.unwritten) >= WRITE_BYTES:
            with suppress(OSError):
                self.write(files)

    def extend(self, files: Files, keys: "array[int]", values: "array[int]") -> None:
        """Add many entries, without the first ones whose keys are not above the last key."""
        first = bisect_right(keys, self.keys[-1]) if self.keys else 0
        keys, values = keys[first:], values[first:]
        self.own()
        self.keys.fromlist(keys.tolist())
        self.values.fromlist(values.tolist())
        self.unwritten += b"".join(map(self.ENTRY.pack, keys, values))
        self.write_waiting(files)

    def create(self, files: Files) -> None:
        """Create the file of an index without entries, at its full size. Raises OSError."""
        files.make_hole(self.text, self.entries_max * self.ENTRY.size)
        self.is_extended = True

    def write(self, files: Files) -> None:
        """Write the waiting entries, and extend the file to its full size. Raises OSError."""
        file = files.open(self.text, create=True)
        self._write_new(file)
        if not self.is_extended:
            file.extend(self.entries_max * self.ENTRY.size)
            self.is_extended = True

    def trim(self, files: Files) -> LogFile:
        """Write the waiting entries, and cut the file behind the last entry. Returns the file. Raises OSError."""
        file = files.open(self.text, create=True)
        self._write_new(file)
        if self.is_extended or file.size() != self.written_bytes:
            file.truncate(self.written_bytes)
        self.is_extended = False
        return file

    def _write_new(self, file: LogFile) -> None:
        if self.unwritten:
            file.write(self.unwritten, self.written_bytes)
            self.written_bytes += len(self.unwritten)
            self.unwritten.clear()

    def keep(self, entries: int) -> None:
        """Keep the first `entries` entries, and drop the others. The next `trim` cuts the file."""
        del self.keys[entries:], self.values[entries:]
        self.written_bytes = 0
        self.unwritten = bytearray(b"".join(map(self.ENTRY.pack, self.keys, self.values))) if self.keys else NOTHING

    def copy_entries(self, other: "IndexFile") -> None:
        """Copy the entries of another index of the same kind, without a write to the file."""
        self.keys, self.values = other.keys[:], other.values[:]
        self.keep(len(self))

    def clear(self) -> None:
        """Drop all entries, for a rebuild."""
        self.keep(0)


def entries_below(column: "array[int]", relative_offset: int) -> int:
    """The number of leading entries of an ascending column that are below `relative_offset` (exclusive)."""
    return bisect_left(column, min(relative_offset, RELATIVE_OFFSET_MAX))
