"""The leader epochs of a log: the offset range of each leader.

    epoch  start_offset
    0      0              the leader of epoch 0 wrote offsets 0-41
    3      42             the leader of epoch 3 writes from 42 on

Both columns ascend. A returning follower asks for the end of its last epoch, and truncates to it (KIP-101, KIP-279).
The epochs are in the partition's `leader-epoch-checkpoint`. Each batch has its epoch too, so recovery completes an
outdated file and rebuilds a lost one. That is why no append waits for a sync of this file.
Source: Kafka's LeaderEpochFileCache.
"""

import logging
from bisect import bisect_left, bisect_right
from pathlib import Path

from headrace.log.append_state import EpochsEnd
from headrace.log.directories.checkpoints import LEADER_EPOCH, CorruptCheckpoint, read_epochs, write_epochs
from headrace.log.files import Files

logger = logging.getLogger(__name__)
UNDEFINED = -1


class LeaderEpochs(EpochsEnd):
    """The leader epochs of one partition, kept in its directory."""

    __slots__ = ("_directory", "_epochs", "_files", "_is_dirty", "_starts")

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._directory = directory
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = UNDEFINED
        self._is_dirty = False
        try:
            for epoch, start_offset in read_epochs(files, self.path):
                self._put(epoch, start_offset)
        except CorruptCheckpoint as error:
            logger.warning("the leader epoch checkpoint is ignored, and leader epochs are read from the log: %s", error)

    @property
    def path(self) -> str:
        """The checkpoint's path."""
        return f"{self._directory}/{LEADER_EPOCH}"

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` begins at `start_offset` (inclusive). Drops contradicting entries. Raises OSError."""
        if epoch < 0 or (epoch == self.latest and start_offset >= self._starts[-1]):
            return
        epochs, starts, latest = self._epochs[:], self._starts[:], self.latest
        self._put(epoch, start_offset)
        try:
            self._save()
        except OSError:  # undone, so that the next batch tries again
            self._epochs, self._starts, self.latest = epochs, starts, latest
            raise

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch at or below `epoch`, and its end offset (exclusive); (-1, -1) when unknown."""
        if epoch < 0 or epoch > self.latest:
            return UNDEFINED, UNDEFINED
        if epoch == self.latest:
            return epoch, log_end_offset
        after = bisect_right(self._epochs, epoch)
        return (self._epochs[after - 1] if after else epoch), self._starts[after]

    def is_unknown(self, epoch: int, offset: int, log_start_offset: int) -> bool:
        """Whether the records below `offset` cannot be compared with records of `epoch`.

        The log has no epochs there, because the records have an older message format, or follow such records.
        """
        if self.latest < 0:
            return True
        first = self._starts[0]
        return epoch < self._epochs[0] and log_start_offset < first and offset <= first

    def epoch_for(self, offset: int) -> int:
        """The epoch of the leader that wrote `offset`; -1 when it is below the first known epoch."""
        after = bisect_right(self._starts, offset)
        return self._epochs[after - 1] if after else UNDEFINED

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that start at or above `end_offset`. Raises OSError, and then changes nothing."""
        if self._starts and self._starts[-1] >= end_offset:
            before = self._starts, self._epochs, self.latest
            kept = bisect_left(self._starts, end_offset)
            self._starts, self._epochs = self._starts[:kept], self._epochs[:kept]
            self.latest = self._epochs[-1] if self._epochs else UNDEFINED
            try:
                self._save()
            except OSError:
                self._starts, self._epochs, self.latest = before
                raise

    def truncate_from_start(self, start_offset: int) -> None:
        """Move the start of the first epoch up to `start_offset`, the log start offset, and drop earlier epochs.

        Does not write the file, which the next change does: each start calls this again with the log start offset of
        then. So retention costs nothing here. Apache Kafka writes the file, without a sync.
        """
        first = bisect_right(self._starts, start_offset) - 1
        if first >= 0 and (first > 0 or self._starts[0] != start_offset):
            del self._starts[:first], self._epochs[:first]
            self._starts[0] = start_offset

    def clear(self) -> None:
        """Forget all epochs. Raises OSError."""
        self.truncate_from_end(0)

    def relocated(self, directory: Path) -> None:
        """Note that the file is in another directory now, with the same content."""
        self._directory = directory
        self._is_dirty = True

    def take_unsynced(self) -> str | None:
        """The file's path when it has changed since the last call, else None. The caller syncs the file."""
        was_dirty, self._is_dirty = self._is_dirty, False
        return self.path if was_dirty else None

    def _put(self, epoch: int, start_offset: int) -> None:
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            del self._epochs[-1], self._starts[-1]
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch

    def _save(self) -> None:
        write_epochs(self._files, self.path, self.entries, sync=False)
        self._is_dirty = True
