"""Checkpointing: writes the checkpoint files of a broker's data directories from the state of their logs.

    recovery-point-offset-checkpoint    every minute, soon after a roll, at once after a truncation
    log-start-offset-checkpoint         every minute, soon after records were deleted
    replication-offset-checkpoint       every five seconds
    cleaner-offset-checkpoint           after every cleaning, deletion and move of a compacted log

A failure of one directory does not stop the checkpoints of the others. Source: Kafka's LogManager.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from os.path import dirname
from pathlib import Path

from headrace.in_slices import finished
from headrace.limits import ELEMENTS_PER_SLICE
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

PAUSE_MS_PER_PARTITION = 1
"""After the recovery points were written because of a roll: the time until the next roll has them written, for each of
the broker's partitions.

A write takes about 2 us of processor time for each partition, 22 ms for 10,000 of them, and a broker with as many has a
roll in nearly every second. With the pause, it takes 0.2 % of a processor however many there are; up to a thousand, it
is done at every tick. After a crash in the pause, a start also reads what has rolled since: with 10,000 partitions that
of ten seconds, beside 10,000 active segments. Apache Kafka writes them every minute.
"""


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
        self._newest = {
            name: NewestFirst() for name in (RECOVERY_POINT, LOG_START_OFFSET, HIGH_WATERMARK, CLEANER_OFFSET)
        }
        self._rolled: set[Path] = set()
        """Directories with recovery points to write before the next regular time, when the pause is over."""
        self._lowered: set[Path] = set()
        """Directories with recovery points that a truncation has lowered. A crash must not find the higher ones."""
        self._pause_ends_ms: dict[Path, int] = {}
        self._under_way: set[Path] = set()
        """Directories with an extra write of the recovery points that is under way or has failed."""

    def write(self, name: str) -> None:
        """Write one of the checkpoints for all logs, on this thread. Raises OSError."""
        refusal = None
        for directory in self._directories:
            write, done = finished(self._writer(name, directory.path))
            try:
                write()
            except OSError as error:
                refusal = error
            else:
                done()
        if refusal is not None:
            raise refusal

    def begin(self, name: str) -> Iterator[None]:
        """Write one of the checkpoints for all logs in the background: a sync may take long. Yields after so many logs,
        while others may come and go."""
        for directory in list(self._directories):
            yield from self._begin(name, directory.path)

    def _begin(self, name: str, directory: Path) -> Iterator[None]:
        write, succeeded = yield from self._writer(name, directory)

        def done(error: Exception | None) -> None:
            if error is None:
                succeeded()
            else:
                logger.error("%s in %s could not be written: %s", name, directory, error)

        self.background(write, done)

    def _writer(
        self, name: str, directory: Path
    ) -> Generator[None, None, tuple[Callable[[], None], Callable[[], None]]]:
        """Two functions for the current offsets of a data directory, which are read in slices.

        The first writes the checkpoint, on any thread. The second notes the success, on the owner's thread. A writer
        that is asked for while the offsets are read is the newer one: it has a truncation that came in between.
        """
        offsets: dict[TopicPartition, int] = {}
        write = self._newest[name].writer(directory, lambda: write_offsets(self._files, directory / name, offsets))
        value, parent = _VALUES[name], str(directory)
        logs = []
        for number, (partition, log) in enumerate(list(self._logs.items()), 1):
            is_incoming = name != RECOVERY_POINT and self.incoming.get(partition) == directory
            if is_incoming or dirname(log.directory) == parent:  # noqa: PTH120 - a Path takes 4 times as long
                offset = value(log)
                if offset is not None:
                    offsets[partition] = offset
                    logs.append(log)
            if number % ELEMENTS_PER_SLICE == 0:
                yield
        if name != RECOVERY_POINT:
            return write, _nothing

        def done() -> None:
            self._under_way.discard(directory)
            for log in logs:
                log.flusher.checkpointed(offsets[log.partition])

        return write, done

    # Extra writes of recovery points, between the regular ones

    def secure_closed_segments(self, log: PartitionLog, now_ms: int) -> None:
        """Flush the closed segments of a log, or ask for a checkpoint of their recovery point.

        A start after a crash then reads only the active segments. A roll flushes the closed segment; this flushes those
        that a crash left unflushed. It also asks for a checkpoint of a recovery point that a truncation has lowered.
        """
        flusher, base_offset = log.flusher, log.active.base_offset
        if base_offset > flusher.checkpointed_to or flusher.recovery_point < flusher.checkpointed_to:
            if flusher.recovery_point < flusher.checkpointed_to:
                self._lowered.add(log.directory.parent)
            elif flusher.recovery_point >= base_offset:
                self._rolled.add(log.directory.parent)
            elif not flusher.is_under_way and log.failure is None:
                flusher.flush_in_background(now_ms, base_offset)

    def begin_extra(self, now_ms: int) -> Iterator[None]:
        """Write the recovery points that were asked for and are due, in the background. Yields as `begin`.

        What is not due is asked for again at each tick.
        """
        wanted = self._lowered | {each for each in self._rolled if now_ms >= self._pause_ends_ms.get(each, 0)}
        self._rolled, self._lowered = set(), set()
        for directory in wanted - self._under_way:
            self._under_way.add(directory)
            self._pause_ends_ms[directory] = now_ms + len(self._logs) * PAUSE_MS_PER_PARTITION
            yield from self._begin(RECOVERY_POINT, directory)

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
        return self._newest[CLEANER_OFFSET].writer(
            directory, lambda: write_offsets(self._files, directory / CLEANER_OFFSET, offsets)
        )


def _start_inside_segment(log: PartitionLog) -> int | None:
    """The log start offset if it is inside the first segment, else None: the segment's name has it."""
    return log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None


_VALUES: Mapping[str, Callable[[PartitionLog], int | None]] = {
    LOG_START_OFFSET: _start_inside_segment,
    HIGH_WATERMARK: lambda log: log.high_watermark,
    RECOVERY_POINT: lambda log: log.flusher.recovery_point,
}
"""The offset of a log in each checkpoint but the cleaner's; None leaves the log out."""


def _nothing() -> None:
    """Do nothing: nobody waits for this checkpoint."""
