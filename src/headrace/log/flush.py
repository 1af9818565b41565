"""One flush of a log, in three steps, so that the slow one can be done on another thread.

    work = log.begin_flush()        the owner: which files hold what is not on the disk yet
    work.run()                      any thread: fsync
    log.finish_flush(work)          the owner: the recovery point moves to where the log ended at the first step

What was appended between the first and the last step is not covered, and stays to be flushed.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headrace.log.files import Files, LogFile

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)
Background = Callable[[Callable[[], None], Callable[[Exception | None], None]], None]
"""Runs its first argument somewhere, then its second on the owner's thread with the exception, or None."""


def inline(work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
    """The `Background` that is none: everything at once, here."""
    try:
        work()
    except OSError as error:
        done(error)
    else:
        done(None)


def nobody() -> None:
    """The `on_flush` of a log that nobody waits for."""


class FlushWork(NamedTuple):
    """What has to reach the disk for the log to be safe up to `end_offset`."""

    end_offset: int
    truncations: int
    """How often the log had been truncated: a flush from before a truncation says nothing of what came after."""

    files: Files
    logs: list[LogFile]
    paths: list[Path]
    directories: list[Path]

    def run(self) -> None:
        """Return once it is on the disk; what was deleted meanwhile need not be. Raises OSError. Any thread."""
        for log in self.logs:
            log.sync()
        for path in self.paths:
            with suppress(FileNotFoundError):
                self.files.open_readonly(path).sync()
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


def begin(log: PartitionLog, end_offset: int) -> FlushWork:
    """What to sync for the log to be safe up to `end_offset` (exclusive). The active segment's indexes are left out:
    recovery makes them again."""
    bases = [segment.base_offset for segment in log.segments]
    first = max(0, bisect_right(bases, log.recovery_point) - 1) if log.unflushed_records else len(bases)
    unsynced = [segment for segment in log.segments[first:] if segment.base_offset < end_offset]
    paths, log.unsynced_paths = log.unsynced_paths, []
    for segment in unsynced:
        paths.append(segment.txn_index.path)
        if segment is not log.active:
            paths += segment.index.path, segment.time_index.path
    epochs_path = log.leader_epochs.take_unsynced()
    if epochs_path is not None:
        paths.append(epochs_path)
        log.note_unsynced(log.directory)
    directories, log.unsynced_directories = log.unsynced_directories, []
    logs = [segment.file for segment in unsynced]
    return FlushWork(end_offset, log.truncations, log.files, logs, paths, directories)


def finish(log: PartitionLog, work: FlushWork, now_ms: int, error: Exception | None) -> None:
    """Advance the recovery point; after a failure never again, as a later fsync may say yes to what was lost."""
    if log.failure is not None:
        return
    if error is not None:
        log.failure = f"{log.partition} could not be flushed: {error}"
        logger.error("%s; it takes no more records", log.failure)
    elif work.truncations == log.truncations:
        log.recovery_point = max(log.recovery_point, work.end_offset)
        log.last_flush_ms = now_ms


def finish_in_background(log: PartitionLog, work: FlushWork, now_ms: int, error: Exception | None) -> None:
    """`finish`, for a flush that was counted as running."""
    log.flushes_running -= 1
    finish(log, work, now_ms, error)
    log.on_flush()
