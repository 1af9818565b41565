"""One data directory of a broker (an entry of `log.dirs`): who may use it, and what it remembers of its partitions.

    .lock                                 held by the process that uses the directory
    meta.properties                       the cluster and the broker that it belongs to
    .kafka_cleanshutdown                  there between a clean stop and the next start: recovery may be skipped
    recovery-point-offset-checkpoint      per partition: up to where it was on the disk
    log-start-offset-checkpoint           per partition: where it starts, when that is inside a segment
    replication-offset-checkpoint         per partition: the high watermark
    <topic>-<partition>/                  the partitions

Source: Kafka's LogManager, CleanShutdownFileHandler.
"""

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from headrace.errors import ErrorCode, KafkaError
from headrace.log import checkpoints, meta_properties
from headrace.log.files import DirectoryLock, DiskSpace, Files
from headrace.log.meta_properties import CorruptMetaProperties, MetaProperties
from headrace.types import TopicPartition

logger = logging.getLogger(__name__)
LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


class DataDirectoryRefused(KafkaError):
    """A data directory that this broker must not use: held by another process, or another broker's."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class DataDirectoryFailed(DataDirectoryRefused):
    """A data directory that its disk does not let this broker use. Where there are others, those are used."""


def _make_durably(files: Files, path: Path) -> None:
    """Make a directory, and the ones above it, so that a power failure does not take them away with all that is flushed
    in them later. Raises OSError."""
    missing = [each for each in (path, *path.parents) if not files.exists(each)]
    files.make_directory(path)
    for each in missing:
        with suppress(PermissionError):  # one may make a name in a directory that one may not read
            files.sync_directory(each.parent)


class DataDirectory:
    """One data directory, locked from the construction until `release`."""

    def __init__(self, files: Files, path: Path) -> None:
        """Make the directory if need be, and lock it. Raises DataDirectoryRefused, DataDirectoryFailed."""
        self.files = files
        self.path = path
        try:
            _make_durably(files, path)
            self._lock: DirectoryLock = files.lock(path / LOCK)
        except BlockingIOError as error:
            raise DataDirectoryRefused(f"data directory {path} is in use by another process") from error
        except OSError as error:
            raise DataDirectoryFailed(f"data directory {path} cannot be used: {error.strerror or error}") from error

    def release(self) -> None:
        """Let another process have the directory."""
        self._lock.release()

    def identity(self) -> MetaProperties | None:
        """The cluster and broker that the directory belongs to; None for a new one. Raises DataDirectoryFailed."""
        try:
            return meta_properties.read(self.files, self.path)
        except CorruptMetaProperties as error:
            raise DataDirectoryFailed(str(error)) from error
        except OSError as error:
            raise DataDirectoryFailed(f"data directory {self.path} cannot be read: {error.strerror}") from error

    def claim(self, cluster_id: str, broker_id: int) -> None:
        """Mark a new directory as this broker's. Raises DataDirectoryRefused for one that is another's,
        DataDirectoryFailed."""
        found = self.identity()
        if found is None:
            try:
                meta_properties.write(self.files, self.path, MetaProperties(broker_id, cluster_id))
            except OSError as error:
                raise DataDirectoryFailed(f"data directory {self.path} cannot be used: {error.strerror}") from error
        elif found.cluster_id != cluster_id:
            raise DataDirectoryRefused(
                f"data directory {self.path} belongs to cluster {found.cluster_id}, not to {cluster_id}"
            )
        elif found.broker_id != broker_id:
            raise DataDirectoryRefused(
                f"data directory {self.path} belongs to broker {found.broker_id}, not to {broker_id}"
            )

    def own_id(self, new_id: Callable[[], str]) -> str:
        """The id of a directory that was claimed, as Kafka keeps it; given by `new_id` when it has none. Raises
        DataDirectoryFailed."""
        found = self.identity()
        if found is None:
            raise DataDirectoryFailed(f"data directory {self.path} belongs to nobody")
        if found.directory_id is not None:
            return found.directory_id
        try:
            meta_properties.write(self.files, self.path, named := found._replace(directory_id=new_id()))
        except OSError as error:
            raise DataDirectoryFailed(f"data directory {self.path} cannot be used: {error.strerror}") from error
        assert named.directory_id is not None
        return named.directory_id

    def space(self) -> DiskSpace:
        """How large the disk is. Raises OSError."""
        return self.files.space(self.path)

    # Clean stop

    def take_clean_mark(self) -> bool:
        """Whether the last stop was clean. The mark is gone afterwards: a crash from now on is one."""
        path = self.path / CLEAN_SHUTDOWN
        if not self.files.exists(path):
            return False
        self.files.remove(path)
        self.files.sync_directory(self.path)
        return True

    def leave_clean_mark(self, broker_epoch: int = -1) -> None:
        """Say that every log was closed."""
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        self.files.replace(self.path / CLEAN_SHUTDOWN, content.encode())

    # Checkpoints

    def read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """A checkpoint's offsets. A damaged one holds none: everything is then checked from its beginning."""
        try:
            return checkpoints.read_offsets(self.files, self.path / name)
        except checkpoints.CorruptCheckpoint as error:
            logger.warning("checkpoint in %s is not used: %s", self.path, error)
            return {}

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace a checkpoint. Raises OSError."""
        checkpoints.write_offsets(self.files, self.path / name, offsets)
