"""A log on its way from one data directory to another, while it is appended to and read.

    flights-0/                      in the old directory: the log, until the swap
    flights-0.<32 digits>-future/   in the new one: the copy, segment by segment, byte for byte

    begin     the copy's directory is made, with a file `replaces` in it that names the old one
    copy      next_piece (the owner) -> copy (any thread), again and again; closed segments with their indexes, synced
    swap      the owner: the last bytes are copied, the copy gets the log's name, and the log goes on in it
    finish    once what was not synced is: the old directory is renamed to -delete and removed, and so is `replaces`

The log stays the same object with the same state; only where its files are changes. A crash before the swap leaves the
log where it was, and the copy is begun anew. Between swap and finish both directories have the log's name. Apache Kafka
does not start then; here `settle` keeps the one that has more. That is the new one, unless the machine failed and lost
what had not been synced: then the old one has all that was promised to be on the disk, as the new one is not answered
from before its directory is synced. Source: Kafka's LogManager (replaceCurrentWithFutureLog), KIP-113.
"""

import logging
import re
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from headrace.log.checkpoints import LEADER_EPOCH, write_epochs
from headrace.log.data_directory import DataDirectoryRefused
from headrace.log.files import Files, LogFile
from headrace.log.names import (
    INDEX,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    delete_name,
    is_segment_file,
    offset_file,
    offset_of,
    parse_partition,
)
from headrace.log.partition_log import PartitionLog
from headrace.log.partition_metadata import FILE_NAME as METADATA
from headrace.log.scan import read_checked
from headrace.log.segment import Segment
from headrace.types import TopicPartition

logger = logging.getLogger(__name__)
FUTURE_DIRECTORY = "-future"
REPLACES = "replaces"
READ_BYTES = 1 << 20
SWAP_BYTES_MAX = 1 << 20
"""What the owner copies itself, at the swap."""
LAST_PIECE_BYTES = 128 << 10
"""A swap is tried with so much left: a log that is always written to has always something left."""

_FUTURE = re.compile(r"(.+-\d+)\.[0-9a-f]{32}-future")


def future_name(partition: TopicPartition) -> str:
    """A name for the copy of a partition."""
    return f"{partition}.{uuid.uuid4().hex}{FUTURE_DIRECTORY}"


def partition_of_future(name: str) -> TopicPartition | None:
    """The partition that a directory is the copy of; None for any other name."""
    found = _FUTURE.fullmatch(name)
    return parse_partition(found[1]) if found else None


