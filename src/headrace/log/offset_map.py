"""The newest offset of each key in a part of a log, in memory that is bounded: 24 bytes a key.

    known = OffsetMap(bytes_max, load_factor, keys_expected)
    is_full = known.index(batch, header, from_offset)       in the order of the log, until it is full
    known.mark(records, start, end, header, …)              then: which records of a batch are the newest of their key

A map that is full knows the log up to `latest_offset` (inclusive) and nothing of what follows. Its keys are hashed
under a random key of its own; see `compaction_kernel`. Source: Kafka's SkimpyOffsetMap.
"""

import os
from array import array
from typing import NamedTuple

from headrace.errors import CorruptMessage
from headrace.log import compaction_kernel as kernel
from headrace.log import compaction_runs as runs
from headrace.log.compaction_writer import CleanedWriter
from headrace.records.compression import Bytes
from headrace.records.header import BatchHeader, records_of

SLOT_BYTES = 8 * kernel.FIELDS
_SLOTS_MIN = 16


class Marked(NamedTuple):
    """What `mark` found among a batch's records: how many stay, and what is to be known of these."""

    kept: int
    tombstones: int
    latest_delta: int
    """The largest timestamp, less the batch's base timestamp."""
    without_key: int
    """Of all records, those that had no key; they go."""


class OffsetMap:
    """Keys and the newest offset of each."""

    def __init__(self, bytes_max: int, load_factor: float, keys_expected: int) -> None:
        """A map for so many keys, if `bytes_max` allows them; one key at least."""
        slots_max = max(2, bytes_max // SLOT_BYTES)
        self.slots = min(slots_max, max(_SLOTS_MIN, int(keys_expected / load_factor) + 1))
        self.entries_max = min(self.slots - 1, max(1, int(self.slots * load_factor)))
        self.entries = 0
        self.latest_offset = -1
        """Up to where (inclusive) the log is known."""
        self._table = memoryview(bytearray(self.slots * SLOT_BYTES)).cast("Q")  # zeros that are no memory yet
        secret = os.urandom(16)
        self._key0, self._key1 = int.from_bytes(secret[:8], "little"), int.from_bytes(secret[8:], "little")

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another key."""
        return self.entries >= self.entries_max

    def index(self, batch: Bytes, header: BatchHeader, from_offset: int) -> bool:
        """Note every key of a batch of format 2, from `from_offset` on; True when there was no room for all of them.

        CorruptMessage when the batch does not decompress, or its records are none.
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
        """Take up a run of plain batches, as `compaction_runs` does; where it ends, and what may follow."""
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
        """Have a run of plain batches written, as far as they stay, as `compaction_runs` does; where it ends, what may
        follow, and of its records how many there were, stayed, and had no key."""
        at, expected, writer.at, writer.placed, writer.timed, read, kept, keyless = runs.sift(
            window, at, expected, next_base, self.latest_offset, self._table, self.slots, self._key0, self._key1, keep,
            lasts, writer.state, writer.places, writer.placed, writer.times, writer.timed, writer.written, writer.out,
            writer.at,
        )  # fmt: skip
        return at, expected, read, kept, keyless

    def put(self, key: bytes, offset: int) -> bool:
        """Note one key; True, and nothing done, when there was no room."""
        added = kernel.put(self._table, self.slots, key, offset, self.is_full, self._key0, self._key1)
        if added < 0:
            return True
        self.entries += added
        self.latest_offset = max(self.latest_offset, offset)
        return False

    def newest(self, key: bytes) -> int:
        """The newest offset of a key; -1 for one that is not known."""
        return kernel.get(self._table, self.slots, key, self._key0, self._key1)

    def mark(
        self, records: Bytes, start: int, end: int, header: BatchHeader, *, drop_tombstones: bool, keep: bytearray
    ) -> Marked:
        """Set `keep[i]` to whether record i of a batch, decompressed in [start, end), stays. Raises CorruptMessage."""
        marked = kernel.mark(
            records, start, end, header.record_count, header.base_offset, self.latest_offset, drop_tombstones,
            self._table, self.slots, self._key0, self._key1, keep,
        )  # fmt: skip
        if marked[0] == kernel.BROKEN:
            raise CorruptMessage(f"the batch at offset {header.base_offset} does not hold the records that it counts")
        return Marked(*marked)
