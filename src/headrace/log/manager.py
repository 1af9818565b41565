"""Every log of a broker, over its data directories.

    manager = LogManager([Path("data")], broker_id=1, topic_config=config_of)     locks the directories
    manager.claim(cluster_id)                                                     refuses another cluster's or broker's
    manager.load(now_ms)                                                          opens every partition
    manager.create(partition, topic_id, now_ms) / .get(partition) / .delete(partition, now_ms)
    manager.tick(now_ms)                                                          a few times a second
    manager.close(now_ms)

`tick` is where everything happens that time asks for: flushes, retention, removal of deleted files, checkpoints, and
the beginning of cleanings. The clock is the caller's; so are the thread pools, when `background` is given, and
`cleaning` for the cleaner's own. Source: Kafka's LogManager.
"""

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from headrace.config import TopicConfig
from headrace.errors import KafkaError, StorageError
from headrace.log.checkpointing import Checkpointing
from headrace.log.cleaner import Cleaner
from headrace.log.cleaner_process import ProcessWorker
from headrace.log.cleaner_run import CleanerSettings
from headrace.log.compaction import CleaningWorker
from headrace.log.data_directory import DataDirectory, DataDirectoryFailed
from headrace.log.directories import DataDirectories
from headrace.log.files import Files
from headrace.log.flush import Background, FlushWork, inline
from headrace.log.loading import Opening
from headrace.log.moving import find_futures, settle
from headrace.log.partition_log import PartitionLog
from headrace.log.progress import LoadingStopped, Progress
from headrace.types import TopicPartition

logger = logging.getLogger(__name__)
CLOSING_THREADS = 16
TICK_MS = 1000
"""How often `tick` is to be called, or more often: no period that it looks after is kept more exactly."""

PRODUCER_EXPIRATION_CHECK_MS = 600_000


class Periods(NamedTuple):
    """How often each upkeep is done, in ms; the defaults are the settings' own."""

    retention_check_ms: int = 300_000
    checkpoint_ms: int = 60_000
    high_watermark_checkpoint_ms: int = 5_000
    producer_expiration_ms: int = 86_400_000
    log_start_checkpoint_ms: int = 60_000
    flush_check_ms: int = 0


DEFAULT_PERIODS = Periods()
DEFAULT_CLEANER = CleanerSettings()


