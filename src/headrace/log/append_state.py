# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""What an append reads and moves of a log, and the append of batches with which nothing is special.

    LogEnd          the base of `PartitionLog`:    both ends, the active segment
      SegmentEnd    the base of `Segment`:         the active one's rules for a roll
        FileEnd     the base of `FileRecords`:     the size, and the room behind it
        IndexSteps  the base of `SegmentIndexes`:  bytes since the last entry, the largest timestamp

The derived classes have the rules. `LogEnd.append_plain` does what `appending.append` does, for the batch for which
that is only arithmetic and one write. It changes nothing where anything else is to be done: a roll, a new producer, a
repetition, a new leader epoch, a file that is not on a real disk, a failed write. `appending.append` is then called
with the same batch. With `LateWrites`, batches of many appends are one write for each log. `LogEnd.append_run` is the
same for a follower: it checks a run of such batches, and writes all of them at once. Compiled, so that the fields are C
integers; it also runs uncompiled.
"""

from __future__ import annotations

import os
from array import array
from contextlib import suppress
from typing import TYPE_CHECKING, Any

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if cython.compiled:
    from cython.cimports.cpython.array import resize_smart
    from cython.cimports.headrace.log.late_writes import write_pieces, write_with_zeros
    from cython.cimports.headrace.records.codecs.crc32c_words import (
        crc32c_has_instruction,
        crc32c_prepare,
        crc32c_words,
    )
    from cython.cimports.libc.string import memcpy
    from cython.cimports.posix.unistd import pwrite
else:
    from headrace.octets import int16_at, int32_at, int64_at, put32, put64, uint32_at

from headrace.limits import LATE_BATCHES_MAX, LATE_BYTES_MAX, ROOM_BYTES
from headrace.log.segment.tail_cache import BATCHES_MAX, TailCache
from headrace.records.codecs.crc import crc32c

if TYPE_CHECKING:
    from headrace.config import TopicConfig
    from headrace.log.segment.index_columns import IndexColumns

NOT_APPENDED = -1
"""The result of `append_plain` when nothing was done."""

_ONE, _INT32_MAX = 1, 0x7FFFFFFF  # C integers of 64 bits
_NOT_APPENDED, _BATCHES_KEPT, _HELD_BYTES_MAX = -1, 5, 65536
_REMEMBERED_MAX, _ROOM_BYTES = BATCHES_MAX, ROOM_BYTES
_LATE_BYTES_MAX, _LATE_BATCHES_MAX, _LATE_LOGS_MAX = LATE_BYTES_MAX, LATE_BATCHES_MAX, 60  # a bit for each log
_HEADER_BYTES, _LOG_OVERHEAD, _CHECKED_FROM, _MAGIC, _SPECIAL_BITS = 61, 12, 21, 2, 0x30


def _has_instruction() -> bool:
    """Whether the processor computes CRC-32C, and there is a compiled form to have it do so."""
    if cython.compiled:
        crc32c_prepare()
        return bool(crc32c_has_instruction())
    return False


_BY_INSTRUCTION = _has_instruction()


class FileEnd:
    """The end of a log file."""

    __slots__ = ("_file", "has_room", "plain_fd", "room_end", "size")

    size: int
    """The number of bytes of whole batches."""
    room_end: int
    """Where the next room is due: a write that ends behind it makes room. See `zeros_behind`."""
    has_room: bool
    """Whether room is known to pay for the file. If not, `finds_room` tells."""
    plain_fd: int
    """The descriptor, if a write to the open file is no more than a write to this descriptor, else -1."""
    _file: Any
    """The file, if it is open."""

    def append(self, batches: bytes) -> int:
        """Write at the end, and return the position in bytes. Raises OSError, and then changes nothing."""
        raise NotImplementedError

    def trim(self) -> bool:
        """Cut the file behind the last batch. Returns whether there was something to cut. Raises OSError."""
        raise NotImplementedError

    def finds_room(self) -> bool:
        """Find out whether room pays for the file, and note it: `has_room` if it does, else a `room_end` that no write
        reaches."""
        raise NotImplementedError

    def note_room(self, end: int, zeros: int, made: int) -> None:
        """Note that `made` of so many zeros were written behind `end`. Cut them if the disk had no space for all."""
        raise NotImplementedError


class IndexSteps:
    """The progress towards the next index entry."""

    __slots__ = (
        "_interval_bytes", "_knows_largest", "_largest_ms", "_loaded", "_offset_of_largest", "is_full",
        "unindexed_bytes",
    )  # fmt: skip

    unindexed_bytes: int
    """The number of bytes behind the batch of the last entry."""
    is_full: bool
    """Whether an index has no room for another entry, so that the segment has to roll."""
    _interval_bytes: int
    _knows_largest: bool
    """Whether the next two are known: the segment's largest timestamp, and the last offset of its batch."""
    _largest_ms: int
    _offset_of_largest: int
    _loaded: Any

    def put_entries(self, last_offset: int, position: int) -> None:
        """Add an entry for the batch that ends with `last_offset` and begins at `position` to both indexes, which are
        loaded, as the largest timestamp is. Compiled, for compiled modules only."""
        loaded = self._loaded
        offsets, times = _columns(loaded, 0), _columns(loaded, 1)
        is_due = offsets.put_entry(last_offset - offsets.base_offset, position)
        if self._largest_ms >= 0 and times.put_entry(self._largest_ms, self._offset_of_largest - times.base_offset):
            is_due = True
        self.unindexed_bytes = 0
        self.is_full = len(offsets.keys) >= offsets.entries_max or len(times.keys) >= times.entries_max - 1
        if is_due:
            self._write_waiting()

    def add_entries(self, last_offset: int, position: int) -> None:
        """See `put_entries`."""
        self.put_entries(last_offset, position)

    def _write_waiting(self) -> None:
        raise NotImplementedError

    def cut(self, offset: int) -> None:
        """Drop the entries at or above `offset`, after the file's size was set."""
        raise NotImplementedError


