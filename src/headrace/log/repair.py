"""Damage cut out of segments, so that what is around it can be read again.

    1. what is cut goes to a directory of its own, synced     <save>/<partition>/<segment>.log@<position>+<bytes>
    2. the good parts go to `<segment>.log.cleaned`, synced
    3. the indexes go; `.cleaned` takes the segment's place; the indexes are made again

A crash leaves the damaged segment or the repaired one. Offsets do not move: a reader passes over the gap, as over one
that compaction left. Nobody else may use the directory meanwhile: the caller holds its lock. Left out: snapshots of
producers, which recovery makes again where they are missing.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from headrace.config import TopicConfig
from headrace.errors import CorruptMessage
from headrace.log.aborted import aborted_transactions
from headrace.log.data_directory import LOCK, DataDirectoryRefused
from headrace.log.files import DirectoryLock, Files
from headrace.log.names import CLEANED, INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX, offset_file, offset_of
from headrace.log.scan import read_headers
from headrace.log.segment import Segment
from headrace.log.verify import BadIndex, CheckedSegment, Damage, Finding

COPY_BYTES = 1 << 20


class Repair(NamedTuple):
    """What is to be done to one segment: what is cut from it, and what is left."""

    segment: CheckedSegment | None
    damages: list[Damage]
    indexes: list[BadIndex]

    @property
    def bytes_lost(self) -> int:
        """Bytes that will be cut out."""
        return sum(damage.size_bytes for damage in self.damages)


def plan(findings: Iterable[Finding]) -> list[Repair]:
    """What would be done about what `verify` found, segment by segment."""
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
    """The lock of a data directory, None where there is nothing to lock. Raises DataDirectoryRefused while a broker,
    ours or Apache Kafka's, has it."""
    if not files.exists(data_directory / LOCK):
        return None
    try:
        return files.lock(data_directory / LOCK)
    except BlockingIOError as error:
        raise DataDirectoryRefused(
            f"a broker is running on {data_directory}: stop it first, or work on a copy"
        ) from error


def apply(files: Files, repair: Repair, save: Path) -> list[Path]:
    """Do it; returns where that is which was cut. Raises OSError."""
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
    """Copy what will be cut; never over what an earlier repair saved."""
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
    """Leave of a segment what is good."""
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
    files.rename(cleaned, path)
    _rebuild(files, path)
    files.sync_directory(path.parent)


def _rebuild(files: Files, path: Path) -> None:
    """Make both sparse indexes of the segment again that `path` belongs to."""
    segment = _segment_of(files, path)
    segment.rebuild_indexes()
    segment.trim_indexes()
    for suffix in (INDEX, TIME_INDEX):
        files.open(segment.path(suffix)).sync()


def _rebuild_transactions(files: Files, path: Path) -> None:
    """Make the transaction index again."""
    segment = _segment_of(files, path)
    aborted_transactions(segment)
    files.open(segment.path(TXN_INDEX)).sync()


def _segment_of(files: Files, path: Path) -> Segment:
    """The segment that a file belongs to, without the room behind its last batch."""
    base, size = offset_of(path.name), 0
    file = files.open_readonly(path.with_name(offset_file(base, LOG)))
    with suppress(CorruptMessage):
        for position, header in read_headers(file, 0, file.size()):
            size = position + header.size_bytes
    return Segment(files, path.parent, base, TopicConfig(), size=size, now_ms=0)
