"""The checkpoints of a broker's data directories, kept up with the logs in them.

    recovery-point-offset-checkpoint    every minute, at once after a roll and a truncation    read at a start
    log-start-offset-checkpoint         every minute, soon after records were deleted
    replication-offset-checkpoint       every five seconds
    cleaner-offset-checkpoint           after every cleaning, deletion and move of a compacted log

What one directory does not take keeps none of the others from theirs. Source: Kafka's LogManager.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headrace.log.checkpoints import (
    CLEANER_OFFSET,
    HIGH_WATERMARK,
    LOG_START_OFFSET,
    RECOVERY_POINT,
    NewestFirst,
    write_offsets,
)
from headrace.log.data_directory import DataDirectory
from headrace.log.files import Files
from headrace.log.flush import Background
from headrace.log.partition_log import PartitionLog
from headrace.types import TopicPartition

logger = logging.getLogger(__name__)


class Checkpointing:
    """Writes down what a start has to know of some logs. They, and the directories in use, are the log manager's."""

    def __init__(
        self,
        files: Files,
        logs: Mapping[TopicPartition, PartitionLog],
        directories: Sequence[DataDirectory],
        background: Background,
    ) -> None:
        self.background = background
        self.incoming: dict[TopicPartition, Path] = {}
        """Partitions that are about to be in another directory: its checkpoints know them already."""
        self._files = files
        self._logs = logs
        self._directories = directories
        self._cleaner_offsets = NewestFirst()
        self._recovery_points = NewestFirst()
        self._under_way: set[Path] = set()
        """Directories whose recovery points are being written down outside the regular turn, or could not be."""

    def recovery_points(self) -> None:
        """Write down every log's recovery point. Raises OSError."""
        refusal = None
        for directory in self._directories:
            write, done = self._recovery_point_writer(directory.path)
            try:
                write()
            except OSError as error:
                refusal = error
            else:
                self._under_way.discard(directory.path)
                done()
        if refusal is not None:
            raise refusal

    def log_starts(self) -> None:
        """Write down every log's start. Raises OSError."""
        self._write(LOG_START_OFFSET, _start_inside_segment)

    def high_watermarks(self) -> None:
        """Write down every log's high watermark. Raises OSError."""
        self._write(HIGH_WATERMARK, lambda log: log.high_watermark)

    def _write(self, name: str, value: Callable[[PartitionLog], int | None]) -> None:
        refusal = None
        for directory in self._directories:
            offsets: Mapping[TopicPartition, int] = {
                partition: offset
                for partition, log in self._logs.items()
                if directory.path in (log.directory.parent, self.incoming.get(partition))
                and (offset := value(log)) is not None
            }
            try:
                directory.write_checkpoint(name, offsets)
            except OSError as error:
                refusal = error
        if refusal is not None:
            raise refusal

    # The recovery points of some directories, between the regular turns

    def secure_closed_segments(self, now_ms: int) -> None:
        """Have what lies before a log's active segment be on the disk, and be known to be: a start after a crash then
        reads the active segments alone. A roll flushes; what a crash left behind rolls is flushed here. A recovery
        point that a truncation has lowered is written down too."""
        rolled = set()
        for log in self._logs.values():
            base_offset = log.active.base_offset
            if base_offset > log.checkpointed_to or log.recovery_point < log.checkpointed_to:
                if log.recovery_point >= base_offset or log.recovery_point < log.checkpointed_to:
                    rolled.add(log.directory.parent)
                elif not log.is_flushing and log.failure is None:
                    log.flush_in_background(now_ms, base_offset)
        for directory in rolled - self._under_way:
            self._save_recovery_points(directory)

    def _save_recovery_points(self, directory: Path) -> None:
        write, keep_in_mind = self._recovery_point_writer(directory)

        def done(error: Exception | None) -> None:
            if error is None:
                self._under_way.discard(directory)
                keep_in_mind()
            else:
                logger.error("%s in %s could not be written: %s", RECOVERY_POINT, directory, error)

        self._under_way.add(directory)
        self.background(write, done)

    def _recovery_point_writer(self, directory: Path) -> tuple[Callable[[], None], Callable[[], None]]:
        """What writes down the recovery points of a data directory, as they are now, on any thread; what follows."""
        logs = [log for log in self._logs.values() if log.directory.parent == directory]
        offsets = {log.partition: log.recovery_point for log in logs}

        def done() -> None:
            for log in logs:
                log.checkpointed_to = offsets[log.partition]

        return self._recovery_points.writer(
            directory, lambda: write_offsets(self._files, directory / RECOVERY_POINT, offsets)
        ), done

    # How far logs are cleaned

    def save_cleaner_offsets(self, directory: Path) -> None:
        """Write down, in the background, how far the logs of a data directory are cleaned."""

        def done(error: Exception | None) -> None:
            if error is not None:
                logger.error("%s in %s could not be written: %s", CLEANER_OFFSET, directory, error)

        self.background(self.cleaner_offsets_writer(directory), done)

    def cleaner_offsets_writer(self, directory: Path) -> Callable[[], None]:
        """What writes down how far the logs of a data directory are cleaned, as it is now; any thread may run it."""
        offsets = {
            partition: log.cleaned_to
            for partition, log in self._logs.items()
            if log.cleaned_to > 0 and log.directory.parent == directory
        }
        return self._cleaner_offsets.writer(
            directory, lambda: write_offsets(self._files, directory / CLEANER_OFFSET, offsets)
        )


def _start_inside_segment(log: PartitionLog) -> int | None:
    """The log's start where no segment's name says it."""
    return log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None
