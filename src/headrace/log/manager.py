"""Every log of a broker, over its data directories.

    manager = LogManager([Path("data")], broker_id=1, topic_config=config_of)     locks the directories
    manager.claim(cluster_id)                                                     refuses another cluster's or broker's
    manager.load(now_ms)                                                          opens every partition
    manager.create(partition, topic_id, now_ms) / .get(partition) / .delete(partition, now_ms)
    manager.tick(now_ms)                                                          a few times a second
    manager.close(now_ms)

A directory that its disk fails is left out, at the start or by `take_offline`; the others go on. The last one, and one
that is `essential`, cannot be done without.

`tick` is where everything happens that time asks for: flushes, retention, removal of deleted files, checkpoints, and
the beginning of cleanings. The clock is the caller's; so are the thread pools, when `background` is given, and
`cleaning` for the cleaner's own. Source: Kafka's LogManager.
"""

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from headrace.config import TopicConfig
from headrace.errors import KafkaError, StorageError
from headrace.log.checkpoints import (
    CLEANER_OFFSET,
    HIGH_WATERMARK,
    LOG_START_OFFSET,
    RECOVERY_POINT,
    NewestFirst,
    write_offsets,
)
from headrace.log.cleaner import Cleaner, CleanerSettings
from headrace.log.cleaner_process import ProcessWorker
from headrace.log.compaction import CleaningWorker
from headrace.log.data_directory import DataDirectory, DataDirectoryFailed
from headrace.log.files import Files, LocalFiles
from headrace.log.flush import Background, FlushWork, inline
from headrace.log.loading import Opening
from headrace.log.moving import find_futures, settle
from headrace.log.partition_log import PartitionLog
from headrace.log.progress import LoadingStopped, Progress
from headrace.log.watched_files import DirectoryWatch, WatchedFiles
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


