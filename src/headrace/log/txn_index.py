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


class TransactionIndex:
    """The aborted transactions of one segment, read when first asked for."""

    __slots__ = ("_entries", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: list[AbortedTransaction] | None = None

    def entries(self, files: Files) -> list[AbortedTransaction]:
        """Every entry, oldest first."""
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
        """Drop the transactions whose marker is at or above `offset`."""
        entries = self.entries(files)
        keep = sum(entry.last_offset < offset for entry in entries)
        if keep < len(entries):
            del entries[keep:]
            files.open(self.path).truncate(keep * ENTRY.size)

    def sync(self, files: Files) -> None:
        """Bring the file, if there is one, to the disk. Any thread."""
        if self._entries:
            files.open(self.path).sync()