class SegmentEnd:
    """The end of a segment."""

    __slots__ = ("_first_timestamp_ms", "base_offset", "bytes_max", "created_ms", "indexes", "records", "roll_after_ms")

    base_offset: int
    bytes_max: int
    """`segment.bytes`."""
    created_ms: int
    roll_after_ms: int
    _first_timestamp_ms: int | None
    records: FileEnd
    indexes: IndexSteps


class SegmentsEnd:
    """The end of a list of segments."""

    __slots__ = ("recent",)

    recent: TailCache
    """The positions of the newest batches of the active segment."""


class EpochsEnd:
    """The end of a log's leader epochs."""

    __slots__ = ("latest",)

    latest: int


class ProducerEnd:
    """The end of what one producer wrote. See `ProducerEntry`."""

    __slots__ = ("batches", "epoch", "open_since", "seen_ms")

    epoch: int
    seen_ms: int
    open_since: int
    batches: list[Any]


class ProducersEnd:
    """The producers of a log, up to an offset (exclusive)."""

    __slots__ = ("end_offset", "entries", "transactions")

    end_offset: int
    entries: dict[int, Any]
    transactions: Any


class LogEnd:
    """The end of a partition's log."""

    __slots__ = (
        "active", "after_max_ms", "batch_bytes_max", "before_max_ms", "failure", "is_truncating", "keys_required",
        "leader_epochs", "log_end_offset", "log_start_offset", "may_be_throttled", "producers", "segments", "stamps",
        "stores_what_is_sent", "writes_at_once",
    )  # fmt: skip

    log_start_offset: int
    log_end_offset: int
    failure: str | None
    """Why the log refuses appends until it is opened again; None when it accepts them."""
    is_truncating: bool
    """Whether a truncation waits for the disk. The log refuses appends until it is done."""
    active: SegmentEnd
    """The segment that is written to."""

    producers: ProducersEnd
    leader_epochs: EpochsEnd
    segments: SegmentsEnd

    writes_at_once: bool
    """Whether no write is put off, because the last one that was put off failed: each batch gets its own answer until
    the disk takes one."""
    stamps: bool
    """Whether batches get the time of their append (`message.timestamp.type`)."""
    stores_what_is_sent: bool
    keys_required: bool
    batch_bytes_max: int
    before_max_ms: int
    after_max_ms: int
    may_be_throttled: bool
    """Whether the topic names replicas whose replication a quota throttles."""

    def set_rules(self, config: TopicConfig) -> None:
        """Keep what the topic's settings say about batches that are appended as they are sent."""
        self.stores_what_is_sent, self.keys_required = config.stores_what_is_sent, config.is_compacted
        self.stamps = config.message_timestamp_type == "LogAppendTime"
        self.batch_bytes_max = config.max_message_bytes
        self.before_max_ms, self.after_max_ms = config.before_max_ms, config.after_max_ms
        self.may_be_throttled = bool(config.leader_throttled_replicas or config.follower_throttled_replicas)

    def append_plain(
        self,
        buf: memoryview,
        start: int,
        end: int,
        leader_epoch: int,
        now_ms: int,
        record_count: int,
        max_timestamp_ms: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        late: LateWrites | None = None,
    ) -> int:
        """Append the batch `buf[start:end]` at the log's end.

        It is checked, has these fields, holds neither a marker nor records of a transaction, has as many records as
        offsets, and gets no time of the append. Writes the offset and the epoch into it, in place. Returns its base
        offset, or `NOT_APPENDED` with nothing done. With `late`, which has room, it is written later.
        """
        if self.active.records.plain_fd < 0 or self.failure is not None or self.is_truncating:
            return _NOT_APPENDED
        active, records, indexes = self.active, self.active.records, self.active.indexes
        base_offset, size, position = self.log_end_offset, end - start, records.size
        last_offset = base_offset + record_count - 1
        first = active._first_timestamp_ms
        if not position or first is None:
            return _NOT_APPENDED
        if indexes.is_full or not indexes._knows_largest or indexes._loaded is None:
            return _NOT_APPENDED
        first_ms = first
        waited_ms = max_timestamp_ms - first_ms if first_ms >= 0 else now_ms - active.created_ms
        if (
            last_offset - active.base_offset > _INT32_MAX
            or position + size > active.bytes_max
            or waited_ms > active.roll_after_ms
            or leader_epoch != self.leader_epochs.latest
        ):
            return _NOT_APPENDED
        producers, entry = self.producers, None
        if producer_id >= 0:
            entry = producers.entries.get(producer_id)
            if entry is None or not _follows(entry, producer_epoch, base_sequence):
                return _NOT_APPENDED
        batch = cython.address(buf[start]) if cython.compiled else memoryview(buf)[start:end]
        put64(batch, 0, base_offset)
        put32(batch, 12, leader_epoch)
        if late is not None:
            late.put_off(self, batch, size, entry)
        elif _write_at_end(records, batch, size) != size:
            return _NOT_APPENDED  # appending.append writes the whole batch again, and finds out why
        else:
            self.writes_at_once = False
        records.size = position + size
        self._note(base_offset, record_count, position, size, max_timestamp_ms)
        self.log_end_offset = last_offset + 1
        producers.end_offset = last_offset + 1
        if entry is not None:
            _keep(entry, base_sequence, record_count, last_offset, max_timestamp_ms, now_ms)
        return base_offset

    def append_run(self, buf: memoryview, start: int, end: int, bytes_max: int, now_ms: int) -> int:
        """Append whole batches from the beginning of `buf[start:end]` that follow the log's end, as a follower.

        It takes batches until they have `bytes_max`, up to the first one that `append_plain` would not take, or whose
        checksum is wrong. They are in one write. Returns the position behind the last one; `start` with nothing done.
        """
        active, records, indexes = self.active, self.active.records, self.active.indexes
        file_end, first = records.size, active._first_timestamp_ms
        if records.plain_fd < 0 or self.failure is not None or self.is_truncating or not file_end or first is None:
            return start
        if indexes.is_full or not indexes._knows_largest or indexes._loaded is None:
            return start
        first_ms, offset, latest = first, self.log_end_offset, self.leader_epochs.latest
        producers, left, taken = self.producers.entries, _ONE, 0  # there is room for one entry in both indexes
        expected: dict[int, int] | None = None  # the next sequence of each producer but the last one
        last_id, last_epoch, next_sequence = -_ONE, -_ONE, -_ONE
        run = cython.address(buf[0]) if cython.compiled else buf
        pos = start
        while end - pos > _HEADER_BYTES and pos - start < bytes_max:
            if taken == left:
                left = _entries_left(indexes._loaded)
                if taken >= left:
                    break
            size, count = int32_at(run, pos + 8) + _LOG_OVERHEAD, int32_at(run, pos + 57)
            if size <= _HEADER_BYTES or size > end - pos or run[pos + 16] != _MAGIC or run[pos + 22] & _SPECIAL_BITS:
                break
            if count <= 0 or int32_at(run, pos + 23) != count - 1:
                break
            if int64_at(run, pos) != offset or int32_at(run, pos + 12) != latest:
                break
            max_timestamp_ms = int64_at(run, pos + 35)
            waited_ms = max_timestamp_ms - first_ms if first_ms >= 0 else now_ms - active.created_ms
            if (
                offset + count - 1 - active.base_offset > _INT32_MAX
                or file_end + (pos - start) + size > active.bytes_max
                or waited_ms > active.roll_after_ms
            ):
                break
            producer_id = int64_at(run, pos + 43)
            if producer_id >= 0:
                epoch, sequence = int16_at(run, pos + 51), int32_at(run, pos + 53)
                if producer_id == last_id:
                    if epoch != last_epoch or sequence != next_sequence:
                        break
                else:
                    if last_id >= 0:
                        expected = expected or {}
                        expected[last_id] = next_sequence
                    following = None if expected is None else expected.get(producer_id)
                    if not _is_next(producers.get(producer_id), following, epoch, sequence):
                        break
                    last_id, last_epoch = producer_id, epoch
                next_sequence = sequence + count & _INT32_MAX
            if _crc(run, pos + _CHECKED_FROM, pos + size) != uint32_at(run, pos + 17):
                break
            pos += size
            offset += count
            taken += 1
        if pos == start:
            return start
        first_batch = cython.address(buf[start]) if cython.compiled else buf[start:pos]
        if _write_at_end(records, first_batch, pos - start) != pos - start:
            return start  # after a failed write, the general append finds out why
        records.size = file_end + (pos - start)
        at = start
        while at < pos:
            size, count = int32_at(run, at + 8) + _LOG_OVERHEAD, int32_at(run, at + 57)
            base_offset, max_timestamp_ms = int64_at(run, at), int64_at(run, at + 35)
            self._note(base_offset, count, file_end + (at - start), size, max_timestamp_ms)
            producer_id = int64_at(run, at + 43)
            if producer_id >= 0:
                last_offset = base_offset + count - 1
                _keep(producers[producer_id], int32_at(run, at + 53), count, last_offset, max_timestamp_ms, now_ms)
            at += size
        self.log_end_offset = offset
        self.producers.end_offset = offset
        return pos

    def _take_back(self, before: _Before) -> None:
        """End where the log ended before appends that the disk refused."""
        active = self.active
        active.records.size, self.log_end_offset = before.size, before.log_end_offset
        self.producers.end_offset = before.log_end_offset
        active.indexes.cut(before.log_end_offset)
        active.indexes._knows_largest = True
        active.indexes._largest_ms, active.indexes._offset_of_largest = before.largest_ms, before.offset_of_largest
        active.indexes.unindexed_bytes = before.unindexed_bytes
        self.forget_positions()
        self.writes_at_once = True
        with suppress(OSError):  # recovery must not take what was written of them for batches of the log
            active.records.trim()

    def forget_positions(self) -> None:
        """Forget where the newest batches are."""
        raise NotImplementedError

    def fail(self, reason: str) -> None:
        """Refuse appends with this reason until the log is opened again."""
        raise NotImplementedError

    def _note(self, base_offset: int, count: int, position: int, size: int, max_timestamp_ms: int) -> None:
        """Note a batch that was written at `position` in the indexes and among the newest ones."""
        indexes, last_offset = self.active.indexes, base_offset + count - 1
        if max_timestamp_ms > indexes._largest_ms:
            indexes._largest_ms, indexes._offset_of_largest = max_timestamp_ms, last_offset
        if indexes.unindexed_bytes > indexes._interval_bytes:
            indexes.put_entries(last_offset, position)
        indexes.unindexed_bytes += size
        _remember(self.segments.recent, base_offset, position)


