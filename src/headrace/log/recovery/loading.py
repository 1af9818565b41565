"""Loading: opens every partition of a data directory at a start.

    Opening(…)     lists the partitions and their segments, so that the number of bytes to read is known
    .begin()       starts threads that open the large logs
    .logs()        opens the other logs, and yields all of them
    .close()       waits for the threads, also after a failure; .take_back() when the start was stopped

After a crash, threads read the unflushed part of each log. They run in parallel, because the long steps release the
interpreter's lock. A log belongs to the thread that opens it until it is handed over. The caller opens small logs
itself, because opening them never releases the lock. Source: Kafka's LogManager.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from headrace.config import TopicConfig
from headrace.errors import KafkaError
from headrace.log.directories.checkpoints import CLEANER_OFFSET, HIGH_WATERMARK, LOG_START_OFFSET, RECOVERY_POINT
from headrace.log.directories.data_directory import DataDirectory, DataDirectoryFailed
from headrace.log.directories.partition_metadata import CorruptPartitionMetadata
from headrace.log.filenames import DELETE_DIRECTORY, parse_partition
from headrace.log.files import Files
from headrace.log.flusher import FlushScheduling
from headrace.log.partition_log import PartitionLog
from headrace.log.recovery.progress import RecoveryProgress
from headrace.log.recovery.recovery import FoundLog, find_log
from headrace.types import TopicPartition

PARALLEL_BYTES_MIN = 1 << 20
"""A log with fewer bytes to check does not get a thread."""


class _Partition(NamedTuple):
    path: Path
    partition: TopicPartition
    config: TopicConfig
    found: FoundLog


class Opening:
    """The opening of all partitions of one data directory."""

    def __init__(
        self,
        files: Files,
        directory: DataDirectory,
        topic_config: Callable[[str], TopicConfig],
        now_ms: int,
        *,
        threads: int,
        progress: RecoveryProgress,
        scheduling: FlushScheduling,
    ) -> None:
        """List the partitions, and take the mark of a clean stop. `threads` recover large logs. Raises OSError."""
        self._files = files
        self._directory = directory
        self._now_ms = now_ms
        self._threads = threads
        self._progress = progress
        self._scheduling = scheduling
        self._log_starts = directory.read_checkpoint(LOG_START_OFFSET)
        self._high_watermarks = directory.read_checkpoint(HIGH_WATERMARK)
        self._cleaned = directory.read_checkpoint(CLEANER_OFFSET)
        recovery_points = directory.read_checkpoint(RECOVERY_POINT)
        names = files.names(directory.path)
        self.was_clean = self._was_clean = directory.take_clean_mark()
        self._pool: ThreadPoolExecutor | None = None
        self._running: list[Future[PartitionLog]] = []
        self._waiting: list[_Partition] = []
        for name in names:
            path = directory.path / name
            if name.endswith(DELETE_DIRECTORY):
                files.remove_tree(path)
                continue
            partition = parse_partition(name)
            if partition is None or not files.is_directory(path):
                continue
            config = topic_config(partition.topic)
            point = recovery_points.get(partition, 0)
            found = find_log(files, path, config, recovery_point=point, was_clean=self._was_clean, now_ms=now_ms)
            progress.expect(1, found.bytes_to_check)
            self._waiting.append(_Partition(path, partition, config, found))

    def begin(self) -> None:
        """Start threads that open the large logs, the largest first."""
        large = [each for each in self._waiting if each.found.bytes_to_check >= PARALLEL_BYTES_MIN]
        if self._threads > 1 and large:
            self._waiting = [each for each in self._waiting if each.found.bytes_to_check < PARALLEL_BYTES_MIN]
            large.sort(key=lambda each: each.found.bytes_to_check, reverse=True)
            self._pool = ThreadPoolExecutor(self._threads, "recovery")
            self._running = [self._pool.submit(self._open, each) for each in large]

    def logs(self) -> Iterator[PartitionLog]:
        """All logs of the directory, each once it is open.

        Raises DataDirectoryFailed when a log cannot be opened, and LoadingStopped.
        """
        for each in self._waiting:
            yield self._open(each)
        for running in self._running:
            yield running.result()

    def close(self) -> None:
        """Cancel the logs that no thread has begun to open, and wait for the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def take_back(self) -> None:
        """Close, and restore the mark of a clean stop, so that the next start can skip recovery too."""
        self.close()
        if self._was_clean:
            with suppress(OSError):
                self._directory.leave_clean_mark()

    def _open(self, which: _Partition) -> PartitionLog:
        path, partition, config, found = which
        try:
            log = PartitionLog.open(
                path,
                partition,
                config,
                files=self._files,
                now_ms=self._now_ms,
                log_start_offset=self._log_starts.get(partition, 0),
                cleaned_to=self._cleaned.get(partition, 0),
                found=found,
                on_read=self._progress.read,
                scheduling=self._scheduling,
            )
        except (CorruptPartitionMetadata, KafkaError, OSError) as error:
            raise DataDirectoryFailed(f"{path} cannot be opened: {error}") from error
        log.restore_high_watermark(self._high_watermarks.get(partition, 0))
        self._progress.opened()
        return log
