"""What happens when a log is opened.

    1. what an interrupted deletion or compaction left behind is cleared away, or finished
    2. the segments are listed; after a clean stop that is all, and no segment is read
    3. otherwise every segment that was not flushed (from the recovery point on) is read: batches are checked, the
       indexes and leader epochs are made again, and the log ends at the first bad byte
    4. the producers are loaded from the newest snapshot, and brought up to the log's end

What is below the recovery point was on the disk before the crash and is not read. Source: Kafka's LogLoader.
"""

import logging
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from headrace.config import TopicConfig
from headrace.errors import CorruptMessage
from headrace.log.aborted import note_aborted, replay
from headrace.log.epochs import LeaderEpochs
from headrace.log.files import Files
from headrace.log.leftovers import clear_leftovers
from headrace.log.names import LOG, SNAPSHOT, is_segment_file, offset_file, offset_of
from headrace.log.producer_snapshot import load_newest, offsets_among
from headrace.log.producer_state import Producers
from headrace.log.recovery_scan import CheckedScan, producer_batches
from headrace.log.segment import Segment
from headrace.log.time_index import TimestampOffset
from headrace.records.header import HEADER_BYTES, BatchHeader, read_header

logger = logging.getLogger(__name__)


OnRead = Callable[[int], None]


def ignore(_: int) -> None:
    """The `OnRead` of whoever does not want to know."""


class Recovered(NamedTuple):
    """What became of one segment."""

    cut_bytes: int
    """How much of its end was no whole batches."""
    producer_positions: "array[int]"
    """Where in it batches are that the producers depend on."""


class OpenedLog(NamedTuple):
    """What was found on the disk. `segments` has at least one, ascending."""

    was_clean: bool

    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    producers: Producers
    epochs: LeaderEpochs


class FoundLog(NamedTuple):
    """What a partition's directory holds, before anything of it is read."""

    was_clean: bool
    recovery_point: int
    flushed: list[Segment]
    """The segments that need no check; ascending."""
    unflushed: list[Segment]
    """Those that follow."""
    snapshots: list[int]

    @property
    def bytes_to_check(self) -> int:
        """How much of the log has to be read, batch by batch."""
        return sum(segment.size for segment in self.unflushed)


