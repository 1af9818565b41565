"""One flush of a log, in three steps, so that the slow one can be done on another thread.

    work = log.begin_flush()        the owner: which files hold what is not on the disk yet
    work.run()                      any thread: fsync
    log.finish_flush(work)          the owner: the recovery point moves to where the log ended at the first step

What was appended between the first and the last step is not covered, and stays to be flushed.

In the background (`in_background`) a log has one flush under way. Whatever is to be flushed meanwhile, by however
many producers, waits for the next one, which is for all of it: group commit. So no segment is synced twice for the
same records either.
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
NOTHING_WANTED = -1
"""The `flush_wanted_to` of a log for which no further flush was asked."""

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


def at_once(call: Callable[[], None]) -> None:
    """The `soon` of a log whose owner has nothing else to do first."""
    call()


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
    segments = log.segments
    first = len(segments)
    if log.unflushed_records:
        first = max(0, bisect_right(segments, log.recovery_point, key=lambda segment: segment.base_offset) - 1)
    unsynced = [segment for segment in segments[first:] if segment.base_offset < end_offset]
    paths, log.unsynced_paths = log.unsynced_paths, []
    for segment in unsynced:
        if log.files.exists(segment.txn_index.path):
            paths.append(segment.txn_index.path)
        if segment is not log.active:
            paths += segment.index.path, segment.time_index.path
    epochs_path = log.leader_epochs.take_unsynced()
    if epochs_path is not None:
        paths.append(epochs_path)
        log.note_unsynced(log.directory)
    directories, log.unsynced_directories = log.unsynced_directories, []
    logs = [segment.file for segment in unsynced]
    return FlushWork(end_offset, log.truncations, log.files, logs, list(dict.fromkeys(paths)), directories)


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


def in_background(log: PartitionLog, now_ms: int, end_offset: int) -> None:
    """Flush up to `end_offset` without waiting for it; after the flush that is under way, if one is."""
    log.flush_wanted_to = max(log.flush_wanted_to, end_offset)
    if log.is_flushing:
        return
    end_offset, log.flush_wanted_to = min(log.flush_wanted_to, log.log_end_offset), NOTHING_WANTED
    log.is_flushing = True
    work = begin(log, end_offset)
    log.background(work.run, lambda error: _ended(log, work, now_ms, error))


def _ended(log: PartitionLog, work: FlushWork, now_ms: int, error: Exception | None) -> None:
    """`finish` what ran in the background, and begin what was asked for meanwhile."""
    log.is_flushing = False
    finish(log, work, now_ms, error)
    if log.failure is None:
        if log.unflushed_records >= log.config.flush_count:
            by_count(log, now_ms)
        elif log.flush_wanted_to != NOTHING_WANTED:
            in_background(log, now_ms, log.flush_wanted_to)
    log.on_flush()


def by_count(log: PartitionLog, now_ms: int) -> int:
    """`PartitionLog.flush_by_count`."""
    end_offset = log.log_end_offset
    if end_offset - log.recovery_point < log.config.flush_count:
        return 0
    if not (log.is_flushing or log.is_flushing_soon) and log.failure is None:
        log.is_flushing_soon = True
        log.soon(lambda: _by_count_now(log, now_ms))
    return end_offset if log.recovery_point < end_offset else 0


def _by_count_now(log: PartitionLog, now_ms: int) -> None:
    log.is_flushing_soon = False
    if log.failure is None and log.unflushed_records:
        in_background(log, now_ms, log.log_end_offset)
