"""Recovery: opens one log, and after a crash checks and truncates it.

    1. removes or completes what an interrupted deletion or compaction left
    2. lists the segments; after a clean stop no segment is read
    3. otherwise reads every segment from the recovery point on: checks batches, rebuilds indexes and leader epochs, and
       truncates the log at the first bad byte
    4. loads the producer state from the newest snapshot, and replays the batches after it

The log below the recovery point was flushed before the crash, and is not read. Above it, a segment that ends before the
next one begins has lost its tail, even if it ends with a complete batch, because the disk may write the two in any
order. The log is truncated there. Otherwise only three things make a segment end early: the cleaner, which stays below
the recovery point in the checkpoint; a repair, which writes a recovery point; and a leader's log with a gap too large
for one segment. Source: Kafka's LogLoader, which treats such a hole as a gap of compaction.
"""

import logging
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from headrace.config import TopicConfig
from headrace.errors import CorruptMessage
from headrace.log.filenames import LOG, SNAPSHOT, is_segment_file, offset_file, offset_of
from headrace.log.files import Files
from headrace.log.leader_epochs import LeaderEpochs
from headrace.log.producers.producer_snapshot import load_newest, offsets_among
from headrace.log.producers.producer_state import Producers
from headrace.log.recovery.leftovers import clear_leftovers
from headrace.log.recovery.recovery_scan import CheckedScan, producer_batches
from headrace.log.segment.aborted_transactions import note_aborted, replay
from headrace.log.segment.preallocation import is_room, is_zeros
from headrace.log.segment.segment import GAP_IN_SEGMENT_MAX, Segment
from headrace.log.segment.time_index import TimestampOffset
from headrace.records.format2.header import HEADER_BYTES, BatchHeader, read_header

logger = logging.getLogger(__name__)


OnRead = Callable[[int], None]


def ignore(_: int) -> None:
    """An `OnRead` that does nothing."""


class Recovered(NamedTuple):
    """The result of the recovery of one segment."""

    cut_bytes: int
    """The number of bytes cut off at its end, which were no whole batches."""
    is_room: bool
    """Whether these were preallocated space."""
    producer_positions: "array[int]"
    """The positions of the batches that the producer state depends on."""
    is_last: bool
    """Whether the log ends with this segment. The segments behind it were removed."""


class OpenedLog(NamedTuple):
    """The state of a log that was opened. `segments` has at least one segment, and is ascending."""

    was_clean: bool

    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    producers: Producers
    epochs: LeaderEpochs


class FoundLog(NamedTuple):
    """The files in a partition's directory, before any segment is read."""

    was_clean: bool
    recovery_point: int
    flushed: list[Segment]
    """The segments that need no check, ascending."""
    unflushed: list[Segment]
    """The segments after them, which recovery checks."""
    snapshots: list[int]
    """The offsets of the producer snapshots, ascending."""

    @property
    def bytes_to_check(self) -> int:
        """The number of bytes that recovery has to check."""
        return sum(segment.size for segment in self.unflushed)


def find_log(
    files: Files, directory: Path, config: TopicConfig, *, recovery_point: int, was_clean: bool, now_ms: int
) -> FoundLog:
    """Clear the leftovers in a partition's directory, and list its files. Raises OSError.

    After a crash the segments that end at or below the recovery point are on the disk, and need no check. The last
    segment always needs one.
    """
    names = clear_leftovers(files, directory)
    segments = _list_segments(files, directory, names, config, now_ms)
    flushed = len(segments)
    if not was_clean:
        flushed = sum(next_one.base_offset <= recovery_point for next_one in segments[1:])
    return FoundLog(was_clean, recovery_point, segments[:flushed], segments[flushed:], offsets_among(names))


