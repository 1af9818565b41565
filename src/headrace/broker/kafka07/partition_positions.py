"""The positions of one partition: restores or builds the index of its log, and keeps it up with the log.

    anchor in the metadata store, file beside the log ─▶ index ◀─ scans of records below the high watermark, on a thread

    no anchor                       the leader makes one: the log's first segment begins at position 0
    a file of its generation        the index is what the file has
    none, or another                the log is scanned from its first segment up to the anchor, which says where that is
    an anchor that the log has not  the leader begins a new generation; readers find other positions than before

One coroutine at a time changes the index. What a truncation took away while a thread read it is scanned again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from headrace.broker.kafka07.anchors import Anchor, StoredAnchor, read_anchor, write_anchor
from headrace.broker.partitions.partition import Partition
from headrace.errors import CorruptMessage, KafkaError, NotLeaderOrFollower, OffsetOutOfRange
from headrace.limits import POSITIONS_STEP_BYTES
from headrace.log.partition_log import PartitionLog
from headrace.log.positions.position_file import Pair, Unwritten, read_positions, write_positions
from headrace.log.positions.position_index import NOT_ANCHORED, PositionIndex
from headrace.log.positions.position_reads import EntryReader, measure
from headrace.log.segment_list import SegmentRange
from headrace.metastore.store import BadVersion, MetadataStore, NodeExists, NoNode
from headrace.types import NO_EPOCH

T = TypeVar("T")


class OnAThread(Protocol):
    """Runs blocking work on one of a few threads."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """The result of the work. Raises what it raises."""


class PartitionPositions:
    """The positions of one partition on this broker."""

    def __init__(self, partition: Partition, store: MetadataStore, on_a_thread: OnAThread) -> None:
        self.partition = partition
        self._log, self._store, self._on_a_thread = partition.log, store, on_a_thread
        self._lock = asyncio.Lock()
        self._stored: StoredAnchor | None = None
        self._epoch = NO_EPOCH  # the leader epoch in which the anchor was looked at
        self._log_start: Pair | None = None

    # Looking up

    def is_at_end(self, position: int) -> bool:
        """Whether it is known without IO that a position is that of the high watermark."""
        index = self._log.positions
        if index is None or self._epoch != self.partition.leader_epoch:
            return False
        return index.end == (self.partition.high_watermark, position)

    async def position_of(self, offset: int) -> int:
        """The position of an offset up to the high watermark. Raises as `read`."""
        index = await self._caught_up(max(offset, self.partition.high_watermark))
        return await self._position(index, offset)

    async def read(self, position: int, max_bytes: int) -> bytes:
        """Up to `max_bytes` of messages of magic 1 from a position on, below the high watermark.

        Raises OffsetOutOfRange for a position where no message begins; KafkaError; StoreError.
        """
        end_offset = self.partition.high_watermark
        index = await self._caught_up(end_offset)
        end = await self._position(index, end_offset)
        start = await self._start_position(index)
        if not start <= position <= end:
            raise OffsetOutOfRange(f"{self.partition.key} has positions {start} to {end}, not {position}")
        if position == end or not max_bytes:
            return b""
        try:
            near = index.before_position(position)
        except ValueError:  # retention was faster
            raise OffsetOutOfRange(f"{self.partition.key} begins after position {position}") from None
        reader = EntryReader(near, position, end_offset, max_bytes)
        truncations = self._log.truncations
        while not reader.is_done:
            range_ = self._range(reader.reached.offset)
            if not range_.size:
                break
            await self._on_a_thread(lambda found=range_: reader.read(found))  # type: ignore[misc]
            if self._log.truncations != truncations:
                raise NotLeaderOrFollower(f"{self.partition.key} was truncated while it was read")
        if reader.border is not None:
            index.remember(reader.border)
        return bytes(reader.data)

    async def _start_position(self, index: PositionIndex) -> int:
        offset = self._log.log_start_offset
        if self._log_start is None or self._log_start.offset != offset:
            self._log_start = Pair(offset, await self._position(index, offset))
        return self._log_start.position

    async def _position(self, index: PositionIndex, offset: int) -> int:
        try:
            pair = index.before_offset(offset)
        except ValueError:
            raise OffsetOutOfRange(f"{self.partition.key} begins after offset {offset}") from None
        while pair.offset < offset:
            range_ = self._range(pair.offset)
            if not range_.size:
                break
            found = await self._on_a_thread(lambda r=range_, p=pair: measure(r, p, offset))  # type: ignore[misc]
            if not found:
                raise CorruptMessage(f"{self.partition.key} cannot be read at offset {pair.offset}")
            pair = found[-1]
        return pair.position

    def _range(self, offset: int) -> SegmentRange:
        """Batches from that of `offset` on, also before the log start offset while their segment is there."""
        end_offset = self._log.log_end_offset
        return self._log.segments.read(
            offset, POSITIONS_STEP_BYTES, end_offset=end_offset, at_least_one=True, log_end_offset=end_offset
        )

    # Keeping up

    async def keep(self) -> None:
        """Bring the index up to the high watermark, write it, and move the anchor on with the log's segments.

        Raises KafkaError, StoreError, CorruptNode, OSError.
        """
        log = self._log
        index = await self._caught_up(self.partition.high_watermark)
        index.start_at(log.segments[0].base_offset)
        if not log.is_truncating and log.failure is None:
            await self._write_entries(index)
        async with self._lock:
            end = index.end
            if end.offset <= self.partition.high_watermark and (
                index.anchored_to < min(log.active.base_offset, end.offset) or index.anchored_to > log.log_end_offset
            ):
                await self._move_anchor(index, end)

    async def _write_entries(self, index: PositionIndex) -> None:
        log, truncations = self._log, self._log.truncations
        entries = index.unwritten(log.flusher.recovery_point)
        if entries is None:
            return
        is_there = await self._on_a_thread(lambda: _written(log, entries, truncations))
        if log.truncations != truncations or log.positions is not index:
            return  # the next round writes what is left
        if is_there:
            index.written(entries)
        else:
            index.relocated()

    async def _move_anchor(self, index: PositionIndex, end: Pair) -> None:
        if self.partition.is_leader and self._stored is not None and self._stored.anchor is not None:
            anchor = self._stored.anchor.moved(*end, self._epoch_before(end.offset))
            try:
                await self._write(anchor)
            except (BadVersion, NodeExists, NoNode):
                self._epoch = NO_EPOCH  # look at it again
            else:
                index.anchored_to = anchor.offset
        else:
            await self._look_at_anchor()

    async def _caught_up(self, end_offset: int) -> PositionIndex:
        async with self._lock:
            while True:
                if self._epoch != self.partition.leader_epoch:
                    await self._look_at_anchor()
                index = self._log.positions
                if index is None or index.end.offset < self._log.segments[0].base_offset:
                    index = await self._restored()
                    if index is None:
                        continue
                    self._log.positions = index
                    self._log_start = None
                if index.end.offset >= end_offset:
                    return index
                await self._step(index, end_offset)

    async def _step(self, index: PositionIndex, end_offset: int) -> bool:
        """Scan on; False if the log was truncated meanwhile, and what was scanned may be gone."""
        log, start, truncations = self._log, index.end, self._log.truncations
        range_ = self._range(start.offset)
        pairs = await self._on_a_thread(lambda: measure(range_, start, end_offset))
        if log.truncations != truncations:
            return False
        if not range_.size:  # offsets without records, as behind a truncation inside a batch
            pairs = [Pair(end_offset, start.position)]
        if not pairs:
            raise CorruptMessage(f"{self.partition.key} cannot be read at offset {start.offset}")
        if range_.position == 0:
            index.settle()
        for pair in pairs:
            index.add(pair)
        return True

    # The anchor

    async def _look_at_anchor(self) -> None:
        """Read the anchor. An index of another generation is forgotten."""
        epoch, log = self.partition.leader_epoch, self._log
        self._stored = await read_anchor(self._store, self.partition.key, log.topic_id or b"")
        anchor = None if self._stored is None else self._stored.anchor
        index = log.positions
        if index is not None:
            if anchor is None or anchor.generation != index.generation:
                log.positions = None
            else:
                self._anchored(index, anchor, 0)
        self._epoch = epoch

    async def _write(self, anchor: Anchor) -> None:
        version = None if self._stored is None else self._stored.version
        topic_id = self._log.topic_id or b""
        version = await write_anchor(self._store, self.partition.key, topic_id, anchor, version)
        self._stored = StoredAnchor(anchor, version)

    async def _decide(self, anchor: Anchor) -> Anchor:
        """Store the anchor of a new generation. Raises NotLeaderOrFollower unless this broker leads."""
        if not self.partition.is_leader:
            raise NotLeaderOrFollower(f"the leader of {self.partition.key} has not begun its positions yet")
        await self._write(anchor)
        return anchor

    async def _restored(self) -> PositionIndex | None:
        """The index from the file or from the anchor; None if that has to be tried again."""
        log, truncations = self._log, self._log.truncations
        if log.cleaned_to:
            raise KafkaError(f"{self.partition.key} was compacted: its records have no positions of Kafka 0.7")
        first = log.segments[0].base_offset
        anchor = None if self._stored is None else self._stored.anchor
        try:
            if anchor is None:
                anchor = await self._decide(Anchor.beginning(0, first, 0))
            stored = await self._on_a_thread(lambda: read_positions(log.files, log.directory))
            if stored is not None and stored.generation == anchor.generation:
                ends = stored.offsets[0], stored.offsets[-1]
                if ends[0] <= first <= ends[1] <= log.log_end_offset:
                    return self._anchored(PositionIndex.restored(stored), anchor, truncations)
            known = self._known(anchor, first)
            if known is not None:
                return await self._built(anchor, known, first, truncations)
            anchor = await self._decide(Anchor.beginning(anchor.generation + 1, first, anchor.position))
        except (BadVersion, NodeExists, NoNode):  # another broker was faster
            await self._look_at_anchor()
            return None
        return self._anchored(PositionIndex(Pair(first, anchor.position), anchor.generation), anchor, truncations)

    def _known(self, anchor: Anchor, first: int) -> Pair | None:
        """The anchored pair, if the log has it, or else the first one of the generation; None without any."""
        log_end = self._log.log_end_offset
        is_within = first <= anchor.offset <= log_end
        epoch = self._epoch_before(anchor.offset)
        if is_within and epoch == anchor.leader_epoch:
            return Pair(anchor.offset, anchor.position)
        if first <= anchor.first_offset <= log_end:
            return Pair(anchor.first_offset, anchor.first_position)
        if is_within and NO_EPOCH in (epoch, anchor.leader_epoch):
            return Pair(anchor.offset, anchor.position)
        return None

    def _epoch_before(self, offset: int) -> int:
        """The leader epoch of the record before an offset; -1 if it is not known, as before format 2."""
        return self._log.leader_epochs.epoch_for(offset - 1)

    async def _built(self, anchor: Anchor, known: Pair, first: int, truncations: int) -> PositionIndex | None:
        """The index from the log's first segment on, moved so that it agrees with the known pair."""
        index = PositionIndex(Pair(first, 0), anchor.generation)
        while index.end.offset < known.offset:
            if not await self._step(index, known.offset):
                return None
        await self._on_a_thread(lambda: index.anchor(known))
        return self._anchored(index, anchor, truncations)

    def _anchored(self, index: PositionIndex, anchor: Anchor, truncations: int) -> PositionIndex | None:
        known = self._known(anchor, index.start.offset)
        index.anchored_to = anchor.offset if known == (anchor.offset, anchor.position) else NOT_ANCHORED
        return index if self._log.truncations == truncations else None


def _written(log: PartitionLog, entries: Unwritten, truncations: int) -> bool:
    """Write entries unless the log was truncated, moved or deleted meanwhile; False if they are not in the file."""
    with log.positions_lock:
        if log.truncations != truncations or log.failure is not None:
            return False
        return write_positions(log.files, log.directory, entries)