class _Before:
    """What an append moves of a log, as it was before the first append that is not written yet."""

    __slots__ = ("largest_ms", "log", "log_end_offset", "offset_of_largest", "size", "unindexed_bytes")

    log: LogEnd | None
    log_end_offset: int
    size: int
    largest_ms: int
    offset_of_largest: int
    unindexed_bytes: int

    def note(self, log: LogEnd) -> None:
        """Note what the log is now."""
        indexes = log.active.indexes
        self.log, self.log_end_offset, self.size = log, log.log_end_offset, log.active.records.size
        self.largest_ms, self.offset_of_largest = indexes._largest_ms, indexes._offset_of_largest
        self.unindexed_bytes = indexes.unindexed_bytes


class RefusedAppends:
    """What the disk refused of one log, and was taken back."""

    __slots__ = ("batches", "end_offset", "error", "records", "size")

    def __init__(self, error: Exception, end_offset: int, batches: int, records: int, size: int) -> None:
        """`end_offset`: where the log ends again. `size`: of the batches, in bytes."""
        self.error, self.end_offset = error, end_offset
        self.batches, self.records, self.size = batches, records, size


class LateWrites:
    """Batches that are appended and not written yet, of several logs: each log's are one write.

    Whoever puts writes off calls `write` before anything else looks at the logs: within the same call of the event
    loop, and before a request that is not put off. A write that fails is made again as any other append's, by the
    file's own method, which finds out why, and tells who watches the disk. If that fails too, the appends are taken
    back, as if they had never been.
    """

    __slots__ = (
        "_arena", "_before", "_count", "_ends", "_filled", "_has_arena", "_kept", "_logs", "_slots", "_starts",
        "last_slot", "refused",
    )  # fmt: skip

    def __init__(self) -> None:
        self._has_arena = False  # many never put anything off
        self._before: list[_Before] = []  # of each log; its place is the log's slot. Kept for later logs
        self._logs = 0
        self._kept: list[tuple[int, Any, list[Any], int]] = []  # slot and producer, as it was before each batch
        self._filled = self._count = 0
        self.last_slot = 0
        """Of the log of the last batch."""
        self.refused: dict[int, RefusedAppends] = {}
        """By slot, the logs that the last `write` could not write."""

    def has_room(self, size: int, batches: int) -> bool:
        """Whether batches of this size in all can be put off."""
        return (
            self._filled + size <= _LATE_BYTES_MAX
            and self._count + batches <= _LATE_BATCHES_MAX
            and self._logs + batches <= _LATE_LOGS_MAX
        )

    def put_off(self, log: LogEnd, batch: memoryview, size: int, entry: Any) -> None:
        """Keep a batch, which `log` is about to append. `entry`: what is known of its producer."""
        if not self._has_arena:
            self._has_arena = True
            self._arena = memoryview(bytearray(_LATE_BYTES_MAX))
            self._starts = memoryview(array("q", bytes(8 * _LATE_BATCHES_MAX)))
            self._ends = memoryview(array("q", bytes(8 * _LATE_BATCHES_MAX)))
            self._slots = memoryview(array("q", bytes(8 * _LATE_BATCHES_MAX)))
        slot, filled, count = self._slot_of(log), self._filled, self._count
        if entry is not None:
            self._kept.append((slot, entry, list(entry.batches), entry.seen_ms))
        if cython.compiled:
            memcpy(cython.address(self._arena[filled]), batch, size)
        else:
            self._arena[filled : filled + size] = batch
        self._starts[count], self._ends[count], self._slots[count] = filled, filled + size, slot
        self._filled, self._count, self.last_slot = filled + size, count + 1, slot

    def _slot_of(self, log: LogEnd) -> int:
        slot, count = 0, self._logs
        while slot < count:
            before = self._before[slot]
            if before.log is log:
                return slot
            slot += 1
        if count == len(self._before):
            self._before.append(_Before())
        before = self._before[count]
        before.note(log)
        self._logs = count + 1
        return count

    def write(self) -> int:
        """Write all that was put off. Returns a bit for the slot of each log that could not be written, and has its old
        end again: see `refused`."""
        failed, slot, count = 0, 0, self._logs
        if self.refused:
            self.refused = {}
        try:
            while slot < count:
                if not self._write_one(slot) and not self._write_again(slot):
                    failed |= _ONE << slot
                slot += 1
        finally:  # or the next write would take back what was answered
            self._filled = self._count = self._logs = 0
            slot = 0
            while slot < count:
                before = self._before[slot]
                before.log = None
                slot += 1
            if self._kept:
                self._kept.clear()
        return failed

    def _write_one(self, slot: int) -> bool:
        before = self._before[slot]
        log = before.log
        assert log is not None
        records = log.active.records
        size, zeros = records.size - before.size, 0
        if records.size > records.room_end and size < _ROOM_BYTES:
            zeros = zeros_behind(records, records.size)
        if cython.compiled:
            written: int = write_pieces(
                records.plain_fd, cython.address(self._arena[0]), cython.address(self._starts[0]),
                cython.address(self._ends[0]), cython.address(self._slots[0]), self._count, slot, before.size, zeros,
            )  # fmt: skip
        else:
            mine = [number for number in range(self._count) if self._slots[number] == slot]
            pieces = b"".join([self._arena[self._starts[number] : self._ends[number]] for number in mine])
            written = _write_with_zeros(records.plain_fd, memoryview(pieces), size, before.size, zeros)
        if written > size:
            if written == size + zeros:
                records.room_end = before.size + written
            else:
                records.note_room(records.size, zeros, written - size)
        return written >= size

    def _write_again(self, slot: int) -> bool:
        """Make a write that failed again. If the disk refuses it, undo the appends to this log."""
        before = self._before[slot]
        log = before.log
        assert log is not None
        records = log.active.records
        mine = [number for number in range(self._count) if self._slots[number] == slot]
        size, count = records.size - before.size, log.log_end_offset - before.log_end_offset
        records.size = before.size  # where the file's own method writes; the log's end is not looked at meanwhile
        try:
            records.append(b"".join([bytes(self._arena[self._starts[n] : self._ends[n]]) for n in mine]))
            return True
        except Exception as error:  # of the disk, or of memory: in any case the records are not there
            refused = error.with_traceback(None)  # whose frames would keep the log
            self.refused[slot] = RefusedAppends(refused, before.log_end_offset, len(mine), count, size)
        try:
            self._take_back(slot)
        except Exception as error:  # what the log says of its end is not true: nothing may follow it
            log.fail(f"an append that the disk refused could not be taken back: {error!r}")
        return False

    def _take_back(self, slot: int) -> None:
        for of, entry, batches, seen_ms in reversed(self._kept):
            if of == slot:
                entry.batches[:], entry.seen_ms = batches, seen_ms
        before = self._before[slot]
        log = before.log
        assert log is not None
        log._take_back(before)


