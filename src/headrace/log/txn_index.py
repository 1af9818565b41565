"""Index of the aborted transactions of one segment, for readers who ask for committed records only.

    entry:  version int16 = 0 | producer_id int64 | first_offset int64 | last_offset int64 | last_stable_offset int64

34 bytes, big-endian, ascending in last_offset, which is the abort marker's; an entry lies in the segment that holds
the marker. Most segments have no such file. Source: Kafka's TransactionIndex, AbortedTxn.
"""

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from headrace.log.files import Files
from headrace.log.index_file import CorruptIndex

ENTRY = Struct(">hqqqq")
VERSION = 0


class AbortedTransaction(NamedTuple):
    """One aborted transaction; `last_stable_offset` is the log's when the marker was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def read_entries(data: bytes) -> Iterator[AbortedTransaction]:
    """The entries of an index file's content, up to the first that is torn or does not follow the one before."""
    last_offset = -1
    for version, *fields in ENTRY.iter_unpack(data[: len(data) // ENTRY.size * ENTRY.size]):
        transaction = AbortedTransaction(*fields)
        if version != VERSION or transaction.last_offset <= last_offset:
            return
        last_offset = transaction.last_offset
        yield transaction


def parse_entries(data: bytes, base_offset: int, name: str) -> list[AbortedTransaction]:
    """The entries of a segment's index file, which has to hold nothing else. Raises CorruptIndex."""
    found = list(read_entries(data))
    if len(found) * ENTRY.size != len(data):
        raise CorruptIndex(f"{name}: {len(data)} bytes hold {len(found)} entries that make sense")
    for each in found:
        if not (each.last_offset >= base_offset and 0 <= each.first_offset <= each.last_offset):
            raise CorruptIndex(f"{name}: offsets {each.first_offset} to {each.last_offset} are not of this segment")
        if not 0 <= each.last_stable_offset <= each.last_offset + 1:
            raise CorruptIndex(f"{name}: offset {each.last_stable_offset} was not stable at {each.last_offset}")
    return found


class TransactionIndex:
    """The aborted transactions of one segment; `aborted` reads them when they are first asked for."""

    __slots__ = ("_entries", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: list[AbortedTransaction] | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether the entries are known."""
        return self._entries is not None

    def load(self, files: Files, base_offset: int) -> list[AbortedTransaction]:
        """The entries in the file, if there is one. Raises CorruptIndex, OSError."""
        return parse_entries(files.read(self.path), base_offset, self.path.name) if files.exists(self.path) else []

    def take(self, entries: list[AbortedTransaction]) -> None:
        """Go on with these entries, which are those of the file."""
        self._entries = entries

    def replace(self, files: Files, entries: list[AbortedTransaction]) -> None:
        """Have other entries, in the file too. Raises OSError."""
        file = files.open(self.path, create=True)
        file.write(b"".join(ENTRY.pack(VERSION, *each) for each in entries), 0)
        file.truncate(len(entries) * ENTRY.size)
        self._entries = entries

    def entries(self, files: Files) -> list[AbortedTransaction]:
        """Every entry, oldest first; those of the file that make sense, where nobody has compared it."""
        if self._entries is None:
            self._entries = list(read_entries(files.read(self.path))) if files.exists(self.path) else []
        return self._entries

    def append(self, files: Files, transaction: AbortedTransaction) -> None:
        """Add a transaction whose abort marker was just written, or found; nothing when it is here already."""
        entries = self.entries(files)
        if entries and entries[-1].last_offset >= transaction.last_offset:
            return
        files.open(self.path, create=True).write(ENTRY.pack(VERSION, *transaction), len(entries) * ENTRY.size)
        entries.append(transaction)

    def truncate_to(self, files: Files, offset: int) -> None:
        """Drop the transactions whose marker is at or above `offset`. A file that makes no sense stays as it is, for
        `aborted` to find."""
        if self._entries is None and not files.exists(self.path):
            return
        entries = self._entries
        if entries is None:
            data = files.read(self.path)
            entries = list(read_entries(data))
            if len(entries) * ENTRY.size != len(data):
                return
        keep = sum(entry.last_offset < offset for entry in entries)
        if keep < len(entries):
            del entries[keep:]
            files.open(self.path).truncate(keep * ENTRY.size)

    def sync(self, files: Files) -> None:
        """Bring the file, if there is one, to the disk. Any thread."""
        if self._entries:
            files.open(self.path).sync()