def open_log(
    files: Files,
    directory: Path,
    config: TopicConfig,
    found: FoundLog,
    *,
    log_start_offset: int,
    cleaned_to: int = 0,
    now_ms: int,
    on_read: OnRead = ignore,
) -> OpenedLog:
    """Open the log that `find_log` found in a partition's directory, and recover it after a crash.

    The log is cleaned up to `cleaned_to` (exclusive). Segments below it may end before the next one begins. `on_read`
    gets the number of bytes after each step of the check, and may raise an error to stop. Raises OSError, and
    CorruptMessage for damage below the recovery point that prevents the opening.
    """
    was_clean, recovery_point, flushed, unflushed, snapshots = found
    segments = flushed + unflushed
    epochs = LeaderEpochs(files, directory)
    if not epochs.entries:
        _epochs_from_batches(flushed, epochs)
    positions = _recover(segments, unflushed, epochs, cleaned_to, on_read)
    log_end_offset = log_start_offset
    if segments:
        log_end_offset = _end_of(segments[-1], epochs)
        if log_end_offset < log_start_offset:
            logger.warning(
                "%s: the log ends at %d, before its log start offset %d; it is emptied",
                directory,
                log_end_offset,
                log_start_offset,
            )
            for segment in segments:
                _remove(files, segment)
            segments = []
            snapshots = _keep_snapshots(files, directory, snapshots, [])
    if not segments:
        segments = [Segment.create(files, directory, log_start_offset, config, now_ms=now_ms)]
        log_end_offset = log_start_offset
        epochs.clear()
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    epochs.truncate_from_end(log_end_offset)
    epochs.truncate_from_start(log_start_offset)
    snapshots = _keep_useful_snapshots(files, directory, snapshots, segments, log_end_offset)
    if was_clean and not snapshots:  # after a clean stop, a log without snapshots has no producers
        producers = Producers(log_end_offset)
    else:
        producers = load_producers(
            files, directory, segments, snapshots, log_end_offset, now_ms=now_ms, positions=positions
        )
    recovery_point = log_end_offset if was_clean else min(recovery_point, log_end_offset)
    return OpenedLog(was_clean, segments, log_start_offset, log_end_offset, recovery_point, producers, epochs)


def load_producers(
    files: Files,
    directory: Path,
    segments: Sequence[Segment],
    snapshots: Sequence[int],
    end_offset: int,
    *,
    now_ms: int,
    positions: Mapping[int, Iterable[int]] = MappingProxyType({}),
) -> Producers:
    """The producer state at `end_offset` (exclusive): the newest snapshot at or below it, and the batches after that.

    `positions` has the positions of the batches that matter, by the base offset of their segment, for the segments that
    recovery has read. Raises OSError, CorruptMessage.
    """
    producers = load_newest(files, directory, snapshots, to_offset=end_offset)
    from_offset = max(producers.end_offset, segments[0].base_offset)
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base_offset <= from_offset:
            continue
        if segment.base_offset >= end_offset:
            break
        known = positions.get(segment.base_offset)
        found = _batches_of_producers(segment, from_offset, end_offset) if known is None else _read_at(segment, known)
        for position, header in found:
            if from_offset <= header.base_offset < end_offset:
                note_batch(producers, segment, position, header, now_ms)
    producers.end_offset = end_offset
    return producers


def _batches_of_producers(segment: Segment, from_offset: int, end_offset: int) -> Iterator[tuple[int, BatchHeader]]:
    first = next(segment.indexes.headers_from(from_offset), None)
    if first is not None:
        yield from producer_batches(segment.file, first[0], segment.size, from_offset, end_offset)


def _read_at(segment: Segment, positions: Iterable[int]) -> Iterator[tuple[int, BatchHeader]]:
    for position in positions:
        yield position, read_header(segment.file.read(HEADER_BYTES, position))


def note_batch(producers: Producers, segment: Segment, position: int, header: BatchHeader, now_ms: int) -> None:
    """Add a batch that the log has already to the producer state, and index the transaction that it aborts.

    Raises OSError, CorruptMessage.
    """
    replay(producers, segment, position, header, now_ms, lambda aborted: note_aborted(segment, aborted))


def _list_segments(files: Files, directory: Path, names: list[str], config: TopicConfig, now_ms: int) -> list[Segment]:
    return [
        Segment(files, directory, offset_of(name), config, size=files.file_size(directory / name), now_ms=now_ms)
        for name in names
        if is_segment_file(name, LOG)
    ]


def _recover(
    segments: list[Segment], unflushed: list[Segment], epochs: LeaderEpochs, cleaned_to: int, on_read: OnRead
) -> dict[int, "array[int]"]:
    """Check the unflushed segments, and truncate the log at the first bad byte or behind a lost tail.

    Returns the positions of the batches that the producer state depends on, by the base offset of their segment.
    """
    found = {}
    for number, segment in enumerate(unflushed):
        later = unflushed[number + 1 :]
        recovered = recover_segment(segment, epochs, later, on_read, cleaned_to=cleaned_to)
        found[segment.base_offset] = recovered.producer_positions
        if recovered.cut_bytes and not recovered.is_room:
            logger.warning(
                "%s: cut off %d bytes at the end that were not complete, valid batches",
                segment.path(LOG),
                recovered.cut_bytes,
            )
        if recovered.is_last:
            del segments[len(segments) - len(later) :]
            break
    return found