def _columns(loaded: Any, number: int) -> IndexColumns:
    """One of the two indexes. They are of a derived class, whose bases a check of the type would go through."""
    found: IndexColumns = cython.cast(IndexColumns, loaded[number]) if cython.compiled else loaded[number]
    return found


def _entries_left(loaded: Any) -> int:
    """How many entries the two indexes have room for."""
    offsets, times = _columns(loaded, 0), _columns(loaded, 1)
    of_offsets: int = offsets.entries_max - len(offsets.keys)
    of_times: int = times.entries_max - 1 - len(times.keys)
    return min(of_offsets, of_times)


def _keep(
    entry: Any, base_sequence: int, record_count: int, last_offset: int, max_timestamp_ms: int, now_ms: int
) -> None:
    """Note a batch of a producer that has no transaction open."""
    entry.seen_ms = now_ms
    batches = entry.batches
    kind = type(batches[0])
    if len(batches) == _BATCHES_KEPT:
        del batches[0]
    sequence = base_sequence + record_count - 1 & _INT32_MAX
    batches.append(tuple.__new__(kind, (sequence, last_offset, record_count - 1, max_timestamp_ms)))


def _is_next(entry: Any, expected: int | None, epoch: int, base_sequence: int) -> bool:
    """As `_follows`, where `expected` is the next sequence if earlier batches of the same run are counted."""
    if entry is None:
        return False
    if expected is None:
        return _follows(entry, epoch, base_sequence)
    is_next: bool = entry.epoch == epoch and base_sequence == expected
    return is_next


