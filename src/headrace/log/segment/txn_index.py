"""The transaction index of a segment: its aborted transactions, for read_committed consumers.

    entry:  version int16 = 0 | producer_id int64 | first_offset int64 | last_offset int64 | last_stable_offset int64

An entry has 34 bytes, big-endian. Entries ascend by last_offset, which is the offset of the abort marker. The segment
with the marker has the entry. Most segments have no such file. Source: Kafka's TransactionIndex, AbortedTxn.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from headrace.log.files import AtPath, Files, PathText, folder_and_name
from headrace.log.segment.index_file import CorruptIndex

ENTRY = Struct(">hqqqq")
VERSION = 0


class AbortedTransaction(NamedTuple):
    """One aborted transaction, with the first and last offset (both inclusive).

    `last_stable_offset` is that of the log after the marker was written.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def read_entries(data: bytes) -> Iterator[AbortedTransaction]:
    """The entries in an index file's content, up to the first that is incomplete or does not follow the one before."""
    last_offset = -1
    for version, *fields in ENTRY.iter_unpack(data[: len(data) // ENTRY.size * ENTRY.size]):
        transaction = AbortedTransaction(*fields)
        if version != VERSION or transaction.last_offset <= last_offset:
            return
        last_offset = transaction.last_offset
        yield transaction


def parse_entries(data: bytes, base_offset: int, name: str) -> list[AbortedTransaction]:
    """The entries in the content of a segment's index file, checked. `name` is for the error. Raises CorruptIndex."""
    found = list(read_entries(data))
    if len(found) * ENTRY.size != len(data):
        raise CorruptIndex(f"{name}: {len(data)} bytes have only {len(found)} valid entries")
    for each in found:
        if not (each.last_offset >= base_offset and 0 <= each.first_offset <= each.last_offset):
            raise CorruptIndex(f"{name}: offsets {each.first_offset} to {each.last_offset} are outside this segment")
        if not 0 <= each.last_stable_offset <= each.last_offset + 1:
            raise CorruptIndex(f"{name}: last stable offset {each.last_stable_offset} is beyond {each.last_offset}")
    return found


_NONE: list[AbortedTransaction] = []
"""Of all indexes that are known to have no file. Never written to."""


class TransactionIndex(AtPath):
    """The aborted transactions of one segment. `aborted_transactions` reads them at the first use."""

    __slots__ = ("_entries", "_folder", "_name")

    def __init__(self, path: PathText) -> None:
        self._folder, self._name = folder_and_name(path)
        self._entries: list[AbortedTransaction] | None = None

    def remove(self, files: Files) -> None:
        """Remove the file of an earlier segment of that name, for a segment that is made. Raises OSError."""
        files.remove(self.text)
        self._entries = _NONE

    @property
    def has_no_file(self) -> bool:
        """Whether the segment is known to have no such file."""
        return self._entries is _NONE

    @property
    def is_loaded(self) -> bool:
        """Whether the entries are in memory."""
        return self._entries is not None

    @property
    def is_empty(self) -> bool:
        """Whether the entries are in memory, and there is none."""
        return self._entries is not None and not self._entries

    def load(self, files: Files, base_offset: int) -> list[AbortedTransaction]:
        """The entries in the file; none when there is no file. Raises CorruptIndex, OSError."""
        return parse_entries(files.read(self.text), base_offset, self._name) if files.exists(self.text) else []

    def take(self, entries: list[AbortedTransaction]) -> None:
        """Set the entries, which are those of the file."""
        self._entries = entries

    def replace(self, files: Files, entries: list[AbortedTransaction]) -> None:
        """Replace the entries in memory and in the file. Raises OSError."""
        file = files.open(self.text, create=True)
        file.write(b"".join(ENTRY.pack(VERSION, *each) for each in entries), 0)
        file.truncate(len(entries) * ENTRY.size)
        self._entries = entries

    def entries(self, files: Files) -> list[AbortedTransaction]:
        """All entries, oldest first. An unchecked file yields its valid entries only. Raises OSError."""
        if self._entries is None:
            self._entries = list(read_entries(files.read(self.text))) if files.exists(self.text) else []
        return self._entries

    def append(self, files: Files, transaction: AbortedTransaction) -> None:
        """Add a transaction whose abort marker was written or found, unless it is here already. Raises OSError."""
        entries = self.entries(files)
        if entries and entries[-1].last_offset >= transaction.last_offset:
            return
        if entries is _NONE:
            entries = self._entries = []  # a refused write may leave the file
        files.open(self.text, create=True).write(ENTRY.pack(VERSION, *transaction), len(entries) * ENTRY.size)
        entries.append(transaction)

    def truncate_to(self, files: Files, offset: int) -> None:
        """Drop the transactions whose marker is at or above `offset`. Raises OSError.

        Leaves a corrupt file unchanged, so that `aborted_transactions` finds it.
        """
        if self._entries is None and not files.exists(self.text):
            return
        entries = self._entries
        if entries is None:
            data = files.read(self.text)
            entries = list(read_entries(data))
            if len(entries) * ENTRY.size != len(data):
                return
        keep = sum(entry.last_offset < offset for entry in entries)
        if keep < len(entries):
            del entries[keep:]
            files.open(self.text).truncate(keep * ENTRY.size)

    def sync(self, files: Files) -> None:
        """Sync the file, if there are entries. Any thread. Raises OSError."""
        if self._entries:
            files.open(self.text).sync()
