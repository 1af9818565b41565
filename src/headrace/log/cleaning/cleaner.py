"""The cleaner: chooses the dirtiest log, has it compacted, and swaps the cleaned segments in.

    look ─▶ logs that are due, dirtiest first ─▶ one by one: plan ─▶ group: clean, swap ─▶ … ─▶ sync, checkpoint
     ▲                                                                                             │
     '── at once when something was cleaned, else after log.cleaner.backoff.ms ◀────────────────────'

The logs' owner decides, swaps and keeps the state. `background` does the work and every sync, one job at a time for
each of `log.cleaner.threads`. If a log was truncated or deleted meanwhile, its result is discarded, and a later look
starts again. Damage, or a bug, makes a log uncleanable until the next start. A disk error does not, because a full disk
needs cleaning most. Source: Kafka's LogCleaner, LogCleanerManager.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from headrace.errors import CorruptMessage
from headrace.log.cleaning.cleaner_choice import Cleanable, cleanable
from headrace.log.cleaning.cleaner_process import ProcessDied, ProcessWorker
from headrace.log.cleaning.cleaner_run import CleanerNumbers, CleanerRun, CleanerSettings, Lane
from headrace.log.cleaning.compaction import (
    CleanedGroup,
    CleaningJob,
    CleaningStopped,
    CleaningWorker,
    remove_cleaned,
)
from headrace.log.cleaning.compaction_swap import replace_segments
from headrace.log.files import Files
from headrace.log.flusher import Background
from headrace.log.partition_log import PartitionLog
from headrace.log.segment.aborted_transactions import aborted_transactions
from headrace.types import TopicPartition

logger = logging.getLogger(__name__)
DEATHS_MAX = 3
"""How often the process may die over one log before the cleaner gives that log up."""


class Cleaner:
    """The cleaner of one broker's logs."""

    def __init__(
        self,
        files: Files,
        logs: Mapping[TopicPartition, PartitionLog],
        settings: CleanerSettings,
        *,
        background: Background,
        write_checkpoint: Callable[[Path], Callable[[], None]],
        make_worker: Callable[[], CleaningWorker] = ProcessWorker,
        is_recovery_point_written: bool = False,
    ) -> None:
        """`write_checkpoint(data directory)` is called on the owner's thread; the function it returns runs on any.

        With `is_recovery_point_written` a log is cleaned only up to the recovery point in the checkpoint, because a
        start after a crash takes segments above it that end early for damaged.
        """
        self.numbers = CleanerNumbers()
        self.uncleanable: dict[TopicPartition, str] = {}
        self.paused: set[TopicPartition] = set()
        """Logs that must not be cleaned now."""
        self.settings = settings
        self._files = files
        self._logs = logs
        self._background = background
        self._write_checkpoint = write_checkpoint
        self._make_worker = make_worker
        self._is_recovery_point_written = is_recovery_point_written
        self._now_ms = 0
        self._lanes: list[Lane] = []
        self._queue: deque[PartitionLog] = deque()
        self._look_at_ms = 0
        self._deaths: dict[TopicPartition, int] = {}
        self._retry_at_ms: dict[TopicPartition, int] = {}
        self._is_stopped = not settings.is_enabled or settings.threads == 0

    def uncleanable_in(self, directories: Iterable[Path]) -> dict[Path, tuple[int, int]]:
        """The number of uncleanable logs, and their size in bytes, for each of these data directories."""
        found = dict.fromkeys(directories, (0, 0))
        for log in [self._logs[partition] for partition in self.uncleanable if partition in self._logs]:
            count, size = found.get(log.directory.parent, (0, 0))
            found[log.directory.parent] = count + 1, size + log.size_bytes
        return found

    def is_busy_with(self, log: PartitionLog) -> bool:
        """Whether a log is being cleaned."""
        return any(lane.run is not None and lane.run.log is log for lane in self._lanes)

    def tick(self, now_ms: int) -> None:
        """Begin the cleanings that are due. The cleaner uses `now_ms` until the next tick."""
        self._now_ms = now_ms
        if self._is_stopped or (not self._queue and now_ms < self._look_at_ms):
            return
        if not self._queue:
            self._look(now_ms)
        while self._queue and (lane := self._free_lane()) is not None:
            lane.step(lambda lane=lane: self._begin(lane))  # type: ignore[misc]

    def configure(self, settings: CleanerSettings) -> None:
        """Take new settings: a running cleaning keeps those that it began with. `is_enabled` cannot change."""
        self.settings = settings
        self._look_at_ms = min(self._look_at_ms, self._now_ms + settings.backoff_ms)
        for lane in [each for each in self._lanes if each.run is None and each.next_step is None]:
            self._retire(lane)

    def _retire(self, lane: Lane) -> bool:
        """End the worker of an idle lane if there are more lanes than `log.cleaner.threads`."""
        if len(self._lanes) <= self.settings.threads:
            return False
        self._lanes.remove(lane)
        lane.worker.stop()
        return True

    def stop(self) -> None:
        """Stop all cleaning. The next start removes cleaned segments that were not swapped in."""
        self._is_stopped = True
        for lane in self._lanes:
            lane.worker.stop()

    # Choosing

    def _look(self, now_ms: int) -> None:
        """Find the compacted logs that are due, and how dirty the dirtiest log is."""
        self.numbers.last_look_ms = now_ms
        self._look_at_ms = now_ms + self.settings.backoff_ms
        for partition in [each for each in self.uncleanable if each not in self._logs]:
            del self.uncleanable[partition]
        self._retry_at_ms = {each: at_ms for each, at_ms in self._retry_at_ms.items() if at_ms > now_ms}
        found = []
        for log in self._logs.values():
            chosen = self._choice(log, now_ms)
            if chosen is not None:
                found.append(chosen)
        self.numbers.max_dirty_percent = 100 * max((each.ratio for each in found), default=0.0)
        self.numbers.max_waited_seconds = max((each.waited_ms / 1000 for each in found), default=0.0)
        due = sorted((each for each in found if each.is_due), key=lambda each: each.ratio, reverse=True)
        self._queue.extend(each.log for each in due)

    def _choice(self, log: PartitionLog, now_ms: int) -> Cleanable | None:
        if not log.config.is_compacted or log.failure is not None or log.partition in self.uncleanable:
            return None
        if (
            log.is_truncating
            or log.partition in self._retry_at_ms
            or log.partition in self.paused
            or self.is_busy_with(log)
        ):
            return None
        try:
            flushed_to = log.flusher.recovery_point
            if self._is_recovery_point_written:
                flushed_to = min(flushed_to, log.flusher.checkpointed_to)
            chosen = cleanable(log, now_ms, flushed_to)
            if chosen is not None and chosen.is_due:
                for segment in log.segments:  # the worker reads the files, so these have to be right
                    aborted_transactions(segment)
            return chosen
        except CorruptMessage as error:
            self._leave(log, error.message)
        except OSError as error:
            logger.warning("%s cannot be checked for cleaning: %s; the cleaner tries again later", log.partition, error)
        return None

    def _free_lane(self) -> Lane | None:
        for lane in self._lanes:
            if lane.run is None and lane.next_step is None:
                return lane
        if len(self._lanes) >= self.settings.threads:
            return None
        self._lanes.append(Lane(self._make_worker()))
        return self._lanes[-1]

    # One log

    def _begin(self, lane: Lane) -> None:
        while self._queue and not self._is_stopped:
            log = self._queue.popleft()
            if self._logs.get(log.partition) is not log:
                continue
            chosen = self._choice(log, self._now_ms)
            if chosen is None or not chosen.is_due:
                continue
            lane.run = CleanerRun(chosen, self._job_of(chosen))
            self._start(lane, lane.run)
            return

    def _start(self, lane: Lane, run: CleanerRun) -> None:
        self._in_background(lane, run, lambda: self._plan(lane, run), lambda: self._after_plan(lane, run))

    def _job_of(self, chosen: Cleanable) -> CleaningJob:
        log, settings = chosen.log, self.settings
        producers = {
            entry.producer_id: (entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
            for entry in log.producers.entries.values()
        }
        return CleaningJob(
            directory=str(log.directory),
            sizes={segment.base_offset: segment.size for segment in log.segments},
            first_dirty=chosen.first_dirty,
            first_uncleanable=chosen.first_uncleanable,
            producers=producers,
            now_ms=self._now_ms,
            delete_retention_ms=log.config.delete_retention_ms,
            segment_bytes=log.config.segment_bytes,
            segment_index_bytes=log.config.segment_index_bytes,
            index_interval_bytes=log.config.index_interval_bytes,
            map_bytes_max=settings.map_bytes_max // settings.threads,
            load_factor=settings.load_factor,
            read_bytes=settings.read_bytes // settings.threads,
            io_bytes_per_second=settings.io_bytes_per_second / settings.threads,
        )

    def _in_background(self, lane: Lane, run: CleanerRun, work: Callable[[], None], then: Callable[[], None]) -> None:
        """CleanerRun `work` in the background, then `then` on the owner's thread; or handle the error of `work`."""

        def done(error: Exception | None) -> None:
            if self._is_stopped:
                lane.run = None  # the next start removes its files
            elif error is None:
                lane.step(then)
            else:
                lane.step(lambda: self._failed(lane, run, error))

        def caught() -> None:
            failed[0] = None
            try:
                work()
            except Exception as error:  # `Background` itself knows OSError alone
                failed[0] = error

        failed: list[Exception | None] = [None]
        self._background(caught, lambda error: done(error or failed[0]))

    def _plan(self, lane: Lane, run: CleanerRun) -> None:
        run.plan = lane.worker.plan(run.job)

    def _after_plan(self, lane: Lane, run: CleanerRun) -> None:
        assert run.plan is not None
        run.groups.extend(run.plan.groups)
        self.numbers.max_map_percent = run.plan.map_percent
        logger.debug(
            "%s: the cleaner cleans up to offset %d, %d keys", run.log.partition, run.plan.end_offset, run.plan.keys
        )
        self._next_group(lane, run)

    def _next_group(self, lane: Lane, run: CleanerRun) -> None:
        if not run.groups:
            self._finish(lane, run)
            return
        group = run.at_group = run.groups.popleft()
        made: list[CleanedGroup] = []
        self._in_background(
            lane, run, lambda: made.append(lane.worker.clean(group)), lambda: self._swap(lane, run, group, made[0])
        )

    def _swap(self, lane: Lane, run: CleanerRun, group: list[int], made: CleanedGroup) -> None:
        if not self._is_intact(run, group):
            logger.info("%s changed while it was being cleaned; the cleaned segments are discarded", run.log.partition)
            self._throw_away(run)
            self._end(lane)
            return
        try:
            replace_segments(run.log, [run.segments.pop(base) for base in group], made.size_bytes, self._now_ms)
        except OSError as error:
            self._failed(lane, run, error)
            return
        if made.largest_read > run.job.read_bytes:
            logger.info(
                "%s: the cleaner's read buffer grew to %d bytes for the largest batch; max.message.bytes is %d",
                run.log.partition, made.largest_read, run.log.config.max_message_bytes,
            )  # fmt: skip
        run.bytes_read += made.bytes_read
        run.bytes_kept += made.size_bytes
        if made.records_without_key:
            logger.warning(
                "%s: the cleaner removed %d records without a key, written before the topic was compacted",
                run.log.partition, made.records_without_key,
            )  # fmt: skip
        self._next_group(lane, run)

    def _is_intact(self, run: CleanerRun, bases: Iterable[int]) -> bool:
        return self._logs.get(run.log.partition) is run.log and run.is_intact(bases)

    def _throw_away(self, run: CleanerRun) -> None:
        if run.at_group and self._logs.get(run.log.partition) is run.log:
            with suppress(OSError):  # else the next cleaning, or the next start, removes them
                remove_cleaned(self._files, run.log.directory, run.at_group[0])

    def _finish(self, lane: Lane, run: CleanerRun) -> None:
        """All groups are swapped in: sync the directory, then note the cleaned offset."""
        assert run.plan is not None
        log, end_offset, directory = run.log, run.plan.end_offset, run.log.directory
        self._in_background(
            lane, run, lambda: self._files.sync_directory(directory), lambda: self._note(lane, run, log, end_offset)
        )

    def _note(self, lane: Lane, run: CleanerRun, log: PartitionLog, end_offset: int) -> None:
        if log.truncations == run.truncations:
            log.cleaned(end_offset)
        if end_offset <= run.job.first_dirty:  # no step forward: not again at once
            self._retry_at_ms[log.partition] = self._now_ms + self.settings.backoff_ms
        write = self._write_checkpoint(log.directory.parent)
        self._in_background(lane, run, write, lambda: self._report(lane, run))

    def _report(self, lane: Lane, run: CleanerRun) -> None:
        seconds = time.monotonic() - run.began
        numbers = self.numbers
        numbers.recopy_percent = 100 * run.bytes_kept / max(1, run.bytes_read)
        numbers.max_clean_seconds = max(numbers.max_clean_seconds, seconds)
        numbers.logs_cleaned += 1
        numbers.bytes_removed += run.bytes_read - run.bytes_kept
        self._deaths.pop(run.log.partition, None)
        logger.info(
            "%s: the log was cleaned up to offset %d in %.1f s, from %d bytes to %d",
            run.log.partition, run.job.first_uncleanable if run.plan is None else run.plan.end_offset, seconds,
            run.bytes_read, run.bytes_kept,
        )  # fmt: skip
        self._look_at_ms = 0
        self._end(lane)

    def _end(self, lane: Lane) -> None:
        """Finish this log, and begin the next one."""
        lane.run = None
        if not self._queue and self._look_at_ms == 0:
            self._look(self._now_ms)
        if self._retire(lane):
            return
        if self._queue and not self._is_stopped:
            lane.step(lambda: self._begin(lane))

    # Trouble

    def _failed(self, lane: Lane, run: CleanerRun, error: Exception) -> None:
        log = run.log
        if isinstance(error, CleaningStopped):
            lane.run = None
            return
        self._throw_away(run)
        self._retry_at_ms[log.partition] = self._now_ms + self.settings.backoff_ms
        if not self._is_intact(run, run.segments) and not isinstance(error, ProcessDied):
            logger.info("%s changed while it was being cleaned; the cleaner tries again later", log.partition)
        elif isinstance(error, OSError):
            logger.warning("%s could not be cleaned: %s; it will be tried again", log.partition, error)
        elif isinstance(error, ProcessDied):
            deaths = self._deaths[log.partition] = self._deaths.get(log.partition, 0) + 1
            if deaths >= DEATHS_MAX:
                self._leave(log, f"{error}, {deaths} times")
            else:
                logger.warning("%s could not be cleaned: %s; it will be tried again", log.partition, error)
        else:
            self._leave(log, error.message if isinstance(error, CorruptMessage) else str(error))
        self._end(lane)

    def _leave(self, log: PartitionLog, reason: str) -> None:
        """Do not clean this log again until the next start."""
        self.uncleanable[log.partition] = reason
        logger.error(
            "%s cannot be cleaned and grows until the next start: %s. Find the damage with `headrace log verify %s`; "
            "then stop the broker and run `headrace log repair`, or delete this replica if another is in sync",
            log.partition, reason, log.directory,
        )  # fmt: skip