class _Copy:
    """How far one segment is copied."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.file: LogFile | None = None
        self.size = 0
        self.is_complete = False
        """Closed, copied as a whole, with its indexes, and synced."""


class Piece(NamedTuple):
    """What is to be copied next: bytes of a segment; none, to complete one."""

    copy: _Copy
    source: LogFile
    position: int
    size: int


class LogMove:
    """One log on its way. All but `begin`, `copy` and `finish` are for the log's owner."""

    def __init__(self, files: Files, log: PartitionLog, directory: Path) -> None:
        """To the data directory `directory`."""
        self.log = log
        self.directory = directory
        self.path = directory / future_name(log.partition)
        self.source = log.directory
        self.is_begun = self.is_swapped = False
        self.has_rolled = False
        self._end_offset = 0
        self._beside = [METADATA, LEADER_EPOCH]
        self._files = files
        self._copies: dict[int, _Copy] = {}
        self._truncations = log.truncations

    def begin(self) -> None:
        """Make the directory of the copy. Any thread. Raises OSError."""
        self._files.make_directory(self.path)
        self._files.replace(self.path / REPLACES, str(self.source).encode())
        self.is_begun = True

    # Copying

    @property
    def size_bytes(self) -> int:
        """How much is copied."""
        return sum(copy.size for copy in self._copies.values())

    @property
    def end_offset(self) -> int:
        """Up to where (exclusive) whole segments are copied, or all of the log."""
        for segment in self.log.segments:
            copy = self._copies.get(segment.base_offset)
            if copy is None or copy.segment is not segment or copy.size < segment.size:
                return segment.base_offset
        return self.log.log_end_offset

    def next_piece(self, bytes_max: int) -> Piece | None:
        """What has to be copied next; None when there is nothing."""
        log = self.log
        if log.truncations != self._truncations:  # what was copied may not be in the log any more
            self._truncations = log.truncations
            self._copies.clear()
        live = {segment.base_offset for segment in log.segments}
        self._copies = {base: copy for base, copy in self._copies.items() if base in live}
        for segment in log.segments:
            copy = self._copies.get(segment.base_offset)
            if copy is None or copy.segment is not segment:
                copy = self._copies[segment.base_offset] = _Copy(segment)
            if copy.size < segment.size:
                return Piece(copy, segment.file, copy.size, min(bytes_max, segment.size - copy.size))
            if segment is not log.active and not copy.is_complete:
                return Piece(copy, segment.file, copy.size, 0)
        return None

    def is_last(self, piece: Piece) -> bool:
        """Whether a piece is the little that the active segment has grown by, and can be left to the swap."""
        rest = piece.copy.segment.size - piece.position
        return piece.copy.segment is self.log.active and piece.position > 0 and piece.size == rest <= LAST_PIECE_BYTES

    def copy(self, piece: Piece) -> None:
        """Copy a piece. Any thread. Raises OSError; FileNotFoundError when the segment was deleted meanwhile."""
        copy = piece.copy
        base = copy.segment.base_offset
        if copy.file is None:
            copy.file = self._files.open(self.path / offset_file(base, LOG), create=True)
            copy.file.truncate(0)
        position, end = piece.position, piece.position + piece.size
        while position < end:
            data = piece.source.read(min(READ_BYTES, end - position), position)
            if not data:
                return  # it was truncated
            copy.file.write(data, position)
            position += len(data)
        copy.size = end
        if not piece.size:
            copy.file.sync()
            for suffix in (INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT):
                self._copy_file(offset_file(base, suffix), sync=True)
            copy.file = None  # a log of thousands of segments must not keep them all open
            copy.is_complete = True

    def _copy_file(self, name: str, *, sync: bool) -> None:
        if self._files.exists(self.source / name):
            self._files.replace(self.path / name, self._files.read(self.source / name), sync=sync)

    # Changing over

    def swap(self, now_ms: int) -> bool:
        """Have the log go on in the copy; False when too much is left to copy. Raises OSError, and then the log is
        where it was, or (after the renaming, in a part that asks nothing of the disk) in the copy."""
        log = self.log
        if sum(s.size for s in log.segments) - self.size_bytes > SWAP_BYTES_MAX:
            return False
        while (piece := self.next_piece(SWAP_BYTES_MAX)) is not None:
            self.copy(piece)
        self._copy_what_is_beside()
        path = self.directory / str(log.partition)
        self._files.rename(self.path, path)
        self.path = path
        _relocate(log, path, self._synced_to())
        self.is_swapped, self._end_offset = True, log.log_end_offset
        log.flush_in_background(now_ms)
        return True

    def _copy_what_is_beside(self) -> None:
        log, files = self.log, self._files
        self._copy_file(METADATA, sync=False)
        self._copy_file(offset_file(log.active.base_offset, TXN_INDEX), sync=False)
        here, there = set(files.names(self.path)), files.names(self.source)
        for name in there:
            if is_segment_file(name, SNAPSHOT) and name not in here:
                self._copy_file(name, sync=False)
                self._beside.append(name)
        write_epochs(files, self.path / LEADER_EPOCH, log.leader_epochs.entries, sync=False)
        for name in here - set(there) - {REPLACES, LEADER_EPOCH}:  # retention was here meanwhile
            files.remove(self.path / name)

    def _synced_to(self) -> int:
        for segment in self.log.segments:
            if not self._copies[segment.base_offset].is_complete:
                return segment.base_offset
        return self.log.log_end_offset

    @property
    def is_safe(self) -> bool:
        """Whether all that was there at the swap is on the disk in the new place."""
        return self.log.recovery_point >= self._end_offset

    def finish(self) -> None:
        """Let go of the old place. Any thread. Raises OSError."""
        files = self._files
        for name in self._beside:
            with suppress(FileNotFoundError):
                files.open_readonly(self.path / name).sync()
        files.sync_directory(self.path)
        files.sync_directory(self.directory)
        doomed = self._doom_source()
        files.remove(self.path / REPLACES)
        files.remove_tree(doomed)

    def remove_source(self) -> None:
        """Remove the old place of a log that was deleted since the swap. Any thread. Raises OSError."""
        self._files.remove_tree(self._doom_source())

    def _doom_source(self) -> Path:
        doomed = self.source.with_name(delete_name(self.log.partition, uuid.uuid4().hex))
        self._files.rename(self.source, doomed)
        self._files.sync_directory(doomed.parent)
        return doomed

    def drop(self) -> None:
        """Remove the copy. Any thread. Raises OSError."""
        with suppress(FileNotFoundError):
            self._files.remove_tree(self.path)


