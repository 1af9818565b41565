"""What happens when a log is opened.

    1. what an interrupted deletion or compaction left behind is cleared away, or finished
    2. the segments are listed; after a clean stop that is all, and no segment is read
    3. otherwise every segment that was not flushed (from the recovery point on) is read: batches are checked, the
       indexes and leader epochs are made again, and the log ends at the first bad byte
    4. the producers are loaded from the newest snapshot, and brought up to the log's end

What is below the recovery point was on the disk before the crash and is not read. Source: Kafka's LogLoader.
"""

import logging
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
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
from headrace.log.scan import read_checked
from headrace.log.segment import Segment
from headrace.records.header import BatchHeader

logger = logging.getLogger(__name__)


class OpenedLog(NamedTuple):
    """What was found on the disk. `segments` has at least one, ascending."""

    was_clean: bool

    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    producers: Producers
    epochs: LeaderEpochs


def open_log(
    files: Files,
    directory: Path,
    config: TopicConfig,
    *,
    recovery_point: int,
    log_start_offset: int,
    was_clean: bool,
    now_ms: int,
) -> OpenedLog:
    """Read a partition's directory, repairing what a crash did to it.

    Raises OSError; CorruptMessage for damage below the recovery point that is in the way.
    """
    names = clear_leftovers(files, directory)
    segments = _list_segments(files, directory, names, config, now_ms)
    snapshots = offsets_among(names)
    epochs = LeaderEpochs(files, directory)
    if not epochs.entries:
        _epochs_from_batches(segments if was_clean else _flushed(segments, recovery_point), epochs)
    if not was_clean:
        segments = _recover(segments, recovery_point, epochs)
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
        producers = load_producers(files, directory, segments, snapshots, log_end_offset, now_ms=now_ms)
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
) -> Producers:
    """The producers at `end_offset`: the newest snapshot up to it, and the batches that follow."""
    producers = load_newest(files, directory, snapshots, to_offset=end_offset)
    from_offset = max(producers.end_offset, segments[0].base_offset)
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base_offset <= from_offset:
            continue
        if segment.base_offset >= end_offset:
            break
        for position, header in segment.headers_from(from_offset):
            if header.base_offset >= end_offset:
                break
            if header.producer_id >= 0 and header.base_offset >= from_offset:
                note_batch(producers, segment, position, header, now_ms)
    producers.end_offset = end_offset
    return producers


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


def _flushed(segments: list[Segment], recovery_point: int) -> list[Segment]:
    """The segments that were on the disk as a whole before the crash: never the last one."""
    return [segment for segment, next_one in pairwise(segments) if next_one.base_offset <= recovery_point]


def _recover(segments: list[Segment], recovery_point: int, epochs: LeaderEpochs) -> list[Segment]:
    """Check every segment that reaches past the recovery point; nothing is kept behind the first bad byte."""
    for number in range(len(_flushed(segments, recovery_point)), len(segments)):
        segment = segments[number]
        cut_bytes = recover_segment(segment, epochs, segments[number + 1 :])
        if cut_bytes:
            logger.warning("%s: cut %d bytes that were not whole batches", segment.path(LOG), cut_bytes)
            return segments[: number + 1]
    return segments


def recover_segment(segment: Segment, epochs: LeaderEpochs, later: Sequence[Segment] = ()) -> int:
    """Make a segment end at its first bad byte, with fresh indexes; returns the bytes that were cut off.

    If there are any, the segments that come `later` are removed, the last one first, before this one is cut: a crash
    in between must not leave some of them behind a segment that looks whole.
    """
    segment.reset_indexes()
    size = segment.file.size()
    good_bytes = 0
    end_offset = segment.base_offset
    for position, header in read_checked(segment.file, size, segment.base_offset):
        segment.note_scanned(position, header)
        if header.leader_epoch > epochs.latest:
            epochs.assign(header.leader_epoch, header.base_offset)
        good_bytes = position + header.size_bytes
        end_offset = header.next_offset
    if later and good_bytes < size:
        for each in reversed(later):
            logger.warning("%s: removed, it follows a damaged segment", each.path(LOG))
            _remove(each.files, each)
        segment.files.sync_directory(segment.directory)
    segment.finish_recovery(good_bytes)
    segment.txn_index.truncate_to(segment.files, end_offset)
    return size - good_bytes


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