class LogManager(DataDirectories):
    """The logs of one broker, in its data directories. Single owner, as the logs are."""

    def __init__(
        self,
        directories: Sequence[Path],
        *,
        broker_id: int,
        topic_config: Callable[[str], TopicConfig],
        files: Files | None = None,
        background: Background = inline,
        periods: Periods = DEFAULT_PERIODS,
        cleaner: CleanerSettings = DEFAULT_CLEANER,
        cleaning: Background | None = None,
        make_worker: Callable[[], CleaningWorker] = ProcessWorker,
        essential: Path | None = None,
        recovery_threads: int = 1,
    ) -> None:
        """Lock the data directories. `recovery_threads` for each at a start. Raises DataDirectoryRefused, and then
        holds none."""
        super().__init__(directories, broker_id=broker_id, files=files, essential=essential)
        self.broker_epoch = -1  # of its registration, for the marks of a clean stop
        self.was_clean = False
        """Whether the last stop left all directories as they were meant to be; not of new ones."""
        self.topic_config = topic_config
        self.background = background
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.preferred: dict[TopicPartition, Path] = {}
        """Where a partition that is not here yet is to be made."""
        self.futures: dict[TopicPartition, Path] = {}
        """At a start: partitions that were on their way to another directory."""
        self._periods = periods
        self._recovery_threads = recovery_threads
        self._doomed: list[tuple[int, Path]] = []
        self._flush_check_due_ms = 0
        self._due: dict[Callable[[int], None], tuple[int, int]] = {}
        self.checkpoints = Checkpointing(self.files, self.logs, self.directories, background)
        self.cleaner = Cleaner(
            self.files,
            self.logs,
            cleaner,
            background=cleaning or background,
            write_checkpoint=self.checkpoints.cleaner_offsets_writer,
            make_worker=make_worker,
        )
        self.lock()

    def release(self) -> None:
        """Let go of the data directories, without closing anything."""
        self.cleaner.stop()
        super().release()

    def take_offline(self, path: Path, reason: str) -> list[TopicPartition]:
        """Go on without a data directory that has failed; the partitions that were in it. Their logs take nothing more,
        and nothing is written to the directory, which another process may now lock."""
        super().take_offline(path, reason)
        lost = [partition for partition, log in self.logs.items() if log.directory.parent == path]
        for partition in lost:
            log = self.logs.pop(partition)
            log.failure = f"{partition} is in a data directory that failed: {reason}"
        self._doomed = [(at_ms, doomed) for at_ms, doomed in self._doomed if doomed.parent != path]
        return lost

    # Partitions

    def load(self, now_ms: int, progress: Progress | None = None) -> None:
        """Open every partition there is, recovering those of a directory that was not closed; `progress` is told, and
        may stop it. Any thread, while nobody else uses this. Raises DataDirectoryRefused for one that cannot be opened,
        when there is no other directory; LoadingStopped."""
        progress = progress or Progress()
        if len(self.directories) > 1:
            self._settle_moves()
        with ExitStack() as stack:
            openings: list[tuple[DataDirectory, Opening]] = []
            for directory in list(self.directories):
                with self.leaving_out(directory.path):
                    opening = Opening(
                        self.files, directory, self.topic_config, now_ms,
                        threads=self._recovery_threads, progress=progress,
                    )  # fmt: skip
                    stack.callback(opening.close)
                    openings.append((directory, opening))
            progress.begin()
            try:
                for _, opening in openings:
                    opening.begin()
                for directory, opening in openings:
                    with self.leaving_out(directory.path):
                        self._load_directory(directory, opening)
            except LoadingStopped:
                for _, opening in openings:
                    opening.take_back()
                raise
            progress.end()
            self.was_clean = bool(openings) and all(opening.was_clean for _, opening in openings)
        for task, period_ms in (
            (self.delete_old_segments, self._periods.retention_check_ms),
            (self.checkpoint, self._periods.checkpoint_ms),
            (self.checkpoint_log_starts, self._periods.log_start_checkpoint_ms),
            (self.checkpoint_high_watermarks, self._periods.high_watermark_checkpoint_ms),
            (self.expire_producers, PRODUCER_EXPIRATION_CHECK_MS),
        ):
            self._due[task] = (now_ms + period_ms, period_ms)

    def _settle_moves(self) -> None:
        """What moves between directories left behind."""
        for directory in list(self.directories):
            with self.leaving_out(directory.path):
                self.futures |= find_futures(self.files, [directory.path])
        try:
            settle(self.files, [each.path for each in self.directories], are_all_here=not self.offline)
        except OSError as error:
            raise DataDirectoryFailed(f"a move between data directories cannot be ended: {error}") from error

    def _load_directory(self, directory: DataDirectory, opening: Opening) -> None:
        try:
            for log in opening.logs():
                log.background = self.background
                self.logs[log.partition] = log
        finally:
            opening.close()
        if directory.path in self.watch.failed:
            raise DataDirectoryFailed(f"data directory {directory.path} failed: {self.watch.failed[directory.path]}")

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """A partition's log, if this broker has it."""
        return self.logs.get(partition)

    def create(
        self, partition: TopicPartition, topic_id: bytes | None, now_ms: int, *, is_new: bool = True
    ) -> PartitionLog:
        """A partition's log, made when it is not there, in the directory that has the fewest. One that is not new may
        be in a directory that failed, and is not made anew then. Raises StorageError, and INCONSISTENT_TOPIC_ID for a
        partition of another topic of that name."""
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
        """Raises StorageError for a partition that is not here and may be in a directory that failed."""
        if self.offline and not is_new:
            raise StorageError(f"{partition} may be in {', '.join(map(str, self.offline))}, which failed")

    def directories_for_new(self, partitions: Iterable[TopicPartition]) -> list[Path]:
        """Where new partitions should go: where they were asked to be, else so that each directory has about as many as
        the others. Raises StorageError when no directory is left."""
        held = {directory.path: 0 for directory in self.directories}
        if not held:
            raise StorageError("every data directory has failed")
        for log in self.logs.values() if len(held) > 1 else ():
            held[log.directory.parent] += 1
        chosen = []
        for partition in partitions:
            path = self.preferred.pop(partition, None)
            if path not in held:
                path = min(held, key=held.__getitem__)
            held[path] += 1
            chosen.append(path)
        return chosen

    def make(self, partition: TopicPartition, directory: Path, topic_id: bytes | None, now_ms: int) -> PartitionLog:
        """The log of a new partition, on the disk but not yet this manager's. Any thread. Raises StorageError."""
        config = self.topic_config(partition.topic)
        path = directory / str(partition)
        try:
            return PartitionLog.open(path, partition, config, files=self.files, now_ms=now_ms, topic_id=topic_id)
        except OSError as error:
            raise StorageError(f"{partition} could not be created: {error}") from error

    def adopt(self, log: PartitionLog) -> None:
        """Look after a log that `make` made, unless there is one for its partition already."""
        log.background = self.background
        self.logs.setdefault(log.partition, log)

    def delete(self, partition: TopicPartition, now_ms: int) -> None:
        """Take a partition away; its directory is renamed now and removed after `file.delete.delay.ms`. Raises
        StorageError, and may then be called again."""
        log = self.logs.get(partition)
        if log is not None:
            try:
                doomed = log.delete(uuid.uuid4().hex)
            except OSError as error:  # it stays known: the next attempt must not take it for gone
                raise StorageError(f"{partition} could not be deleted: {error}") from error
            del self.logs[partition]
            self._doomed.append((now_ms + log.config.file_delete_delay_ms, doomed))
            if log.cleaned_to:  # or a topic made anew under the name would pass for clean
                self.checkpoints.save_cleaner_offsets(log.directory.parent)

    def moved(self, log: PartitionLog, source: Path) -> None:
        """A log is in another data directory now: have the checkpoints of both say so."""
        for task in (self.checkpoint, self.checkpoint_high_watermarks, self.checkpoint_log_starts):
            self._have_done_soon(task)
        if log.cleaned_to:
            for directory in (source, log.directory.parent):
                if directory not in self.offline:
                    self.checkpoints.save_cleaner_offsets(directory)

    def configure(self, topic: str) -> None:
        """Have a topic's logs go on with its settings of now."""
        config = self.topic_config(topic)
        for partition, log in self.logs.items():
            if partition.topic == topic:
                log.configure(config)

    # Time

    def tick(self, now_ms: int) -> None:
        """Do what is due. What one log's disk refuses is logged, and does not keep the others from theirs."""
        if now_ms >= self._flush_check_due_ms:
            self._flush_what_is_due(now_ms)
        self.checkpoints.secure_closed_segments(now_ms)
        for log in self.logs.values():
            if log.removals:
                self._try(log.purge, now_ms)
            if log.cleaned_to_was_lowered:
                log.cleaned_to_was_lowered = False
                self.checkpoints.save_cleaner_offsets(log.directory.parent)
        for task, (due_ms, period_ms) in self._due.items():
            if now_ms >= due_ms:
                self._due[task] = (now_ms + period_ms, period_ms)
                self._try(task, now_ms)
        while self._doomed and self._doomed[0][0] <= now_ms:
            self._try(self._remove_doomed, now_ms)
        self.cleaner.tick(now_ms)

    def _flush_what_is_due(self, now_ms: int) -> None:
        period_ms = self._periods.flush_check_ms
        self._flush_check_due_ms = now_ms + period_ms if period_ms > TICK_MS else 0
        for log in self.logs.values():
            if log.flush_due(now_ms):
                log.flush_in_background(now_ms)

    def _remove_doomed(self, _now_ms: int) -> None:
        self.files.remove_tree(self._doomed.pop(0)[1])

    def _try(self, task: Callable[[int], object], now_ms: int) -> None:
        try:
            task(now_ms)
        except (OSError, KafkaError) as error:
            logger.error("%s: %s", task.__qualname__, error)

    def delete_old_segments(self, now_ms: int) -> None:
        """Apply every log's retention."""
        for log in self.logs.values():
            self._try(log.delete_old_segments, now_ms)

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that wrote nothing for `producer.id.expiration.ms`."""
        for log in self.logs.values():
            log.producers.expire(now_ms, self._periods.producer_expiration_ms)

    def checkpoint(self, now_ms: int) -> None:
        """Write down every log's recovery point. Raises OSError."""
        self.checkpoints.recovery_points()

    def checkpoint_log_starts(self, now_ms: int) -> None:
        """Write down every log's start. Raises OSError."""
        self.checkpoints.log_starts()

    def checkpoint_high_watermarks(self, now_ms: int) -> None:
        """Write down every log's high watermark. Raises OSError."""
        self.checkpoints.high_watermarks()

    def checkpoint_log_starts_soon(self) -> None:
        """Have the next tick write down where logs start: somebody counts on a new start."""
        self._have_done_soon(self.checkpoint_log_starts)

    def _have_done_soon(self, task: Callable[[int], None]) -> None:
        if task in self._due:
            self._due[task] = (0, self._due[task][1])

    def close(self, now_ms: int) -> None:
        """Close every log; a directory whose logs all closed is marked, so that the next start skips recovery."""
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
            self.checkpoint(now_ms)
            self.checkpoint_log_starts(now_ms)
            self.checkpoint_high_watermarks(now_ms)
            for directory in self.directories:
                if directory.path not in unclean:
                    directory.leave_clean_mark(self.broker_epoch)
        except OSError as error:  # without the mark the next start reads what is behind the last checkpoint
            logger.error("the stop is not clean: %s", error)
        self.release()
        self.logs.clear()


def _run_together(works: list[FlushWork]) -> Iterator[Exception | None]:
    """Run flushes at the same time: a file system writes many waiting syncs at once. Yields how each ended."""
    if len(works) < 2:
        return map(FlushWork.try_run, works)
    from concurrent.futures import ThreadPoolExecutor  # a start does not need it

    with ThreadPoolExecutor(CLOSING_THREADS) as pool:
        return iter(list(pool.map(FlushWork.try_run, works)))
