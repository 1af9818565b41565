"""Manages all logs of a broker in its data directories.

    manager = LogManager([Path("data")], broker_id=1, topic_config=config_of)     locks the directories
    manager.directories.claim(cluster_id)                                         checks the cluster and the broker id
    manager.load(now_ms)                                                          opens every partition
    manager.create(partition, topic_id, now_ms) / .get(partition) / .delete(partition, now_ms)
    manager.tick(now_ms)                                                          a few times a second
    manager.close(now_ms)

`tick` does all periodic work: flushes, retention, removal of deleted files, checkpoints, and the start of cleanings.
The caller provides the clock. It also provides the thread pools: `background`, and `cleaning` for the cleaner. Source:
Kafka's LogManager.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from os.path import dirname
from pathlib import Path
from typing import NamedTuple

from headrace.config import TopicConfig
from headrace.errors import KafkaError, StorageError
from headrace.in_slices import finished
from headrace.limits import ELEMENTS_PER_SLICE
from headrace.log import upkeep
from headrace.log.cleaning.cleaner import Cleaner
from headrace.log.cleaning.cleaner_process import ProcessWorker
from headrace.log.cleaning.cleaner_run import CleanerSettings
from headrace.log.cleaning.compaction import CleaningWorker
from headrace.log.directories.checkpointing import Checkpointing
from headrace.log.directories.checkpoints import HIGH_WATERMARK, LOG_START_OFFSET, RECOVERY_POINT
from headrace.log.directories.data_directory import DataDirectory, DataDirectoryFailed
from headrace.log.directories.directories import DataDirectories
from headrace.log.directories.moving import find_futures, settle
from headrace.log.files import Files
from headrace.log.flusher import Background, FlushScheduling, FlushWork, HeldFiles, at_once, inline
from headrace.log.partition_deletion import PartitionDeletion
from headrace.log.partition_log import PartitionLog
from headrace.log.pending_deletions import PendingDeletions, remove_files, remove_trees
from headrace.log.recovery.loading import Opening
from headrace.log.recovery.progress import LoadingStopped, RecoveryProgress
from headrace.log.upkeep import SEGMENTS_PER_SLICE
from headrace.log.writes_under_way import WritesUnderWay
from headrace.rare_collections import Lasting
from headrace.types import TopicPartition

logger = logging.getLogger(__name__)
CLOSING_THREADS = 16
TICK_MS = 1000
"""The caller calls `tick` at least this often. No period is kept more exactly than this."""

PRODUCER_EXPIRATION_CHECK_MS = 600_000


class Periods(NamedTuple):
    """The period of each task, in ms. The defaults are those of the settings.

    `producer_expiration_ms` is an age: the log forgets a producer that has been idle for this long.
    """

    retention_check_ms: int = 300_000
    checkpoint_ms: int = 60_000
    high_watermark_checkpoint_ms: int = 5_000
    producer_expiration_ms: int = 86_400_000
    log_start_checkpoint_ms: int = 60_000
    flush_check_ms: int = 0


DELETIONS_PER_SLICE = 100
"""Each closes the files of a log."""

DEFAULT_PERIODS = Periods()
DEFAULT_CLEANER = CleanerSettings()


class LogManager:
    """The logs of one broker, in its data directories. One thread owns it together with the logs."""

    def __init__(
        self,
        directories: Sequence[Path],
        *,
        broker_id: int,
        topic_config: Callable[[str], TopicConfig],
        files: Files | None = None,
        background: Background = inline,
        soon: Callable[[Callable[[], None]], object] = at_once,
        periods: Periods = DEFAULT_PERIODS,
        cleaner: CleanerSettings = DEFAULT_CLEANER,
        cleaning: Background | None = None,
        make_worker: Callable[[], CleaningWorker] = ProcessWorker,
        essential: Path | None = None,
        recovery_threads: int = 1,
    ) -> None:
        """Lock the data directories. `recovery_threads` is the number of threads for each directory at a start.

        `topic_config` returns the settings of a topic by its name. `background` and `soon` are those of the logs'
        `FlushScheduling`. Raises DataDirectoryRefused, and then holds no lock.
        """
        self.directories = DataDirectories(directories, broker_id=broker_id, files=files, essential=essential)
        self.files = self.directories.files
        self._broker_epoch = -1
        self.was_clean = False
        """Whether all directories have the mark of a clean stop. New directories have none."""
        self.topic_config = topic_config
        self.background = background
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self._numbers: dict[str, set[int]] = {}
        self.lasting = Lasting()
        """Logs, and what a broker keeps for them, which the collector of cycles need not look at."""
        self.preferred: dict[TopicPartition, Path] = {}
        """The requested data directory of partitions that are not created yet."""
        self.futures: dict[TopicPartition, Path] = {}
        """After `load`: partitions with an unfinished move, and the data directory they were moving to."""
        self._scheduling = FlushScheduling(background, soon, self._flushed, HeldFiles())
        self._on_flush: list[Callable[[TopicPartition], None]] = []
        self._periods = periods
        self.recovery_threads = recovery_threads
        """The number of threads for each directory at a start."""
        self._doomed = PendingDeletions()
        self._flush_check_due_ms = 0
        self._due: dict[Callable[[int], Iterable[None]], tuple[int, int]] = {}
        self._writes = WritesUnderWay(background)
        self.checkpoints = Checkpointing(self.files, self.logs, self.directories.in_use, self._writes.begin)
        self.cleaner = Cleaner(
            self.files,
            self.logs,
            cleaner,
            background=cleaning or background,
            write_checkpoint=self.checkpoints.cleaner_offsets_writer,
            make_worker=make_worker,
            is_recovery_point_written=True,
        )

    def release(self) -> None:
        """Release the data directories without closing the logs."""
        self.cleaner.stop()
        self.directories.release()

    def take_offline(self, path: Path, reason: str) -> list[TopicPartition]:
        """Take a failed data directory offline, and return its partitions.

        Their logs refuse appends. The broker no longer writes to the directory, and another process may lock it.
        """
        self.directories.take_offline(path, reason)
        return self._lose(path, reason)

    def _lose(self, path: Path, reason: str) -> list[TopicPartition]:
        """Forget the partitions of a data directory that has failed."""
        lost = [partition for partition, log in self.logs.items() if log.directory.parent == path]
        for partition in lost:
            log = self._drop(partition)
            log.fail(f"{partition} is in a data directory that failed: {reason}")
        self._doomed.forget(path)
        return lost

    def on_flush(self, listener: Callable[[TopicPartition], None]) -> None:
        """Call `listener` from now on with each log whose background work has ended, with success or failure."""
        self._on_flush.append(listener)

    def _flushed(self, partition: TopicPartition) -> None:
        for listener in self._on_flush:
            listener(partition)

    # Partitions

    def load(self, now_ms: int, progress: RecoveryProgress | None = None) -> None:
        """Open all partitions, and recover those of directories without a clean stop.

        Reports to `progress`, which may stop it. Any thread, while no other thread uses the manager. Raises
        LoadingStopped, and DataDirectoryRefused when a partition cannot be opened and no other directory is left.
        """
        progress = progress or RecoveryProgress()
        if len(self.directories.in_use) > 1:
            self._settle_moves()
        with ExitStack() as stack:
            openings: list[tuple[DataDirectory, Opening]] = []
            for directory in list(self.directories.in_use):
                with self.directories.leaving_out(directory.path):
                    opening = Opening(
                        self.files, directory, self.topic_config, now_ms,
                        threads=self.recovery_threads, progress=progress, scheduling=self._scheduling,
                    )  # fmt: skip
                    stack.callback(opening.close)
                    openings.append((directory, opening))
            progress.begin()
            try:
                for _, opening in openings:
                    opening.begin()
                for directory, opening in openings:
                    with self.directories.leaving_out(directory.path):
                        self._load_directory(directory, opening)
            except LoadingStopped:
                for _, opening in openings:
                    opening.take_back()
                raise
            progress.end()
            self.was_clean = bool(openings) and all(opening.was_clean for _, opening in openings)
        for task, period_ms in (
            (self.delete_old_segments, self._periods.retention_check_ms),
            (self._begin_recovery_points, self._periods.checkpoint_ms),
            (self._begin_log_starts, self._periods.log_start_checkpoint_ms),
            (self._begin_high_watermarks, self._periods.high_watermark_checkpoint_ms),
            (self.expire_producers, PRODUCER_EXPIRATION_CHECK_MS),
        ):
            self._due[task] = (now_ms + period_ms, period_ms)
        self._forget_the_missing()

    def _forget_the_missing(self) -> None:
        """Have the checkpoints written soon that have offsets of partitions that are not here. A crash while they were
        deleted leaves such; a new partition of the same name would take them at the next start."""
        if self.was_clean:
            return
        tasks = {
            RECOVERY_POINT: self._begin_recovery_points,
            LOG_START_OFFSET: self._begin_log_starts,
            HIGH_WATERMARK: self._begin_high_watermarks,
        }
        for directory in self.directories.in_use:
            for name, task in tasks.items():
                if not self.logs.keys() >= directory.read_checkpoint(name).keys():
                    self._have_done_soon(task)

    def _settle_moves(self) -> None:
        """Finish or undo moves between data directories that a stop or a crash interrupted."""
        for directory in list(self.directories.in_use):
            with self.directories.leaving_out(directory.path):
                self.futures |= find_futures(self.files, [directory.path])
        try:
            settle(
                self.files, [each.path for each in self.directories.in_use], are_all_here=not self.directories.offline
            )
        except OSError as error:
            raise DataDirectoryFailed(f"a move between data directories cannot be completed: {error}") from error

    def _load_directory(self, directory: DataDirectory, opening: Opening) -> None:
        try:
            for log in opening.logs():
                self._add(log)
            reason = self.directories.watch.failed.get(directory.path)
            if reason is not None:
                raise DataDirectoryFailed(f"data directory {directory.path} failed: {reason}")
        except (DataDirectoryFailed, OSError) as error:  # the other directories continue without these logs
            self._lose(directory.path, str(error))
            raise
        finally:
            opening.close()

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition, or None when this broker does not have it."""
        return self.logs.get(partition)

    def create(
        self, partition: TopicPartition, topic_id: bytes | None, now_ms: int, *, is_new: bool = True
    ) -> PartitionLog:
        """The log of a partition. Creates it when it does not exist, in the directory with the fewest partitions.

        A partition with `is_new=False` may be in a failed directory, and is not created while one is offline. Raises
        StorageError, and KafkaError with INCONSISTENT_TOPIC_ID when the log belongs to another topic of that name.
        """
        log = self.logs.get(partition)
        if log is None:
            self.must_not_be_offline(partition, is_new=is_new)
            (directory,) = self.directories_for_new([partition])
            log = self.make(partition, directory, topic_id, now_ms)
            self.adopt(log)
        elif topic_id is not None:
            log.set_topic_id(topic_id)
        return log

    def must_not_be_offline(self, partition: TopicPartition, *, is_new: bool) -> None:
        """Raise StorageError for a partition that is not new while a data directory is offline."""
        if self.directories.offline and not is_new:
            raise StorageError(
                f"{partition} may be in data directory {', '.join(map(str, self.directories.offline))}, which failed"
            )

    def directories_for_new(self, partitions: Iterable[TopicPartition]) -> list[Path]:
        """The data directory of each new partition, in the order of `partitions`.

        A partition goes to its preferred directory, or else to the one with the fewest partitions. Raises StorageError
        when no directory is left.
        """
        held = {directory.path: 0 for directory in self.directories.in_use}
        if not held:
            raise StorageError("all data directories have failed")
        if len(held) > 1:
            counts = Counter(dirname(log.directory) for log in self.logs.values())  # noqa: PTH120 - see `Checkpointing`
            held = {path: counts[str(path)] for path in held}
        chosen = []
        for partition in partitions:
            path = self.preferred.pop(partition, None)
            if path not in held:
                path = min(held, key=held.__getitem__)
            held[path] += 1
            chosen.append(path)
        return chosen

    def make(self, partition: TopicPartition, directory: Path, topic_id: bytes | None, now_ms: int) -> PartitionLog:
        """Create the log of a new partition in a data directory, without adding it here. Any thread.

        Raises StorageError, and KafkaError with INCONSISTENT_TOPIC_ID.
        """
        config = self.topic_config(partition.topic)
        path = directory / str(partition)
        try:
            return PartitionLog.open(
                path,
                partition,
                config,
                files=self.files,
                now_ms=now_ms,
                topic_id=topic_id,
                scheduling=self._scheduling,
            )
        except OSError as error:
            raise StorageError(f"{partition} could not be created: {error}") from error

    def adopt(self, log: PartitionLog) -> None:
        """Add a log that `make` created, unless its partition already has one."""
        if log.partition not in self.logs:
            self._add(log)

    def _add(self, log: PartitionLog) -> None:
        self.logs[log.partition] = log
        self._numbers.setdefault(log.partition.topic, set()).add(log.partition.partition)
        self.lasting.made()

    def _drop(self, partition: TopicPartition) -> PartitionLog:
        numbers = self._numbers[partition.topic]
        numbers.discard(partition.partition)
        if not numbers:
            del self._numbers[partition.topic]
        return self.logs.pop(partition)

    def partitions_of(self, topic: str) -> Collection[int]:
        """The numbers of a topic's partitions that have a log here."""
        return self._numbers.get(topic, ())

    def begin_deletion(self, partitions: Iterable[TopicPartition]) -> PartitionDeletion:
        """Begin to delete the partitions that this broker has. Their logs refuse appends from now on.

        The result's `run()` renames their directories.
        """
        logs = [log for partition in partitions if (log := self.logs.get(partition)) is not None]
        return PartitionDeletion(self.files, logs)

    def finish_deletion(
        self, deletion: PartitionDeletion, now_ms: int
    ) -> Generator[None, None, dict[TopicPartition, OSError]]:
        """After `run()`: schedule the removal of the directories after `file.delete.delay.ms`. In slices.

        Returns the error of each partition that could not be deleted. Such a partition stays known, so that the next
        attempt does not take it for deleted. The checkpoints are written again without the others: a partition that is
        made anew must not take the log start offset, recovery point or high watermark of the one before at a start
        after a crash. `when_written` says when they are.
        """
        cleaned: set[Path] = set()
        outdated: set[str] = set()
        for number, (log, doomed) in enumerate(deletion.finish(), 1):
            if self.logs.get(log.partition) is log:
                self._drop(log.partition)
            self._doomed.add([doomed], now_ms + log.config.file_delete_delay_ms)
            if log.cleaned_to:  # otherwise a new topic of this name would count as cleaned
                cleaned.add(doomed.parent)
            outdated.update(_offsets_kept(log))
            if number % DELETIONS_PER_SLICE == 0:
                yield
        for directory in cleaned:
            self.checkpoints.save_cleaner_offsets(directory)
        for name in sorted(outdated):
            yield from self.checkpoints.begin(name)
        return {log.partition: error for log, error in deletion.errors.items()}

    def when_written(self, then: Callable[[], None]) -> None:
        """Call `then` when all writes of checkpoints that have begun until now have ended, with success or failure."""
        self._writes.when_ended(then)

    def delete(self, partition: TopicPartition, now_ms: int) -> None:
        """Delete one partition at once. Raises StorageError; the caller may then try again."""
        deletion = self.begin_deletion([partition])
        deletion.run()
        for error in finished(self.finish_deletion(deletion, now_ms)).values():
            raise StorageError(f"{partition} could not be deleted: {error}") from error

    def moved(self, log: PartitionLog, source: Path) -> None:
        """Note that a log has moved from the data directory `source`, and update both checkpoints."""
        for task in (self._begin_recovery_points, self._begin_high_watermarks, self._begin_log_starts):
            self._have_done_soon(task)
        if log.cleaned_to:
            for directory in (source, log.directory.parent):
                if directory not in self.directories.offline:
                    self.checkpoints.save_cleaner_offsets(directory)

    def configure(self, topic: str) -> None:
        """Apply a topic's current settings to its logs."""
        config = self.topic_config(topic)
        for number in self.partitions_of(topic):
            self.logs[TopicPartition(topic, number)].configure(config)

    # Time

    def expire_producers_after(self, age_ms: int) -> None:
        """Forget producers that have been idle for this long, from now on."""
        self._periods = self._periods._replace(producer_expiration_ms=age_ms)

    def tick(self, now_ms: int) -> None:
        """Do the work that is due without a pause."""
        for _ in self.work(now_ms):
            pass

    def work(self, now_ms: int) -> Iterator[None]:
        """Do the work that is due. Yields after so many logs: the caller serves others, and logs may come and go.

        An error of one log is logged, and does not stop the work of the others.
        """
        period_ms = self._periods.flush_check_ms
        are_flushes_due = now_ms >= self._flush_check_due_ms
        if are_flushes_due:
            self._flush_check_due_ms = now_ms + period_ms if period_ms > TICK_MS else 0
        removed: list[str] = []
        trimmed: list[PartitionLog] = []

        def look_after(log: PartitionLog) -> None:
            if log.flusher.is_put_off:
                log.flusher.try_again(now_ms)
            elif are_flushes_due and log.flusher.is_due(now_ms):
                log.flusher.flush_in_background(now_ms)
            self.checkpoints.secure_closed_segments(log, now_ms)
            if log.removals:  # as long as a slice of a deletion of records is followed by another, too
                removed.extend(log.removals.take_due(now_ms))
                if upkeep.has_segments_below_start(log):
                    trimmed.append(log)
            if log.take_cleaned_to_lowered():
                self.checkpoints.save_cleaner_offsets(log.directory.parent)

        yield from self._each_log(look_after)
        yield from self.checkpoints.begin_extra(now_ms)
        self._remove(removed, self._doomed.take_due(now_ms))
        for task, (due_ms, task_period_ms) in list(self._due.items()):
            if now_ms >= due_ms:
                self._due[task] = (now_ms + task_period_ms, task_period_ms)
                yield from task(now_ms)
        yield from self._delete_segments(trimmed, upkeep.delete_below_start, now_ms)
        self.cleaner.tick(now_ms)

    def _each_log(self, do: Callable[[PartitionLog], object]) -> Iterator[None]:
        """Do something with each log that is still there. Yields after so many."""
        for number, (partition, log) in enumerate(list(self.logs.items()), 1):
            if self.logs.get(partition) is log:
                do(log)
            if number % ELEMENTS_PER_SLICE == 0:
                yield

    def _remove(self, paths: list[str], doomed: list[str]) -> None:
        """Remove files and directories in the background: large files and many directories take long to remove."""
        if paths:
            self.background(lambda: remove_files(self.files, paths), _nothing_more)
        if doomed:
            self.background(lambda: remove_trees(self.files, doomed), _nothing_more)

    def delete_old_segments(self, now_ms: int) -> Iterator[None]:
        """Apply retention to all logs, in slices."""
        return self._delete_segments(list(self.logs.values()), upkeep.delete_old_segments, now_ms)

    def _delete_segments(
        self, logs: Iterable[PartitionLog], delete: Callable[[PartitionLog, int, int], int], now_ms: int
    ) -> Iterator[None]:
        """Delete segments of logs, in slices: `delete` deletes up to so many of a log, and returns how many it did."""
        left = SEGMENTS_PER_SLICE
        for number, log in enumerate(logs, 1):
            has_more = True
            while has_more and self._may_delete_from(log):
                try:
                    deleted = delete(log, now_ms, left)
                except (OSError, KafkaError) as error:
                    logger.error("%s: segments could not be deleted: %s", log.partition, error)
                    break
                has_more = deleted == left
                left -= deleted
                if not left:
                    yield
                    left = SEGMENTS_PER_SLICE
            if number % ELEMENTS_PER_SLICE == 0:
                yield

    def _may_delete_from(self, log: PartitionLog) -> bool:
        """Whether a log is still there and can lose segments. A truncation may rename its directory."""
        return self.logs.get(log.partition) is log and log.failure is None and not log.is_truncating

    def expire_producers(self, now_ms: int) -> Iterator[None]:
        """Remove the state of producers that wrote nothing for `producer.id.expiration.ms`, in slices."""
        return self._each_log(lambda log: log.producers.expire(now_ms, self._periods.producer_expiration_ms))

    def checkpoint(self) -> None:
        """Checkpoint the recovery points of all logs. Raises OSError."""
        self.checkpoints.write(RECOVERY_POINT)

    def checkpoint_log_starts(self) -> None:
        """Checkpoint the log start offsets of all logs. Raises OSError."""
        self.checkpoints.write(LOG_START_OFFSET)

    def checkpoint_high_watermarks(self) -> None:
        """Checkpoint the high watermarks of all logs. Raises OSError."""
        self.checkpoints.write(HIGH_WATERMARK)

    def _begin_recovery_points(self, _now_ms: int) -> Iterable[None]:
        return self.checkpoints.begin(RECOVERY_POINT)

    def _begin_log_starts(self, _now_ms: int) -> Iterable[None]:
        return self.checkpoints.begin(LOG_START_OFFSET)

    def _begin_high_watermarks(self, _now_ms: int) -> Iterable[None]:
        return self.checkpoints.begin(HIGH_WATERMARK)

    def checkpoint_log_starts_soon(self) -> None:
        """Checkpoint the log start offsets at the next tick, after a log start offset has moved."""
        self._have_done_soon(self._begin_log_starts)

    def _have_done_soon(self, task: Callable[[int], Iterable[None]]) -> None:
        if task in self._due:
            self._due[task] = (0, self._due[task][1])

    def registered(self, broker_epoch: int) -> None:
        """Sets the epoch of the broker's registration, which the marks of a clean stop name."""
        self._broker_epoch = broker_epoch

    def close(self, now_ms: int) -> None:
        """Close all logs. A directory whose logs all closed gets a mark, so that the next start skips recovery."""
        self.cleaner.stop()
        unclean: set[Path] = set()
        works: list[tuple[PartitionLog, FlushWork | None]] = []
        for log in self.logs.values():
            try:
                works.append((log, log.begin_close()))
            except StorageError as error:
                logger.error("%s", error)
                unclean.add(log.directory.parent)
        errors = _run_together([work for _, work in works if work is not None])
        for log, work in works:
            try:
                log.finish_close(work, now_ms, None if work is None else next(errors))
            except StorageError as error:
                logger.error("%s", error)
                unclean.add(log.directory.parent)
        try:
            self.checkpoint()
            self.checkpoint_log_starts()
            self.checkpoint_high_watermarks()
            for directory in self.directories.in_use:
                if directory.path not in unclean:
                    directory.leave_clean_mark(self._broker_epoch)
        except OSError as error:  # Without the mark, the next start recovers the logs from the last checkpoint on.
            logger.error("this stop is not clean, the next start recovers the logs: %s", error)
        self.release()
        self.logs.clear()
        self._numbers.clear()


def _offsets_kept(log: PartitionLog) -> Iterator[str]:
    """The checkpoints that may have an offset of this log, other than 0."""
    if log.log_start_offset > 0:
        yield LOG_START_OFFSET
    if log.log_end_offset > 0 or log.flusher.checkpointed_to > 0:
        yield HIGH_WATERMARK
        yield RECOVERY_POINT


def _nothing_more(_error: Exception | None) -> None:
    """Do nothing: no caller waits for this work."""


def _run_together(works: list[FlushWork]) -> Iterator[Exception | None]:
    """Run flushes in parallel, because a file system combines waiting syncs. Yields the error of each, or None."""
    if len(works) < 2:
        return map(FlushWork.try_run, works)
    from concurrent.futures import ThreadPoolExecutor  # a start does not need it

    with ThreadPoolExecutor(CLOSING_THREADS) as pool:
        return iter(list(pool.map(FlushWork.try_run, works)))