def _relocate(log: PartitionLog, directory: Path, synced_to: int) -> None:
    """Have a log go on in `directory`, where its segments are. Whatever a flush of before says is of the old place."""
    segments = [_at(segment, directory, log) for segment in log.segments]
    log.truncations += 1
    log.directory = directory
    log.leader_epochs.relocated(directory)
    log.set_segments(segments)
    log.recovery_point = min(log.recovery_point, synced_to)
    log.clean_end_offset = -1
    log.removals.clear()
    log.unsynced_paths, log.unsynced_directories = [], []
    log.note_unsynced(directory)
    log.note_unsynced(directory.parent)


def _at(segment: Segment, directory: Path, log: PartitionLog) -> Segment:
    """The same segment, in another place."""
    moved = Segment(log.files, directory, segment.base_offset, log.config, size=segment.size, now_ms=segment.created_ms)
    if segment is log.active:  # its indexes are still in memory alone, or were not copied
        moved.take_indexes(segment)
    return moved


# After a crash


def find_futures(files: Files, directories: Sequence[Path]) -> dict[TopicPartition, Path]:
    """Copies that a stop or a crash left behind: the data directory that a partition was on its way to. They are
    removed; the copy is begun anew. Raises OSError."""
    found = {}
    for directory in directories:
        for name in files.names(directory):
            partition = partition_of_future(name)
            if partition is not None:
                found[partition] = directory
                files.remove_tree(directory / name)
    return found


def settle(files: Files, directories: Sequence[Path], *, are_all_here: bool) -> None:
    """Keep one of the two places that a partition has when a crash came between its swap and the end of its move.
    Raises OSError, and DataDirectoryRefused where a partition is in two directories for another reason."""
    places: dict[TopicPartition, list[Path]] = {}
    for directory in directories:
        for name in files.names(directory):
            partition = parse_partition(name)
            if partition is not None:
                places.setdefault(partition, []).append(directory / name)
    for partition, paths in places.items():
        marked = [path for path in paths if files.exists(path / REPLACES)]
        if len(paths) > 1:
            if len(paths) > 2 or len(marked) != 1:
                raise DataDirectoryRefused(
                    f"{partition} is in {' and in '.join(str(path.parent) for path in paths)}: remove the older one"
                )
            (source,) = [path for path in paths if path not in marked]
            ends = {path: _end_of(files, path) for path in paths}
            loser = source if ends[marked[0]] >= ends[source] else marked[0]
            logger.warning("%s: a move to %s was interrupted; %s goes", partition, marked[0].parent, loser)
            files.rename(loser, loser.with_name(delete_name(partition, uuid.uuid4().hex)))
            files.sync_directory(loser.parent)
            marked = [path for path in marked if path != loser]
        if are_all_here:
            for path in marked:
                files.remove(path / REPLACES)


def _end_of(files: Files, directory: Path) -> tuple[int, int]:
    """The last segment's base offset, and where the batches in it end."""
    bases = [offset_of(name) for name in files.names(directory) if is_segment_file(name, LOG)]
    if not bases:
        return -1, -1
    base, end = max(bases), max(bases)
    file = files.open_readonly(directory / offset_file(base, LOG))
    for _, header in read_checked(file, file.size(), base):
        end = header.next_offset
    return base, end
