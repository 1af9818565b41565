"""The leader epochs of a log: which leader wrote which offsets.

    epoch  start_offset
    0      0              offsets 0-41 were written by the leader of epoch 0
    3      42             42 and up by that of epoch 3

Both columns ascend. A follower that comes back asks where its last epoch ended, and truncates to the answer (KIP-101,
KIP-279). Kept in the partition's `leader-epoch-checkpoint`. A batch carries its epoch too, so a file that a crash
left behind is brought up to date by recovery, and one that is lost is made again: so nobody waits for the disk here.
Source: Kafka's LeaderEpochFileCache.
"""

import logging
from bisect import bisect_right
from contextlib import suppress
from pathlib import Path

from headrace.log.checkpoints import LEADER_EPOCH, CorruptCheckpoint, read_epochs, write_epochs
from headrace.log.files import Files

logger = logging.getLogger(__name__)
UNDEFINED = -1


class LeaderEpochs:
    """The leader epochs of one partition, kept in its directory."""

    __slots__ = ("_epochs", "_files", "_is_dirty", "_path", "_starts", "latest")

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._path = directory / LEADER_EPOCH
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = UNDEFINED
        self._is_dirty = False
        try:
            for epoch, start_offset in read_epochs(files, self._path):
                self._put(epoch, start_offset)
        except CorruptCheckpoint as error:
            logger.warning("leader epochs are taken from the log alone: %s", error)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` writes from `start_offset` on. Entries that contradict it are dropped."""
        if epoch < 0 or (epoch == self.latest and start_offset >= self._starts[-1]):
            return
        epochs, starts, latest = self._epochs[:], self._starts[:], self.latest
        self._put(epoch, start_offset)
        try:
            self._save()
        except OSError:  # not noted, so that it is tried again with the next batch
            self._epochs, self._starts, self.latest = epochs, starts, latest
            raise

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the largest known epoch not above `epoch`, where it ended exclusively); (-1, -1) when not known."""
        if epoch < 0 or epoch > self.latest:
            return UNDEFINED, UNDEFINED
        if epoch == self.latest:
            return epoch, log_end_offset
        after = bisect_right(self._epochs, epoch)
        return (self._epochs[after - 1] if after else epoch), self._starts[after]

    def epoch_for(self, offset: int) -> int:
        """The epoch that wrote `offset`; -1 when it was written before the first known."""
        after = bisect_right(self._starts, offset)
        return self._epochs[after - 1] if after else UNDEFINED

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that start at or above `end_offset`."""
        if self._starts and self._starts[-1] >= end_offset:
            while self._starts and self._starts[-1] >= end_offset:
                del self._starts[-1], self._epochs[-1]
            self.latest = self._epochs[-1] if self._epochs else UNDEFINED
            self._save()

    def truncate_from_start(self, start_offset: int) -> None:
        """Have the first epoch start at `start_offset`, as the log does; the ones before it are dropped. A full disk
        must not keep old segments from being deleted: the file may be behind, as every start does this anew."""
        first = bisect_right(self._starts, start_offset) - 1
        if first >= 0 and (first > 0 or self._starts[0] != start_offset):
            del self._starts[:first], self._epochs[:first]
            self._starts[0] = start_offset
            with suppress(OSError):
                self._save()

    def clear(self) -> None:
        """Forget everything."""
        self.truncate_from_end(0)

    def relocated(self, directory: Path) -> None:
        """The file is in another directory from now on, with the same content."""
        self._path = directory / LEADER_EPOCH
        self._is_dirty = True

    def take_unsynced(self) -> Path | None:
        """The file, when it has changed since the last call: whoever asks is to sync it."""
        was_dirty, self._is_dirty = self._is_dirty, False
        return self._path if was_dirty else None

    def _put(self, epoch: int, start_offset: int) -> None:
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            del self._epochs[-1], self._starts[-1]
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch

    def _save(self) -> None:
        write_epochs(self._files, self._path, self.entries, sync=False)
        self._is_dirty = True