def _remember(recent: TailCache, base_offset: int, position: int) -> None:
    """See `TailCache.add`."""
    offsets: Any = recent.offsets
    positions: Any = recent.positions
    count = len(offsets)
    if not cython.compiled or not count or count >= _REMEMBERED_MAX:
        recent.add(base_offset, position)
        return
    resize_smart(offsets, count + 1)
    resize_smart(positions, count + 1)
    offsets.data.as_longlongs[count], positions.data.as_longlongs[count] = base_offset, position


def _follows(entry: Any, epoch: int, base_sequence: int) -> bool:
    """Whether a batch is the next one of a producer, which has no transaction open."""
    batches = entry.batches
    if not batches or entry.open_since >= 0 or entry.epoch != epoch:
        return False
    last = batches[len(batches) - 1][0]
    follows: bool = base_sequence == last + 1 & _INT32_MAX
    return follows


def _crc(buf: memoryview, start: int, end: int) -> int:
    if cython.compiled:
        crc: int = crc32c_words(buf + start, end - start, _BY_INSTRUCTION)  # type: ignore[operator]
        return crc
    return crc32c(buf[start:end])


def zeros_behind(records: FileEnd, end: int) -> int:
    """How many zeros a write that ends at `end`, behind `room_end`, takes along; none where room does not pay."""
    if not records.has_room and not records.finds_room():
        return 0
    zeros = (_ROOM_BYTES - end % _ROOM_BYTES) % _ROOM_BYTES  # C divides towards zero
    return zeros if end + zeros <= _INT32_MAX else 0  # Apache Kafka opens no larger file