class LogManager:
    """The logs of one broker. Single owner, as the logs are."""

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
        disk = files or LocalFiles()
        self.watch = DirectoryWatch(disk, directories)
        self.files: Files = WatchedFiles(disk, self.watch)
        self.broker_id = broker_id
        self.broker_epoch = -1  # of its registration, for the marks of a clean stop
        self.was_clean = False
        """Whether the last stop left all directories as they were meant to be; not of new ones."""
        self.topic_config = topic_config
        self.background = background
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.directories: list[DataDirectory] = []
        """Those that are in use."""
        self.offline: dict[Path, str] = {}
        """Those that failed, and why."""
        self.essential = essential
        self.preferred: dict[TopicPartition, Path] = {}
        """Where a partition that is not here yet is to be made."""
        self.futures: dict[TopicPartition, Path] = {}
        """At a start: partitions that were on their way to another directory."""
        self.incoming: dict[TopicPartition, Path] = {}
        """Partitions that are about to be in another directory: its checkpoints know them already."""
        self._count = len(directories)
        self._periods = periods
        self._recovery_threads = recovery_threads
        self._doomed: list[tuple[int, Path]] = []
        self._flush_check_due_ms = 0
        self._due: dict[Callable[[int], None], tuple[int, int]] = {}
        self._cleaner_offsets = NewestFirst()
        self._recovery_points = NewestFirst()
        self._checkpointing: set[Path] = set()
        """Directories whose recovery points are being written down outside the regular turn, or could not be."""
        self.cleaner = Cleaner(
            self.files,
            self.logs,
            cleaner,
            background=cleaning or background,
            write_checkpoint=self._cleaner_offsets_writer,
            make_worker=make_worker,
        )
        try:
            for path in directories:
                with self._leaving_out(path):
                    self.directories.append(DataDirectory(self.files, path))
        except KafkaError:
            self.release()
            raise

    def release(self) -> None:
        """Let go of the data directories, without closing anything."""
        self.cleaner.stop()
        for directory in self.directories:
            directory.release()
        self.directories.clear()

    @property
    def cluster_id(self) -> str | None:
        """The cluster that the directories belong to; None when all are new. Raises DataDirectoryRefused."""
        found = None
        for directory in list(self.directories):
            with self._leaving_out(directory.path):
                identity = directory.identity()
                found = found or (identity and identity.cluster_id)
        return found

    @property
    def known_broker_id(self) -> int | None:
        """The broker that the directories belong to; None when all are new."""
        found = [identity for each in list(self.directories) if (identity := each.identity()) is not None]
        return found[0].broker_id if found else None

    def claim(self, cluster_id: str) -> None:
        """Mark new directories as this broker's. Raises DataDirectoryRefused for one that is another's."""
        for directory in list(self.directories):
            with self._leaving_out(directory.path):
                directory.claim(cluster_id, self.broker_id)

    def directory_id(self, new_id: Callable[[], str]) -> str:
        """What the first directory is known by among all that ever were; `new_id` when it has none yet. Raises
        DataDirectoryFailed."""
        return self.directories[0].own_id(new_id)

    # Directories that fail

    @contextmanager
    def _leaving_out(self, path: Path) -> Iterator[None]:
        """At a start: goes on without a directory that fails. Raises DataDirectoryFailed when that is not possible."""
        try:
            yield
        except (DataDirectoryFailed, OSError) as error:
            reason = error.message if isinstance(error, KafkaError) else f"{path}: {error}"
            if path == self.essential or len(self.offline) + 1 == self._count:
                raise DataDirectoryFailed(reason) from error
            logger.error("%s; the broker goes on without it, and its partitions are offline", reason)
            self.take_offline(path, reason)

    def take_offline(self, path: Path, reason: str) -> list[TopicPartition]:
        """Go on without a data directory that has failed; the partitions that were in it. Their logs take nothing more,
        and nothing is written to the directory, which another process may now lock."""
        self.offline[path] = reason
        for directory in [each for each in self.directories if each.path == path]:
            self.directories.remove(directory)
            with suppress(OSError):
                directory.release()
        lost = [partition for partition, log in self.logs.items() if log.directory.parent == path]
        for partition in lost:
            log = self.logs.pop(partition)
            log.failure = f"{partition} is in a data directory that failed: {reason}"
        self._doomed = [(at_ms, doomed) for at_ms, doomed in self._doomed if doomed.parent != path]
        return lost

    def directory(self, path: Path) -> DataDirectory | None:
        """The data directory that is meant, if it is in use."""
        return next((each for each in self.directories if each.path.absolute() == path.absolute()), None)

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
                with self._leaving_out(directory.path):
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
                    with self._leaving_out(directory.path):
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
            with self._leaving_out(directory.path):
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
                self._save_cleaner_offsets(log.directory.parent)

    def moved(self, log: PartitionLog, source: Path) -> None:
        """A log is in another data directory now: have the checkpoints of both say so."""
        for task in (self.checkpoint, self.checkpoint_high_watermarks, self.checkpoint_log_starts):
            if task in self._due:
                self._due[task] = (0, self._due[task][1])
        if log.cleaned_to:
            for directory in (source, log.directory.parent):
                if directory not in self.offline:
                    self._save_cleaner_offsets(directory)

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
        self._secure_closed_segments(now_ms)
        for log in self.logs.values():
            if log.removals:
                self._try(log.purge, now_ms)
            if log.cleaned_to_was_lowered:
                log.cleaned_to_was_lowered = False
                self._save_cleaner_offsets(log.directory.parent)
        for task, (due_ms, period_ms) in self._due.items():
            if now_ms >= due_ms:
                self._due[task] = (now_ms + period_ms, period_ms)
                self._try(task, now_ms)
        while self._doomed and self._doomed[0][0] <= now_ms:
            self._try(self._remove_doomed, now_ms)
        self.cleaner.tick(now_ms)

    def _secure_closed_segments(self, now_ms: int) -> None:
        """Have what lies before a log's active segment be on the disk, and be known to be: a start after a crash then
        reads the active segments alone. A roll flushes; what a crash left behind rolls is flushed here. A recovery
        point that a truncation has lowered is written down too."""
        rolled = set()
        for log in self.logs.values():
            base_offset = log.active.base_offset
            if base_offset > log.checkpointed_to or log.recovery_point < log.checkpointed_to:
                if log.recovery_point >= base_offset or log.recovery_point < log.checkpointed_to:
                    rolled.add(log.directory.parent)
                elif not log.is_flushing and log.failure is None:
                    log.flush_in_background(now_ms, base_offset)
        for directory in rolled - self._checkpointing:
            self._save_recovery_points(directory)

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
        refusal = None
        for directory in self.directories:
            write, done = self._recovery_point_writer(directory.path)
            try:
                write()
            except OSError as error:
                refusal = error
            else:
                self._checkpointing.discard(directory.path)
                done()
        if refusal is not None:
            raise refusal

    def checkpoint_log_starts(self, now_ms: int) -> None:
        """Write down every log's start. Raises OSError."""
        self._write(LOG_START_OFFSET, _start_inside_segment)

    def checkpoint_log_starts_soon(self) -> None:
        """Have the next tick write down where logs start: somebody counts on a new start."""
        if self.checkpoint_log_starts in self._due:
            self._due[self.checkpoint_log_starts] = (0, self._due[self.checkpoint_log_starts][1])

    def checkpoint_high_watermarks(self, now_ms: int) -> None:
        """Write down every log's high watermark. Raises OSError."""
        self._write(HIGH_WATERMARK, lambda log: log.high_watermark)

    def _write(self, name: str, value: Callable[[PartitionLog], int | None]) -> None:
        """Write a checkpoint of each directory, also when another does not take its own."""
        refusal = None
        for directory in self.directories:
            offsets: Mapping[TopicPartition, int] = {
                partition: offset
                for partition, log in self.logs.items()
                if directory.path in (log.directory.parent, self.incoming.get(partition))
                and (offset := value(log)) is not None
            }
            try:
                directory.write_checkpoint(name, offsets)
            except OSError as error:
                refusal = error
        if refusal is not None:
            raise refusal

    def _save_recovery_points(self, directory: Path) -> None:
        write, keep_in_mind = self._recovery_point_writer(directory)

        def done(error: Exception | None) -> None:
            if error is None:
                self._checkpointing.discard(directory)
                keep_in_mind()
            else:
                logger.error("%s in %s could not be written: %s", RECOVERY_POINT, directory, error)

        self._checkpointing.add(directory)
        self.background(write, done)

    def _recovery_point_writer(self, directory: Path) -> tuple[Callable[[], None], Callable[[], None]]:
        """What writes down the recovery points of a data directory, as they are now, on any thread; what follows."""
        logs = [log for log in self.logs.values() if log.directory.parent == directory]
        offsets = {log.partition: log.recovery_point for log in logs}

        def done() -> None:
            for log in logs:
                log.checkpointed_to = offsets[log.partition]

        return self._recovery_points.writer(
            directory, lambda: write_offsets(self.files, directory / RECOVERY_POINT, offsets)
        ), done

    def _save_cleaner_offsets(self, directory: Path) -> None:
        def done(error: Exception | None) -> None:
            if error is not None:
                logger.error("%s in %s could not be written: %s", CLEANER_OFFSET, directory, error)

        self.background(self._cleaner_offsets_writer(directory), done)

    def _cleaner_offsets_writer(self, directory: Path) -> Callable[[], None]:
        """What writes down how far the logs of a data directory are cleaned, as it is now; any thread may run it."""
        offsets = {
            partition: log.cleaned_to
            for partition, log in self.logs.items()
            if log.cleaned_to > 0 and log.directory.parent == directory
        }
        return self._cleaner_offsets.writer(
            directory, lambda: write_offsets(self.files, directory / CLEANER_OFFSET, offsets)
        )

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


def _start_inside_segment(log: PartitionLog) -> int | None:
    """The log's start where no segment's name says it."""
    return log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None
