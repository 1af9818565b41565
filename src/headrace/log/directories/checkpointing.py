"""Checkpointing: writes the checkpoint files of a broker's data directories from the state of their logs.

    recovery-point-offset-checkpoint    every minute, at once after a roll and a truncation    read at a start
    log-start-offset-checkpoint         every minute, soon after records were deleted
    replication-offset-checkpoint       every five seconds
    cleaner-offset-checkpoint           after every cleaning, deletion and move of a compacted log

A failure of one directory does not stop the checkpoints of the others. Source: Kafka's LogManager.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headrace.log.directories.checkpoints import (
    CLEANER_OFFSET,
    HIGH_WATERMARK,
    LOG_START_OFFSET,
    RECOVERY_POINT,
    NewestFirst,
    write_offsets,
)
from headrace.log.directories.data_directory import DataDirectory
from headrace.log.files import Files
from headrace.log.flusher import Background
from headrace.log.partition_log import PartitionLog
from headrace.types import TopicPartition

logger = logging.getLogger(__name__)


class Checkpointing:
    """Writes the checkpoints of logs. The log manager owns `logs` and `directories`, and changes them."""

    def __init__(
        self,
        files: Files,
        logs: Mapping[TopicPartition, PartitionLog],
        directories: Sequence[DataDirectory],
        background: Background,
    ) -> None:
        self.background = background
        self.incoming: dict[TopicPartition, Path] = {}
        """Partitions that are moving to another directory. The checkpoints of that directory include them already."""
        self._files = files
        self._logs = logs
        self._directories = directories
        self._cleaner_offsets = NewestFirst()
        self._recovery_points = NewestFirst()
        self._under_way: set[Path] = set()
        """Directories with an extra write of the recovery points that is under way or has failed."""

    def recovery_points(self) -> None:
        """Checkpoint the recovery points of all logs. Raises OSError."""
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
        """Checkpoint the log start offsets of all logs. Raises OSError."""
        self._write(LOG_START_OFFSET, _start_inside_segment)

    def high_watermarks(self) -> None:
        """Checkpoint the high watermarks of all logs. Raises OSError."""
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

    # Extra writes of recovery points, between the regular ones

    def secure_closed_segments(self, now_ms: int) -> None:
        """Flush closed segments, and checkpoint their recovery points in the background.

        A start after a crash then reads only the active segments. A roll flushes the closed segment; this flushes those
        that a crash left unflushed. It also checkpoints a recovery point that a truncation has lowered.
        """
        rolled = set()
        for log in self._logs.values():
            base_offset = log.active.base_offset
            if base_offset > log.flusher.checkpointed_to or log.flusher.recovery_point < log.flusher.checkpointed_to:
                if (
                    log.flusher.recovery_point >= base_offset
                    or log.flusher.recovery_point < log.flusher.checkpointed_to
                ):
                    rolled.add(log.directory.parent)
                elif not log.flusher.is_under_way and log.failure is None:
                    log.flusher.flush_in_background(now_ms, base_offset)
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
        """Two functions for the current recovery points of a data directory.

        The first writes the checkpoint, on any thread. The second notes the success, on the owner's thread.
        """
        logs = [log for log in self._logs.values() if log.directory.parent == directory]
        offsets = {log.partition: log.flusher.recovery_point for log in logs}

        def done() -> None:
            for log in logs:
                log.flusher.checkpointed(offsets[log.partition])

        return self._recovery_points.writer(
            directory, lambda: write_offsets(self._files, directory / RECOVERY_POINT, offsets)
        ), done

    # Cleaner offsets

    def save_cleaner_offsets(self, directory: Path) -> None:
        """Checkpoint the cleaner offsets of a data directory in the background."""

        def done(error: Exception | None) -> None:
            if error is not None:
                logger.error("%s in %s could not be written: %s", CLEANER_OFFSET, directory, error)

        self.background(self.cleaner_offsets_writer(directory), done)

    def cleaner_offsets_writer(self, directory: Path) -> Callable[[], None]:
        """A function that checkpoints the current cleaner offsets of a data directory. Any thread. Raises OSError."""
        offsets = {
            partition: log.cleaned_to
            for partition, log in self._logs.items()
            if log.cleaned_to > 0 and log.directory.parent == directory
        }
        return self._cleaner_offsets.writer(
            directory, lambda: write_offsets(self._files, directory / CLEANER_OFFSET, offsets)
        )


def _start_inside_segment(log: PartitionLog) -> int | None:
    """The log start offset if it is inside the first segment, else None: the segment's name has it."""
    return log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None
