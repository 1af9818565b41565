"""Moves a log from one data directory to another while it is appended to and read.

    flights-0/                      in the old directory: the log, until the swap
    flights-0.<32 digits>-future/   in the new one: the copy, segment by segment, byte for byte

    begin     the copy's directory is made, with a file `replaces` in it that names the old one
    copy      next_piece (the owner) -> copy (any thread), again and again; closed segments with their indexes, synced
    swap      the owner: the last bytes are copied, the copy gets the log's name, and the log goes on in it
    finish    once what was not synced is: the old directory is renamed to -delete and removed, and so is `replaces`

The log stays the same object with the same state; only the location of its files changes. After a crash before the
swap, the log stays where it was, and the copy starts again. Between swap and finish both directories have the log's
name. Apache Kafka does not start then; here `settle` keeps the directory with more records. That is the new one, unless
a power failure lost its unsynced bytes. Then the old one has every record that was acknowledged as flushed, because the
new one serves no request before its directory is synced. Source: Kafka's LogManager (replaceCurrentWithFutureLog),
KIP-113.
"""

import logging
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from headrace.log.directories.checkpoints import LEADER_EPOCH, write_epochs
from headrace.log.directories.data_directory import DataDirectoryRefused
from headrace.log.directories.partition_metadata import FILE_NAME as METADATA
from headrace.log.filenames import (
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
from headrace.log.files import Files, LogFile
from headrace.log.partition_log import PartitionLog
from headrace.log.segment.batch_scan import read_checked
from headrace.log.segment.segment import Segment
from headrace.log.segment_list import SegmentList
from headrace.types import TopicPartition

logger = logging.getLogger(__name__)
FUTURE_DIRECTORY = "-future"
REPLACES = "replaces"
READ_BYTES = 1 << 20
SWAP_BYTES_MAX = 1 << 20
"""The most bytes that the owner copies itself, at the swap."""
LAST_PIECE_BYTES = 128 << 10
"""The most bytes that are left to the swap. A log with steady appends always has some bytes left to copy."""

_FUTURE = re.compile(r"(.+-\d+)\.[0-9a-f]{32}-future")


def future_name(partition: TopicPartition) -> str:
    """A new name for the directory of a partition's copy."""
    return f"{partition}.{os.urandom(16).hex()}{FUTURE_DIRECTORY}"


def partition_of_future(name: str) -> TopicPartition | None:
    """The partition whose copy has this directory name; None for any other name."""
    found = _FUTURE.fullmatch(name)
    return parse_partition(found[1]) if found else None


class _Copy:
    """The progress of one segment's copy."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.file: LogFile | None = None
        self.size = 0
        self.is_complete = False
        """Whether the segment is closed, completely copied with its indexes, and synced."""


class MovedPiece(NamedTuple):
    """The next bytes of a segment to copy. A size of 0 completes the segment."""

    copy: _Copy
    source: LogFile
    position: int
    size: int


class LogMove:
    """The move of one log. The log's owner makes all calls except those marked as any thread's."""

    def __init__(self, files: Files, log: PartitionLog, directory: Path) -> None:
        """`directory` is the data directory to move to."""
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
        """Create the directory of the copy. Any thread. Raises OSError."""
        self._files.make_directory(self.path)
        self._files.replace(self.path / REPLACES, str(self.source).encode())
        self.is_begun = True

    # Copying

    @property
    def size_bytes(self) -> int:
        """The number of bytes copied."""
        return sum(copy.size for copy in self._copies.values())

    @property
    def end_offset(self) -> int:
        """The offset up to which (exclusive) complete segments are copied, or the log end offset for all of them."""
        for segment in self.log.segments:
            copy = self._copies.get(segment.base_offset)
            if copy is None or copy.segment is not segment or copy.size < segment.size:
                return segment.base_offset
        return self.log.log_end_offset

    def next_piece(self, bytes_max: int) -> MovedPiece | None:
        """The next piece to copy, of at most `bytes_max` bytes; None when there is nothing to copy."""
        log = self.log
        if log.truncations != self._truncations:  # the log may not have the copied batches any more
            self._truncations = log.truncations
            self._copies.clear()
        live = {segment.base_offset for segment in log.segments}
        self._copies = {base: copy for base, copy in self._copies.items() if base in live}
        for segment in log.segments:
            copy = self._copies.get(segment.base_offset)
            if copy is None or copy.segment is not segment:
                copy = self._copies[segment.base_offset] = _Copy(segment)
            if copy.size < segment.size:
                return MovedPiece(copy, segment.file, copy.size, min(bytes_max, segment.size - copy.size))
            if segment is not log.active and not copy.is_complete:
                return MovedPiece(copy, segment.file, copy.size, 0)
        return None

    def is_last(self, piece: MovedPiece) -> bool:
        """Whether a piece is the small rest of the active segment, which the swap can copy."""
        rest = piece.copy.segment.size - piece.position
        return piece.copy.segment is self.log.active and piece.position > 0 and piece.size == rest <= LAST_PIECE_BYTES

    def copy(self, piece: MovedPiece) -> None:
        """Copy a piece. Any thread. Raises OSError; FileNotFoundError when the segment was deleted meanwhile."""
        copy = piece.copy
        file = self._file_of(copy)
        position, end = piece.position, piece.position + piece.size
        while position < end:
            data = piece.source.read(min(READ_BYTES, end - position), position)
            if not data:
                return  # it was truncated
            file.write(data, position)
            position += len(data)
        copy.size = end
        if not piece.size:
            file.sync()
            for suffix in (INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT):
                self._copy_file(offset_file(copy.segment.base_offset, suffix), sync=True)
            copy.file = None  # a log of thousands of segments must not keep them all open
            copy.is_complete = True

    def _file_of(self, copy: _Copy) -> LogFile:
        """The open file of a copy. Creates it before the first piece."""
        if copy.file is None:
            copy.file = self._files.open(self.path / offset_file(copy.segment.base_offset, LOG), create=True)
            copy.file.truncate(0)
        return copy.file

    def _copy_file(self, name: str, *, sync: bool) -> None:
        if self._files.exists(self.source / name):
            self._files.replace(self.path / name, self._files.read(self.source / name), sync=sync)

    # Swap

    def swap(self, now_ms: int) -> bool:
        """Continue the log in the copy. Returns False, and changes nothing, when too much is left to copy.

        Raises OSError and CorruptMessage, and then the log stays where it was: nothing after the rename needs the disk.
        """
        log = self.log
        if log.size_bytes - self.size_bytes > SWAP_BYTES_MAX:
            return False
        while (piece := self.next_piece(SWAP_BYTES_MAX)) is not None:
            self.copy(piece)
        self._file_of(self._copies[log.active.base_offset])  # an active segment without records has no piece
        self._copy_what_is_beside()
        path = self.directory / str(log.partition)
        segments = SegmentList(_at(segment, path, log) for segment in log.segments)  # may load indexes
        self._files.rename(self.path, path)
        self.path = path
        log.relocate(path, segments, synced_to=self._synced_to())
        self.is_swapped, self._end_offset = True, log.log_end_offset
        log.flusher.flush_in_background(now_ms)
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
        for name in here - set(there) - {REPLACES, LEADER_EPOCH}:  # retention removed the original meanwhile
            files.remove(self.path / name)

    def _synced_to(self) -> int:
        for segment in self.log.segments:
            if not self._copies[segment.base_offset].is_complete:
                return segment.base_offset
        return self.log.log_end_offset

    @property
    def is_safe(self) -> bool:
        """Whether all records from before the swap are on the disk in the new directory."""
        return self.log.flusher.recovery_point >= self._end_offset

    def finish(self) -> None:
        """Sync the new directory, and remove the old one. Any thread. Raises OSError."""
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
        """Remove the old directory of a log that was deleted after the swap. Any thread. Raises OSError."""
        self._files.remove_tree(self._doom_source())

    def _doom_source(self) -> Path:
        doomed = self.source.with_name(delete_name(self.log.partition, os.urandom(16).hex()))
        self._files.rename(self.source, doomed)
        self._files.sync_directory(doomed.parent)
        return doomed

    def drop(self) -> None:
        """Remove the copy. Any thread. Raises OSError."""
        with suppress(FileNotFoundError):
            self._files.remove_tree(self.path)


def _at(segment: Segment, directory: Path, log: PartitionLog) -> Segment:
    """The same segment in another directory."""
    moved = Segment(log.files, directory, segment.base_offset, log.config, size=segment.size, now_ms=segment.created_ms)
    if segment is log.active:  # its indexes were not copied, and some entries are only in memory
        moved.copy_indexes(segment)
    return moved


# After a crash


def find_futures(files: Files, directories: Sequence[Path]) -> dict[TopicPartition, Path]:
    """Remove the copies that a stop or a crash left. Raises OSError.

    Returns the data directory that each partition was moving to, so that the move can begin again.
    """
    found = {}
    for directory in directories:
        for name in files.names(directory):
            partition = partition_of_future(name)
            if partition is not None:
                found[partition] = directory
                files.remove_tree(directory / name)
    return found


def settle(files: Files, directories: Sequence[Path], *, are_all_here: bool) -> None:
    """Keep one of the two directories of each partition whose move a crash interrupted after the swap.

    `are_all_here` says that no data directory is offline, so that the `replaces` files can be removed. Raises OSError,
    and DataDirectoryRefused when a partition is in several directories for another reason.
    """
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
                    f"{partition} is in {' and in '.join(str(path.parent) for path in paths)}: "
                    "delete all but the newest copy"
                )
            (source,) = [path for path in paths if path not in marked]
            ends = {path: _end_of(files, path) for path in paths}
            loser = source if ends[marked[0]] >= ends[source] else marked[0]
            logger.warning(
                "%s: a move to %s was interrupted; the older copy %s is deleted", partition, marked[0].parent, loser
            )
            files.rename(loser, loser.with_name(delete_name(partition, os.urandom(16).hex())))
            files.sync_directory(loser.parent)
            marked = [path for path in marked if path != loser]
        if are_all_here:
            for path in marked:
                files.remove(path / REPLACES)


def _end_of(files: Files, directory: Path) -> tuple[int, int]:
    """The last segment's base offset, and the end offset (exclusive) of its batches; (-1, -1) without segments."""
    bases = [offset_of(name) for name in files.names(directory) if is_segment_file(name, LOG)]
    if not bases:
        return -1, -1
    base, end = max(bases), max(bases)
    file = files.open_readonly(directory / offset_file(base, LOG))
    for _, header in read_checked(file, file.size(), base):
        end = header.next_offset
    return base, end
