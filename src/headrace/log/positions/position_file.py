"""The file of a position index, beside the log.

    file         "HR07" | generation int32 | entry …
    entry        offset int64 | position int64 | CRC-32 of both uint32                          20 bytes, ascending

Only entries of records that are on the disk are written, and a truncation of the log cuts the file first, so that it
never names a batch that is not there. An entry that does not match its CRC ends the file. Its owner ignores a file of
another generation. `PartitionLog.positions_lock` keeps a write, which is done on a thread, and a truncation apart.
"""

from array import array
from bisect import bisect_right
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from headrace.log.files import Files

FILE_NAME = "kafka07-positions"

_MAGIC = b"HR07"
_HEAD, _PAIR, _ENTRY = Struct(">4si"), Struct(">qq"), Struct(">qqI")
_READ_ROWS = 10_000


class Pair(NamedTuple):
    """An offset and its position."""

    offset: int
    position: int


class StoredPositions(NamedTuple):
    """The content of a file: the generation, and two columns of int64 with at least one row."""

    generation: int
    offsets: "array[int]"
    positions: "array[int]"

    @property
    def first(self) -> Pair:
        """The first pair."""
        return Pair(self.offsets[0], self.positions[0])


class Unwritten(NamedTuple):
    """Entries to write from a row of the file on. Row 0 replaces the file."""

    generation: int
    row: int
    offsets: "array[int]"
    positions: "array[int]"


def read_positions(files: Files, directory: Path) -> StoredPositions | None:
    """The readable part of the file in a log's directory; None without one. Any thread. Raises OSError."""
    try:
        file = files.open_readonly(directory / FILE_NAME)
    except FileNotFoundError:
        return None
    head = file.read(_HEAD.size, 0)
    if len(head) < _HEAD.size or head[: len(_MAGIC)] != _MAGIC:
        return None
    found = StoredPositions(_HEAD.unpack(head)[1], array("q"), array("q"))
    while _read_rows(file.read(_READ_ROWS * _ENTRY.size, _HEAD.size + len(found.offsets) * _ENTRY.size), found):
        pass
    return found if found.offsets else None


def _read_rows(data: bytes, found: StoredPositions) -> bool:
    """Append the valid entries in `data`; False at the end of what is valid."""
    offsets, positions = found.offsets, found.positions
    last = Pair(offsets[-1], positions[-1]) if offsets else None
    whole = len(data) - len(data) % _ENTRY.size
    for offset, position, checksum in _ENTRY.iter_unpack(data[:whole]):
        is_later = last is None or (offset > last.offset and position >= last.position)
        if crc32(_PAIR.pack(offset, position)) != checksum or not is_later:
            return False
        offsets.append(offset)
        positions.append(position)
        last = Pair(offset, position)
    return whole > 0


def write_positions(files: Files, directory: Path, entries: Unwritten) -> bool:
    """Write entries; False if the file or its directory is gone. Any thread. Raises OSError."""
    path, data = directory / FILE_NAME, _encoded(entries)
    try:
        if not entries.row:
            files.replace(path, _HEAD.pack(_MAGIC, entries.generation) + data, sync=False)
        else:  # behind the rows before may be a torn entry
            files.open(path).write(data, _HEAD.size + entries.row * _ENTRY.size)
    except FileNotFoundError:
        return False
    return True


def truncate_positions(files: Files, directory: Path, offset: int) -> None:
    """Remove the entries above an offset from the file, before the log is truncated there. Raises OSError."""
    path = directory / FILE_NAME
    try:
        file = files.open(path)
    except FileNotFoundError:
        return
    count = max(0, (file.size() - _HEAD.size) // _ENTRY.size)

    def offset_at(row: int) -> int:
        return int.from_bytes(file.read(8, _HEAD.size + row * _ENTRY.size), "big", signed=True)

    kept = bisect_right(range(count), offset, key=offset_at)
    if not kept:
        files.remove(path)
    elif kept < count or file.size() > _HEAD.size + count * _ENTRY.size:
        file.truncate(_HEAD.size + kept * _ENTRY.size)
        file.sync()


def _encoded(entries: Unwritten) -> bytes:
    chunks = []
    for offset, position in zip(entries.offsets, entries.positions, strict=True):
        chunks.append(_ENTRY.pack(offset, position, crc32(_PAIR.pack(offset, position))))
    return b"".join(chunks)