def find_log(
    files: Files, directory: Path, config: TopicConfig, *, recovery_point: int, was_clean: bool, now_ms: int
) -> FoundLog:
    """List a partition's directory, clearing away what was left behind in it. After a crash what is below the recovery
    point was on the disk: whole segments, never the last one. Raises OSError."""
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
    now_ms: int,
    on_read: OnRead = ignore,
) -> OpenedLog:
    """Open what `find_log` found in a partition's directory, repairing what a crash did to it.

    `on_read` is told how many more bytes were checked, and may raise whatever ends this. Raises OSError; CorruptMessage
    for damage below the recovery point that is in the way.
    """
    was_clean, recovery_point, flushed, unflushed, snapshots = found
    segments = flushed + unflushed
    epochs = LeaderEpochs(files, directory)
    if not epochs.entries:
        _epochs_from_batches(flushed, epochs)
    positions = _recover(segments, unflushed, epochs, on_read)
    log_end_offset = log_start_offset
    if segments:
        log_end_offset = _end_of(segments[-1], epochs)
        if log_end_offset < log_start_offset:
            logger.warning("%s ends at %d, before its start %d: emptied", directory, log_end_offset, log_start_offset)
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
    if was_clean and not snapshots:  # after a clean stop a log without any has no producers, and need not be read
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
    segments: list[Segment],
    snapshots: Sequence[int],
    end_offset: int,
    *,
    now_ms: int,
    positions: Mapping[int, Iterable[int]] = MappingProxyType({}),
) -> Producers:
    """The producers at `end_offset`: the newest snapshot up to it, and the batches that follow.

    `positions` of those that count, by the base offset of their segment, where they have been found already.
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
    first = next(segment.headers_from(from_offset), None)
    if first is not None:
        yield from producer_batches(segment.file, first[0], segment.size, from_offset, end_offset)


def _read_at(segment: Segment, positions: Iterable[int]) -> Iterator[tuple[int, BatchHeader]]:
    for position in positions:
        yield position, read_header(segment.file.read(HEADER_BYTES, position))


def note_batch(producers: Producers, segment: Segment, position: int, header: BatchHeader, now_ms: int) -> None:
    """Have the producers know a batch that the log holds already."""
    aborted = replay(producers, segment, position, header, now_ms)
    if aborted is not None:
        note_aborted(segment, aborted)


def _list_segments(files: Files, directory: Path, names: list[str], config: TopicConfig, now_ms: int) -> list[Segment]:
    return [
        Segment(files, directory, offset_of(name), config, size=files.file_size(directory / name), now_ms=now_ms)
        for name in names
        if is_segment_file(name, LOG)
    ]


def _recover(
    segments: list[Segment], unflushed: list[Segment], epochs: LeaderEpochs, on_read: OnRead
) -> dict[int, "array[int]"]:
    """Check the last segments of a log, which were not flushed; nothing is kept behind the first bad byte. Returns
    where in each, by its base offset, batches are that the producers depend on."""
    found = {}
    for number, segment in enumerate(unflushed):
        later = unflushed[number + 1 :]
        recovered = recover_segment(segment, epochs, later, on_read)
        found[segment.base_offset] = recovered.producer_positions
        if recovered.cut_bytes:
            logger.warning("%s: cut %d bytes that were not whole batches", segment.path(LOG), recovered.cut_bytes)
            del segments[len(segments) - len(later) :]
            break
    return found


def recover_segment(
    segment: Segment, epochs: LeaderEpochs, later: Sequence[Segment] = (), on_read: OnRead = ignore
) -> Recovered:
    """Make a segment end at its first bad byte, with fresh indexes.

    If bytes are cut off, the segments that come `later` are removed, the last one first, before this one is cut: a
    crash in between must not leave some of them behind a segment that looks whole.
    """
    segment.reset_indexes()
    size = segment.file.size()
    scan = CheckedScan(
        segment.file,
        size,
        segment.base_offset,
        interval_bytes=segment.config.index_interval_bytes,
        leader_epoch=epochs.latest,
    )
    for stretch in scan.run():
        segment.note_stretch(stretch.places, stretch.times)
        for epoch, start_offset in zip(stretch.epochs[0::2], stretch.epochs[1::2], strict=True):
            epochs.assign(epoch, start_offset)
        on_read(stretch.size_bytes)
    if later and scan.position < size:
        for each in reversed(later):
            logger.warning("%s: removed, it follows a damaged segment", each.path(LOG))
            _remove(each.files, each)
        segment.files.sync_directory(segment.directory)
    segment.finish_recovery(
        scan.position, TimestampOffset(scan.largest_timestamp_ms, scan.offset_of_largest), scan.unindexed_bytes
    )
    segment.txn_index.truncate_to(segment.files, scan.next_offset)
    return Recovered(size - scan.position, scan.producer_positions)


def _epochs_from_batches(segments: list[Segment], epochs: LeaderEpochs) -> None:
    """Make the leader epochs again, when their file is lost: every batch has its own."""
    for segment in segments:
        for _, header in segment.headers():
            if header.leader_epoch > epochs.latest:
                epochs.assign(header.leader_epoch, header.base_offset)


def _end_of(active: Segment, epochs: LeaderEpochs) -> int:
    """The offset after the last batch. Bytes behind it are cut: a clean stop leaves none."""
    try:
        last = active.last_entry()
    except CorruptMessage:
        recover_segment(active, epochs)
        last = active.last_entry()
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
    """Keep the snapshots of segments and the newest one; those past the log's end tell of what is no longer there."""
    known = [offset for offset in snapshots if offset <= log_end_offset]
    useful = {segment.base_offset for segment in segments} | set(known[-1:])
    return _keep_snapshots(files, directory, snapshots, [offset for offset in known if offset in useful])


def _keep_snapshots(files: Files, directory: Path, snapshots: list[int], kept: list[int]) -> list[int]:
    """Remove the others for good: one that came back after a crash would tell of producers that are not there."""
    for offset in snapshots:
        if offset not in kept:
            files.remove(directory / offset_file(offset, SNAPSHOT))
    if len(kept) < len(snapshots):
        files.sync_directory(directory)
    return kept
