"""The offset map: the newest offset of each key in a part of a log, in bounded memory, 24 bytes a key.

    known = OffsetMap(bytes_max, load_factor, keys_expected)
    is_full = known.index(batch, header, from_offset)       in the order of the log, until the map is full
    known.mark(records, start, end, header, …)              then: marks the records that are the newest of their key

A full map covers the log up to `latest_offset` (inclusive). Each map hashes its keys with its own random key; see
`compaction_kernel`. Source: Kafka's SkimpyOffsetMap.
"""

import os
from array import array
from typing import NamedTuple

from headrace.errors import CorruptMessage
from headrace.log.cleaning import compaction_kernel as kernel
from headrace.log.cleaning import compaction_runs as runs
from headrace.log.cleaning.compaction_writer import CleanedWriter
from headrace.records.codecs.compression import Bytes
from headrace.records.format2.header import BatchHeader, records_of

SLOT_BYTES = 8 * kernel.FIELDS
_SLOTS_MIN = 16


class Marked(NamedTuple):
    """The result of `mark` for a batch: the number of records that stay, and of tombstones among them."""

    kept: int
    tombstones: int
    latest_delta: int
    """The largest timestamp of the records that stay, minus the batch's base timestamp, in ms."""
    without_key: int
    """The number of records without a key, which are removed."""


class OffsetMap:
    """The newest offset of each key."""

    def __init__(self, bytes_max: int, load_factor: float, keys_expected: int) -> None:
        """Create a map for `keys_expected` keys, or as many as `bytes_max` allows; at least one key.

        `load_factor` is the largest used share of the slots, from 0 to 1.
        """
        slots_max = max(2, bytes_max // SLOT_BYTES)
        self.slots = min(slots_max, max(_SLOTS_MIN, int(keys_expected / load_factor) + 1))
        self.entries_max = min(self.slots - 1, max(1, int(self.slots * load_factor)))
        self.entries = 0
        self.latest_offset = -1
        """The offset up to which (inclusive) the map covers the log."""
        self._table = memoryview(bytearray(self.slots * SLOT_BYTES)).cast("Q")  # zeros take no memory until written
        secret = os.urandom(16)
        self._key0, self._key1 = int.from_bytes(secret[:8], "little"), int.from_bytes(secret[8:], "little")

    @property
    def is_full(self) -> bool:
        """Whether the map has no room for another key."""
        return self.entries >= self.entries_max

    def index(self, batch: Bytes, header: BatchHeader, from_offset: int) -> bool:
        """Add the keys of a batch of format 2, from `from_offset` on. Returns True when not all of them fit.

        Raises CorruptMessage when the batch does not decompress, or its records are damaged.
        """
        records, start, end = records_of(batch, 0, header)
        reached, self.entries = kernel.index(
            records, start, end, header.record_count, header.base_offset, from_offset, self._table, self.slots,
            self.entries, self.entries_max, self._key0, self._key1,
        )  # fmt: skip
        if reached == kernel.BROKEN:
            raise CorruptMessage(f"the batch at offset {header.base_offset} does not hold the records that it counts")
        self.latest_offset = max(self.latest_offset, header.last_offset if reached < 0 else reached - 1)
        return reached >= 0

    def learn(self, window: Bytes, at: int, expected: int, next_base: int, from_offset: int) -> tuple[int, int]:
        """Add the keys of a run of plain batches: see `compaction_runs.learn`.

        Returns the run's end position in the window, and the lowest offset that may follow.
        """
        at, expected, self.entries, latest = runs.learn(
            window, at, expected, next_base, from_offset, self._table, self.slots, self.entries, self.entries_max,
            self._key0, self._key1,
        )  # fmt: skip
        self.latest_offset = max(self.latest_offset, latest)
        return at, expected

    def sift(
        self, window: Bytes, at: int, expected: int, next_base: int, writer: CleanedWriter, keep: bytearray,
        lasts: "array[int]",
    ) -> tuple[int, int, int, int, int]:  # fmt: skip
        """Write the records of a run of plain batches that stay: see `compaction_runs.sift`.

        Returns the run's end position in the window, the lowest offset that may follow, and the numbers of records
        read, kept, and without a key.
        """
        at, expected, writer.at, writer.placed, writer.timed, read, kept, keyless = runs.sift(
            window, at, expected, next_base, self.latest_offset, self._table, self.slots, self._key0, self._key1, keep,
            lasts, writer.state, writer.places, writer.placed, writer.times, writer.timed, writer.written, writer.out,
            writer.at,
        )  # fmt: skip
        return at, expected, read, kept, keyless

    def put(self, key: bytes, offset: int) -> bool:
        """Add one key. Returns True, and changes nothing, when the map has no room."""
        added = kernel.put(self._table, self.slots, key, offset, self.is_full, self._key0, self._key1)
        if added < 0:
            return True
        self.entries += added
        self.latest_offset = max(self.latest_offset, offset)
        return False

    def newest(self, key: bytes) -> int:
        """The newest offset of a key; -1 for an unknown key."""
        return kernel.get(self._table, self.slots, key, self._key0, self._key1)

    def mark(
        self, records: Bytes, start: int, end: int, header: BatchHeader, *, drop_tombstones: bool, keep: bytearray
    ) -> Marked:
        """Set `keep[i]` to 1 if record i of a batch stays, else to 0. Raises CorruptMessage.

        `records[start:end]` has the batch's records, decompressed.
        """
        marked = kernel.mark(
            records, start, end, header.record_count, header.base_offset, self.latest_offset, drop_tombstones,
            self._table, self.slots, self._key0, self._key1, keep,
        )  # fmt: skip
        if marked[0] == kernel.BROKEN:
            raise CorruptMessage(f"the batch at offset {header.base_offset} does not hold the records that it counts")
        return Marked(*marked)
