"""What both sparse indexes of a segment are: two ascending columns in memory, fixed-size entries in a file.

In memory the columns are arrays, so that a look-up is one C bisection. New entries are kept back and written by
the page, or with a flush: an index can always be made again from its segment, and after a crash it is. An index
file is open only while it is read or written, so a partition costs one descriptor, not three.

    file:   entries, then, while the segment is active, a hole (zeros) up to `segment.index.bytes`

An index gets its full size when it is first written to, and loses what it does not use at a roll and at a clean stop:
so an active segment costs blocks for its entries alone, and whoever maps the file, as Apache Kafka does, finds it as
its own. An index is not checksummed: whoever looks something up compares the entry with the batch that it names.
Source: Kafka's AbstractIndex. Left out: its memory map.
"""

import operator
from array import array
from bisect import bisect_left, bisect_right
from contextlib import suppress
from itertools import islice
from pathlib import Path
from struct import Struct

from headrace.log.files import Files, LogFile

WRITE_BYTES = 4096
"""Entries are written when so many bytes of them wait."""

READ_BYTES = 32 << 10
MULTIPLE = 24
"""Of the sizes of both kinds of entries."""

RELATIVE_OFFSET_MAX = 2**31 - 1


class CorruptIndex(Exception):
    """An index file that cannot belong to its segment."""


def is_ascending(column: "array[int]", *, strictly: bool) -> bool:
    """Whether every value is greater than (or, not strictly, at least) the one before."""
    return all(map(operator.lt if strictly else operator.le, column, islice(column, 1, None)))


def read_used(files: Files, path: Path) -> bytes:
    """An index file's content up to where nothing but zeros follows, and perhaps some of these. Raises OSError.

    Entries ascend, so behind a chunk of zeros comes nothing, and a file of 10 MiB that was made for entries to come is
    not read for the few that it has. What is no multiple of any entry stays so.
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
        raise CorruptIndex(f"{name}: {len(data)} bytes end within an entry of {entry.size}")
    return data[: -(-len(data.rstrip(b"\0")) // entry.size) * entry.size]


class IndexFile:
    """Two columns, `keys` ascending, and the file they are written to."""

    __slots__ = (
        "base_offset",
        "entries_max",
        "entry",
        "is_extended",
        "keys",
        "path",
        "unwritten",
        "values",
        "written_bytes",
    )

    def __init__(self, path: Path, base_offset: int, bytes_max: int, entry: Struct, keys: "array[int]") -> None:
        self.path = path
        self.base_offset = base_offset
        self.entry = entry
        self.entries_max = bytes_max // entry.size
        self.keys = keys
        self.values = array("i")
        self.unwritten = bytearray()
        self.written_bytes = 0
        self.is_extended = False
        """Whether the file has its full size, or cannot have it."""

    def __len__(self) -> int:
        return len(self.keys)

    def add(self, files: Files, key: int, value: int) -> None:
        """Add an entry behind the last. A disk that does not take it now is asked again with the next one: the batch
        is written, and must not fail for its index."""
        self.keys.append(key)
        self.values.append(value)
        self.unwritten += self.entry.pack(key, value)
        if len(self.unwritten) >= WRITE_BYTES:
            with suppress(OSError):
                self.write(files)

    def extend(self, files: Files, keys: "array[int]", values: "array[int]") -> None:
        """`add` for many entries, but for those at the beginning that do not ascend from the last one there is."""
        first = bisect_right(keys, self.keys[-1]) if self.keys else 0
        keys, values = keys[first:], values[first:]
        self.keys.fromlist(keys.tolist())
        self.values.fromlist(values.tolist())
        self.unwritten += b"".join(map(self.entry.pack, keys, values))
        if len(self.unwritten) >= WRITE_BYTES:
            with suppress(OSError):
                self.write(files)

    def write(self, files: Files) -> None:
        """Bring the file to the state of memory, at its full size. Raises OSError."""
        file = files.open(self.path, create=True)
        self._write_new(file)
        if not self.is_extended:
            file.extend(self.entries_max * self.entry.size)
            self.is_extended = True

    def trim(self, files: Files) -> None:
        """Bring the file to the state of memory, and cut off what lies behind it. Raises OSError."""
        file = files.open(self.path, create=True)
        self._write_new(file)
        if file.size() != self.written_bytes:
            file.truncate(self.written_bytes)
        self.is_extended = False

    def _write_new(self, file: LogFile) -> None:
        if self.unwritten:
            file.write(self.unwritten, self.written_bytes)
            self.written_bytes += len(self.unwritten)
            self.unwritten.clear()

    def keep(self, entries: int) -> None:
        """Drop every entry but the first `entries`; the next `trim` cuts the file."""
        del self.keys[entries:], self.values[entries:]
        self.written_bytes = 0
        self.unwritten = bytearray(b"".join(map(self.entry.pack, self.keys, self.values)))

    def copy_entries(self, other: "IndexFile") -> None:
        """Have the entries of another index of the same kind; none is written."""
        self.keys, self.values = other.keys[:], other.values[:]
        self.keep(len(self))

    def clear(self) -> None:
        """Drop every entry, for a rebuild."""
        self.keep(0)


def entries_below(column: "array[int]", relative_offset: int) -> int:
    """How many leading entries of a column of relative offsets are below `relative_offset`."""
    return bisect_left(column, min(relative_offset, RELATIVE_OFFSET_MAX))
