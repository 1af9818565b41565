"""Flushes a log to the disk, in three steps, so that another thread can do the slow one.

    work = flusher.begin()          the log's owner: collects the files with unflushed data
    work.run()                      any thread: syncs them
    flusher.finish(work)            the log's owner: advances the recovery point to the log end offset of the first step

The flush does not cover records that are appended between the first and the last step.

`flush_in_background` runs at most one flush of a log at a time. Requests that come meanwhile wait for the next flush,
which serves all of them: a group commit. So no segment is synced twice for the same records.

    a failed sync      fails the log: the kernel may have dropped what it could not write, and the next sync succeeds
    a refused open     puts the flush off until `try_again`: no sync was tried, so the page cache still has everything

While a flush is put off, nothing counts as flushed, and what waits for the flush goes on waiting. Apache Kafka fails
the data directory in both cases.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from sys import intern
from types import MappingProxyType
from typing import NamedTuple, Protocol

from headrace.config import TopicConfig
from headrace.errors import StorageError
from headrace.limits import INT64_MAX
from headrace.log.filenames import INDEX, TIME_INDEX, TXN_INDEX
from headrace.log.files import Files, LogFile, PathText, sync_open
from headrace.log.leader_epochs import LeaderEpochs
from headrace.log.segment.segment import Segment
from headrace.log.segment_list import SegmentList
from headrace.log.shared_syncs import OpenRefused
from headrace.types import TopicPartition

logger = logging.getLogger(__name__)
NOTHING_WANTED = -1
"""The value of `_wanted_to` when no further flush is requested."""

HELD_FILES_MAX = 256
"""Of all logs together, the most files that rolls keep open until they are synced. Further rolls close them, and the
flush opens them again: a broker of many partitions may have all descriptors that it gets in use."""

NOTHING_WRITTEN: Mapping[str, LogFile] = MappingProxyType({})

Background = Callable[[Callable[[], None], Callable[[Exception | None], None]], None]
"""Runs its first argument on any thread, then calls its second on the owner's thread with the exception, or None."""


