"""Repair: cuts damage out of segments, so that the records around it can be read again.

    1. saves the damaged bytes, synced, in     <save>/<partition>/<segment>.log@<position>+<bytes>
    2. writes the good parts to `<segment>.log.cleaned`, synced
    3. raises the recovery point to the next segment. Above the recovery point, a start after a crash assumes that a
       segment with a gap behind it lost its tail, and deletes the segments after it.
    4. deletes the indexes, replaces the segment by `.cleaned`, and rebuilds the indexes

A crash leaves the damaged segment or the repaired one. Offsets do not change: a reader skips the gap, like a gap from
compaction. The caller holds the directory's lock, so that no other process uses it. Left out: missing producer
snapshots, which recovery creates again.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from headrace.config import TopicConfig
from headrace.errors import CorruptMessage
from headrace.log.directories.checkpoints import RECOVERY_POINT, CorruptCheckpoint, read_offsets, write_offsets
from headrace.log.directories.data_directory import LOCK, DataDirectoryRefused
from headrace.log.filenames import (
    CLEANED,
    INDEX,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    is_segment_file,
    offset_file,
    offset_of,
    parse_partition,
)
from headrace.log.files import DirectoryLock, Files
from headrace.log.segment.aborted_transactions import aborted_transactions
from headrace.log.segment.batch_scan import read_headers
from headrace.log.segment.segment import Segment
from headrace.offline.verify import BadIndex, CheckedSegment, Damage, Finding

COPY_BYTES = 1 << 20


class Repair(NamedTuple):
    """The repair of one segment: the damage to cut out of it, or the indexes to rebuild."""

    segment: CheckedSegment | None
    damages: list[Damage]
    indexes: list[BadIndex]

    @property
    def bytes_lost(self) -> int:
        """The number of bytes that will be cut out."""
        return sum(damage.size_bytes for damage in self.damages)


def plan(findings: Iterable[Finding]) -> list[Repair]:
    """The repairs for the findings of `verify`, segment by segment."""
    repairs: list[Repair] = []
    pending: list[Damage] = []
    for finding in findings:
        match finding:
            case Damage():
                pending.append(finding)
            case CheckedSegment():
                if pending:
                    repairs.append(Repair(finding, pending, []))
                    pending = []
            case BadIndex():
                repairs.append(Repair(None, [], [finding]))
            case _:
                pass
    return repairs


def lock(files: Files, data_directory: Path) -> DirectoryLock | None:
    """Lock a data directory. Returns None when the directory has no lock file.

    Raises DataDirectoryRefused while a broker of headrace or of Apache Kafka holds the lock.
    """
    if not files.exists(data_directory / LOCK):
        return None
    try:
        return files.lock(data_directory / LOCK)
    except BlockingIOError as error:
        raise DataDirectoryRefused(
            f"data directory {data_directory} is in use by a running broker: stop the broker first, or work on a copy"
        ) from error


def apply(files: Files, repair: Repair, save: Path) -> list[Path]:
    """Apply a repair, and return the files with the bytes that were cut out, below `save`. Raises OSError."""
    saved = [_save(files, damage, save) for damage in repair.damages]
    if repair.segment is not None:
        _cut(files, repair.segment)
    for index in repair.indexes:
        if index.file.name.endswith((INDEX, TIME_INDEX)):
            _rebuild(files, index.file)
        elif index.file.name.endswith(TXN_INDEX):
            _rebuild_transactions(files, index.file)
        elif index.file.name.endswith(SNAPSHOT):
            files.remove(index.file)
        files.sync_directory(index.file.parent)
    return saved


def _save(files: Files, damage: Damage, save: Path) -> Path:
    """Copy the damaged bytes to a new file, and return its path. Never overwrites files of an earlier repair."""
    directory = save / damage.file.parent.name
    files.make_directory(directory)
    name = f"{damage.file.name}@{damage.position}+{damage.size_bytes}"
    path, number = directory / name, 1
    while files.exists(path):
        number += 1
        path = directory / f"{name}.{number}"
    source, target = files.open_readonly(damage.file), files.open(path, create=True)
    for at in range(0, damage.size_bytes, COPY_BYTES):
        target.write(source.read(min(COPY_BYTES, damage.size_bytes - at), damage.position + at), at)
    target.sync()
    files.sync_directory(directory)
    return path


def _cut(files: Files, segment: CheckedSegment) -> None:
    """Replace a segment by its good parts."""
    path = segment.file
    cleaned = path.with_name(path.name + CLEANED)
    files.remove(cleaned)
    source, target = files.open_readonly(path), files.open(cleaned, create=True)
    end = 0
    for position, size in segment.good:
        for at in range(0, size, COPY_BYTES):
            data = source.read(min(COPY_BYTES, size - at), position + at)
            target.write(data, end)
            end += len(data)
    target.sync()
    files.set_modified_ms(cleaned, files.modified_ms(path))
    for suffix in (INDEX, TIME_INDEX):
        files.remove(path.with_name(offset_file(segment.first_offset, suffix)))
    files.sync_directory(path.parent)
    _note_flushed(files, path)
    files.rename(cleaned, path)
    _rebuild(files, path)
    files.sync_directory(path.parent)


def _note_flushed(files: Files, path: Path) -> None:
    """Flush a log up to the end of the segment `path`, and raise its recovery point to there. Raises OSError."""
    directory, checkpoint = path.parent, path.parent.parent / RECOVERY_POINT
    partition = parse_partition(directory.name)
    bases = [offset_of(name) for name in files.names(directory) if is_segment_file(name, LOG)]
    next_base = min((base for base in bases if base > offset_of(path.name)), default=None)
    if next_base is None or partition is None or not files.exists(checkpoint):
        return
    with suppress(CorruptCheckpoint):
        points = read_offsets(files, checkpoint)
        if points.get(partition, 0) < next_base:
            for base in bases:
                if base < next_base:
                    files.open(directory / offset_file(base, LOG)).sync()
            write_offsets(files, checkpoint, points | {partition: next_base})


def _rebuild(files: Files, path: Path) -> None:
    """Rebuild both sparse indexes of the segment that `path` belongs to."""
    segment = _segment_of(files, path)
    segment.indexes.rebuild()
    segment.indexes.trim()
    for suffix in (INDEX, TIME_INDEX):
        files.open(segment.path(suffix)).sync()


def _rebuild_transactions(files: Files, path: Path) -> None:
    """Rebuild the transaction index."""
    segment = _segment_of(files, path)
    aborted_transactions(segment)
    files.open(segment.path(TXN_INDEX)).sync()


def _segment_of(files: Files, path: Path) -> Segment:
    """The segment of a file, without the bytes behind its last complete batch."""
    base, size = offset_of(path.name), 0
    file = files.open_readonly(path.with_name(offset_file(base, LOG)))
    with suppress(CorruptMessage):
        for position, header in read_headers(file, 0, file.size()):
            size = position + header.size_bytes
    return Segment(files, path.parent, base, TopicConfig(), size=size, now_ms=0)