def recover_segment(
    segment: Segment,
    epochs: LeaderEpochs,
    later: Sequence[Segment] = (),
    on_read: OnRead = ignore,
    *,
    cleaned_to: int = 0,
) -> Recovered:
    """Truncate a segment at its first bad byte, and rebuild its indexes. Raises OSError.

    If bytes are cut off, or records are missing before the next segment, the `later` segments are removed, the last one
    first, before this one is cut. A crash in between must not leave some of them behind a segment that looks complete.
    Zeros behind the last record before the next segment are preallocated space, which a roll had not cut on the disk.
    """
    segment.indexes.reset()
    size = segment.file.size()
    scan = CheckedScan(
        segment.file,
        size,
        segment.base_offset,
        interval_bytes=segment.config.index_interval_bytes,
        leader_epoch=epochs.latest,
    )
    for stretch in scan.run():
        segment.indexes.note_stretch(stretch.places, stretch.times)
        for epoch, start_offset in zip(stretch.epochs[0::2], stretch.epochs[1::2], strict=True):
            epochs.assign(epoch, start_offset)
        on_read(stretch.size_bytes)
    is_last = scan.position < size
    has_room = is_last and is_room(segment.files, segment.path(LOG), segment.file, scan.position)
    if is_last and later and scan.next_offset == later[0].base_offset:
        is_last = not is_zeros(segment.file, scan.position, size)
    if later and not is_last and cleaned_to < later[0].base_offset:
        missing = later[0].base_offset - scan.next_offset
        is_last = 0 < missing <= GAP_IN_SEGMENT_MAX
        if is_last:
            logger.warning(
                "%s: the segment ends at offset %d, and %d records before the next segment are missing",
                segment.path(LOG),
                scan.next_offset,
                missing,
            )
    if later and is_last:
        for each in reversed(later):
            logger.warning("%s: the segment is removed, because it follows a damaged segment", each.path(LOG))
            _remove(each.files, each)
        segment.files.sync_directory(segment.directory)
    segment.finish_recovery(
        scan.position, TimestampOffset(scan.largest_timestamp_ms, scan.offset_of_largest), scan.unindexed_bytes
    )
    segment.txn_index.truncate_to(segment.files, scan.next_offset)
    return Recovered(size - scan.position, has_room, scan.producer_positions, is_last)


def _epochs_from_batches(segments: list[Segment], epochs: LeaderEpochs) -> None:
    """Rebuild the leader epochs from the batches, when their file is lost."""
    for segment in segments:
        for _, header in segment.headers():
            if header.leader_epoch > epochs.latest:
                epochs.assign(header.leader_epoch, header.base_offset)


def _end_of(active: Segment, epochs: LeaderEpochs) -> int:
    """The offset after the last batch. Cuts bytes behind it, which a clean stop does not leave."""
    try:
        last = active.indexes.last_entry()
    except CorruptMessage:
        recover_segment(active, epochs)
        last = active.indexes.last_entry()
    if last is None:
        if active.size:
            recover_segment(active, epochs)
        return active.base_offset
    position, header = last
    if position + header.size_bytes != active.size:
        recover_segment(active, epochs)
    return header.next_offset


def _remove(files: Files, segment: Segment) -> None:
    for path in segment.mark_deleted():
        files.remove(path)


def _keep_useful_snapshots(
    files: Files, directory: Path, snapshots: list[int], segments: list[Segment], log_end_offset: int
) -> list[int]:
    """Keep the snapshots at segments' base offsets and the newest one at or below the log end offset.

    A snapshot below the first segment is from before a truncation that removed all records.
    """
    known = [offset for offset in snapshots if segments[0].base_offset <= offset <= log_end_offset]
    useful = {segment.base_offset for segment in segments} | set(known[-1:])
    return _keep_snapshots(files, directory, snapshots, [offset for offset in known if offset in useful])


def _keep_snapshots(files: Files, directory: Path, snapshots: list[int], kept: list[int]) -> list[int]:
    """Remove the other snapshots and sync: one that came back after a crash would restore producers that are gone."""
    for offset in snapshots:
        if offset not in kept:
            files.remove(directory / offset_file(offset, SNAPSHOT))
    if len(kept) < len(snapshots):
        files.sync_directory(directory)
    return kept