def _write_at_end(records: FileEnd, data: memoryview, size: int) -> int:
    """Write behind the last batch, and make room if it is due. Returns as `_write`."""
    position = records.size
    if position + size > records.room_end and size < _ROOM_BYTES:
        zeros = zeros_behind(records, position + size)
        if zeros:
            written = _write_with_zeros(records.plain_fd, data, size, position, zeros)
            if written == size + zeros:
                records.room_end = position + written
            elif written > size:
                records.note_room(position + size, zeros, written - size)
            return min(written, size)
    return _write(records.plain_fd, data, size, position)


def _write_with_zeros(fd: int, data: memoryview, size: int, position: int, zeros: int) -> int:
    """The number of bytes that were written, with the zeros behind the data; negative after a failure."""
    if cython.compiled:
        written: int = write_with_zeros(fd, data, size, position, zeros)
        return written
    try:
        return os.pwritev(fd, [data, bytes(zeros)] if zeros else [data], position)
    except OSError:
        return -1


def _write(fd: int, data: memoryview, size: int, position: int) -> int:
    """The number of bytes that were written; less than all, or negative, after a failure."""
    if not cython.compiled:
        try:
            return os.pwrite(fd, data, position)
        except OSError:
            return -1
    if size <= _HELD_BYTES_MAX:  # releasing the interpreter's lock, and getting it back, would take as long
        written: int = pwrite(fd, data, size, position)
        return written
    with cython.nogil:
        written = pwrite(fd, data, size, position)
    return written  # noqa: RET504 - a value of C leaves the block, an object could not