def inline(work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
    """A `Background` that runs both at once, on the caller's thread."""
    try:
        work()
    except OSError as error:
        done(error)
    else:
        done(None)


def at_once(call: Callable[[], None]) -> None:
    """A `soon` that calls the function at once."""
    call()


def ignore_flush(_: TopicPartition) -> None:
    """An `on_flush` that does nothing."""


def reason_for_clients(error: Exception) -> str:
    """The reason of a failed log, which clients receive: without the path, which is for the broker's own log."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


class HeldFiles:
    """Counts the files that rolls keep open until they are synced."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class FlushScheduling(NamedTuple):
    """When and where a log's background work runs, and what its end causes."""

    background: Background = inline
    soon: Callable[[Callable[[], None]], object] = at_once
    """Calls a function after the owner has handled the pending requests, so that one flush serves all of them."""
    on_flush: Callable[[TopicPartition], None] = ignore_flush
    """Called on the owner's thread when background work of a log has ended, with success or failure."""
    held: HeldFiles = HeldFiles()
    """Of all logs with this scheduling."""


INLINE = FlushScheduling()
"""Runs all work at once, on the caller's thread."""


class FlushWork(NamedTuple):
    """The files and directories to sync so that the disk has the log up to `end_offset` (exclusive)."""

    end_offset: int
    generation: int
    """Identifies the log's state. A flush from before a truncation or a move does not advance the recovery point."""

    directory: Path
    """The log's directory when the flush began."""
    files: Files
    logs: list[LogFile]
    opened: Sequence[LogFile]
    """Further files, which are open: what a roll has just written."""
    paths: list[str]
    directories: list[str]

    def run(self) -> None:
        """Sync everything, except files that were deleted meanwhile. Any thread.

        Raises `OpenRefused` if something could not be opened, and no sync before failed; another OSError if one failed.
        """
        sync_open([*self.logs, *self.opened])
        for path in self.paths:
            try:
                file = self.files.open_readonly(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise OpenRefused(error.errno, error.strerror, path) from error
            file.sync()
        for directory in self.directories:
            with suppress(FileNotFoundError):
                self.files.sync_directory(directory)

    def try_run(self) -> OSError | None:
        """`run`, with the error for an answer. Any thread."""
        try:
            self.run()
        except OSError as error:
            return error
        return None


class FlushedLog(Protocol):
    """The part of a log that its flusher uses."""

    files: Files
    directory: Path
    partition: TopicPartition
    config: TopicConfig
    failure: str | None
    log_end_offset: int
    leader_epochs: LeaderEpochs
    segments: SegmentList

    def fail(self, reason: str) -> None:
        """Refuse appends from now on."""


class _DeletedLog:
    """What a flusher still asks of its log once the log is deleted."""

    __slots__ = (
        "config", "directory", "failure", "files", "leader_epochs", "log_end_offset", "partition", "segments",
    )  # fmt: skip

    def __init__(self, log: FlushedLog) -> None:
        self.files, self.directory, self.partition, self.config = log.files, log.directory, log.partition, log.config
        self.failure: str | None = log.failure or "deleted"
        self.log_end_offset, self.leader_epochs, self.segments = log.log_end_offset, log.leader_epochs, log.segments

    def fail(self, reason: str) -> None:
        """Has failed already: a deleted log refuses appends."""


class Flusher:
    """Tracks how much of one log is on the disk, and flushes the rest. One thread owns it together with its log."""

    __slots__ = (
        "_counts_to", "_directories", "_generation", "_is_soon", "_last_ms", "_log", "_paths", "_scheduling",
        "_wanted_to", "checkpointed_to", "is_put_off", "is_under_way", "recovery_point",
    )  # fmt: skip

    def __init__(self, log: FlushedLog, scheduling: FlushScheduling, recovery_point: int, now_ms: int) -> None:
        self._log = log
        self._scheduling = scheduling
        self.recovery_point = recovery_point
        """All records below this offset are on the disk."""
        self.checkpointed_to = recovery_point
        """The recovery point in the checkpoint file."""
        self.is_under_way = self._is_soon = False
        self.is_put_off = False
        """Whether the last flush was refused, and `try_again` is to begin it again."""
        self._wanted_to = NOTHING_WANTED  # the requested end (exclusive) of the flush after the one under way
        self._last_ms = now_ms
        self._generation = 0
        self._counts_to = INT64_MAX  # where the flush under way ends to count (exclusive)
        # Texts, which take less than paths, and nothing of its own where there are none: each partition has a flusher.
        self._paths: tuple[str, ...] = ()
        self._directories: tuple[str, ...] = ()

    # What there is to flush

    @property
    def unflushed_records(self) -> int:
        """The number of offsets that a power failure could lose."""
        return self._log.log_end_offset - self.recovery_point

    @property
    def is_due_soon(self) -> bool:
        """Whether a flush begins after the owner has handled the pending requests."""
        return self._is_soon

    def is_due(self, now_ms: int) -> bool:
        """Whether `flush.messages` or `flush.ms` requires a flush now. False while a flush is under way."""
        log, unflushed = self._log, self.unflushed_records
        if unflushed <= 0 or self.is_under_way or log.failure is not None:
            return False
        return unflushed >= log.config.flush_count or now_ms - self._last_ms >= log.config.flush_ms

    def note_files(self, *paths: PathText) -> None:
        """Sync these files with the next flush, in addition to the segments."""
        self._paths += tuple(map(str, paths))

    def note_names(self, directory: PathText) -> None:
        """Sync a directory with the next flush, so that its file names are on the disk."""
        text = str(directory)
        if text not in self._directories:
            self._directories += (intern(text),)

    def truncated(self, offset: int) -> None:
        """Note that the log ends at `offset` now. The flush under way no longer advances the recovery point."""
        self._generation += 1
        self.recovery_point = min(self.recovery_point, offset)

    def closed_was_cut(self, base_offset: int) -> None:
        """Note that a roll cut the file of the closed segment that begins at `base_offset`.

        The flush under way may have synced the file before. So it advances the recovery point to the segment only:
        after a crash recovery has to look at the file, which may end with zeros again.
        """
        self._counts_to = min(self._counts_to, base_offset)

    def log_is_deleted(self) -> None:
        """Refer to the log no longer. The two refer to each other: deleted ones are freed at once so, and need no
        collection of cycles, which does not look at the logs of a broker with many (`Lasting`)."""
        self._log = _DeletedLog(self._log)

    def checkpointed(self, recovery_point: int) -> None:
        """Note that the checkpoint file has this recovery point."""
        self.checkpointed_to = recovery_point

    def relocated(self, flushed_to: int) -> None:
        """Note that the log is in another directory, where the disk has it up to `flushed_to` (exclusive)."""
        self.truncated(flushed_to)
        self._paths = self._directories = ()

    # One flush

    def begin(
        self, end_offset: int | None = None, opened: Sequence[LogFile] = (), rolled: Segment | None = None
    ) -> FlushWork:
        """Collect what to sync so that the disk has the log up to `end_offset` (exclusive; None is the log end offset).

        The active segment's indexes are left out, because recovery rebuilds them. Those of `rolled` are among `opened`,
        open files to sync. Raises OSError if a segment cannot be opened, and then changes nothing.
        """
        log = self._log
        if end_offset is None:
            end_offset = log.log_end_offset
        segments = log.segments
        first = len(segments)
        if self.unflushed_records:
            first = segments.number_of(self.recovery_point)
        unsynced = [segment for segment in segments[first:] if segment.base_offset < end_offset]
        logs = [segment.file for segment in unsynced]  # opens closed ones, which may be refused
        paths, self._paths = list(self._paths), ()
        for segment in unsynced:
            if not segment.txn_index.has_no_file:
                paths.append(segment.text(TXN_INDEX))
            if segment is not segments.active and segment is not rolled:
                paths += segment.text(INDEX), segment.text(TIME_INDEX)
        epochs_path = log.leader_epochs.take_unsynced()
        if epochs_path is not None:
            paths.append(epochs_path)
            self.note_names(log.directory)
        directories, self._directories = list(self._directories), ()
        self._counts_to = INT64_MAX
        paths = list(dict.fromkeys(paths))
        return FlushWork(
            end_offset, self._generation, log.directory, log.files, logs, opened, paths, directories
        )  # fmt: skip

    def finish(self, work: FlushWork, now_ms: int, error: Exception | None = None) -> None:
        """Advance the recovery point after `work.run()`. After a failed sync the log refuses appends for good.

        A later fsync may succeed although the data is lost, so the recovery point never advances after an error. A
        refused open puts the flush off.
        """
        log = self._log
        is_refused = isinstance(error, OpenRefused)
        if is_refused and work.directory == log.directory:  # else the log has moved: everything there is synced again
            self.note_files(*work.paths)  # the open files came first, and are synced
            for directory in work.directories:
                self.note_names(directory)
        if log.failure is not None:
            return
        if is_refused:
            self._put_off(work.end_offset, error)
        elif error is not None:
            log.fail(f"{log.partition} could not be flushed: {reason_for_clients(error)}")
            logger.error(
                "%s could not be flushed: %s; the partition refuses appends until the next start", log.partition, error
            )
        elif work.generation == self._generation:
            self.recovery_point = max(self.recovery_point, min(work.end_offset, self._counts_to))
            self._last_ms = now_ms
        if error is None and self.is_put_off:
            self.is_put_off = False
            logger.info("%s is flushed again", log.partition)

    def _put_off(self, end_offset: int, error: object) -> None:
        """Note that the disk refused to open something for a flush up to `end_offset` (exclusive)."""
        self._wanted_to = max(self._wanted_to, end_offset)
        if not self.is_put_off:
            self.is_put_off = True
            logger.warning("%s: a flush was refused, and is tried again every second: %s", self._log.partition, error)

    def try_again(self, now_ms: int) -> None:
        """Begin the flush again that was put off, in the background."""
        if not self.is_under_way and self._log.failure is None:
            self.flush_in_background(now_ms, self._wanted_to)

    def flush(self, now_ms: int) -> None:
        """Flush at once, on this thread. Raises StorageError, and OSError if a segment cannot be opened."""
        work = self.begin()
        error = work.try_run()
        self.finish(work, now_ms, error)
        self.check(error)

    def check(self, error: Exception | None) -> None:
        """Raise StorageError if the log has failed, or its flush ended with this error."""
        log = self._log
        if log.failure is not None:
            raise StorageError(log.failure)
        if error is not None:
            raise StorageError(f"{log.partition} could not be flushed: {error}")

    # In the background

    def flush_in_background(
        self,
        now_ms: int,
        end_offset: int | None = None,
        written: Mapping[str, LogFile] = NOTHING_WRITTEN,
        rolled: Segment | None = None,
    ) -> None:
        """Flush up to `end_offset` (exclusive; None is the log end offset) in the background.

        The flush begins after the one that is under way. `written` has further files to sync, by their paths: what the
        roll of the segment `rolled` has written. A flush that begins at once syncs the open files; a later one opens
        them again. If a segment cannot be opened, the flush is put off.
        """
        log, held = self._log, self._scheduling.held
        self._wanted_to = max(self._wanted_to, log.log_end_offset if end_offset is None else end_offset)
        if self.is_under_way or held.count + len(written) > HELD_FILES_MAX:
            self.note_files(*written)
            written, rolled = NOTHING_WRITTEN, None
        if self.is_under_way:
            return
        try:
            work = self.begin(min(self._wanted_to, log.log_end_offset), tuple(written.values()), rolled)
        except OSError as error:
            self.note_files(*written)
            self._put_off(self._wanted_to, error)
            return
        self._wanted_to = NOTHING_WANTED
        self.is_under_way = True
        held.count += len(work.opened)
        self._scheduling.background(work.run, lambda error: self._ended(work, now_ms, error))

    def _ended(self, work: FlushWork, now_ms: int, error: Exception | None) -> None:
        """Finish a background flush, and begin the next one when it was requested meanwhile."""
        self.is_under_way = False
        self._scheduling.held.count -= len(work.opened)
        self.finish(work, now_ms, error)
        if self._log.failure is None and not self.is_put_off:
            if self.unflushed_records >= self._log.config.flush_count:
                self.flush_by_count(now_ms)
            elif self._wanted_to != NOTHING_WANTED:
                self.flush_in_background(now_ms, self._wanted_to)
        self._scheduling.on_flush(self._log.partition)

    def run_in_background(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """Run other disk work of the log in the background; `done` is called on the owner's thread."""

        def end(error: Exception | None) -> None:
            done(error)
            self._scheduling.on_flush(self._log.partition)

        self._scheduling.background(work, end)

    def flush_by_count(self, now_ms: int) -> int:
        """The offset (exclusive) that must be on the disk before the producer is answered; 0 when nothing has to wait.

        `flush.messages` decides. The flush begins soon, or after the one under way, and serves all waiting producers.
        Not one that is put off: each waiting producer asks again when a flush has ended, and `try_again` begins it.
        """
        log = self._log
        end_offset = log.log_end_offset
        if end_offset - self.recovery_point < log.config.flush_count:
            return 0
        if not (self.is_under_way or self._is_soon or self.is_put_off) and log.failure is None:
            self._is_soon = True
            self._scheduling.soon(lambda: self._by_count_now(now_ms))
        return end_offset if self.recovery_point < end_offset else 0

    def _by_count_now(self, now_ms: int) -> None:
        self._is_soon = False
        if self._log.failure is None and self.unflushed_records:
            self.flush_in_background(now_ms)
