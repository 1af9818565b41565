"""A data directory of a broker (an entry of `log.dirs`): its lock, its identity, and its checkpoints.

    .lock                                 held by the process that uses the directory
    meta.properties                       the cluster and the broker that it belongs to
    .kafka_cleanshutdown                  exists between a clean stop and the next start, which then skips recovery
    recovery-point-offset-checkpoint      per partition: the offset up to which the log is flushed
    log-start-offset-checkpoint           per partition: the log start offset, if it is inside a segment
    replication-offset-checkpoint         per partition: the high watermark
    <topic>-<partition>/                  the partitions

Source: Kafka's LogManager, CleanShutdownFileHandler.
"""

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from headrace.errors import ErrorCode, KafkaError
from headrace.log.directories import checkpoints, meta_properties
from headrace.log.directories.meta_properties import CorruptMetaProperties, MetaProperties
from headrace.log.files import DirectoryLock, DiskSpace, Files
from headrace.types import TopicPartition

logger = logging.getLogger(__name__)
LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


class DataDirectoryRefused(KafkaError):
    """This broker must not use the data directory: another process holds it, or another broker owns it."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class DataDirectoryFailed(DataDirectoryRefused):
    """The data directory's disk fails. The broker continues with the other directories, if there are any."""


def _make_durably(files: Files, path: Path) -> None:
    """Create a directory and its parents, and sync them. Raises OSError.

    Otherwise a power failure could remove them, together with the data that is flushed later.
    """
    missing = [each for each in (path, *path.parents) if not files.exists(each)]
    files.make_directory(path)
    for each in missing:
        with suppress(PermissionError):  # a process may create files in a directory that it may not read
            files.sync_directory(each.parent)


class DataDirectory:
    """One data directory, locked from the construction until `release`."""

    def __init__(self, files: Files, path: Path) -> None:
        """Create the directory if it is missing, and lock it. Raises DataDirectoryRefused, DataDirectoryFailed."""
        self.files = files
        self.path = path
        try:
            _make_durably(files, path)
            self._lock: DirectoryLock = files.lock(path / LOCK)
        except BlockingIOError as error:
            raise DataDirectoryRefused(f"data directory {path} is in use by another process") from error
        except FileExistsError as error:
            raise DataDirectoryFailed(f"data directory {path} cannot be used: it is a file") from error
        except OSError as error:
            raise DataDirectoryFailed(f"data directory {path} cannot be used: {error.strerror or error}") from error

    def release(self) -> None:
        """Release the lock, so that another process can use the directory."""
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
        """Mark a new directory as this broker's.

        Raises DataDirectoryRefused for a directory of another cluster or broker, and DataDirectoryFailed.
        """
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
        """The directory id of a claimed directory. A directory without one gets the result of `new_id`.

        Raises DataDirectoryFailed.
        """
        found = self.identity()
        if found is None:
            raise DataDirectoryFailed(f"data directory {self.path} has no meta.properties")
        if found.directory_id is not None:
            return found.directory_id
        try:
            meta_properties.write(self.files, self.path, named := found._replace(directory_id=new_id()))
        except OSError as error:
            raise DataDirectoryFailed(f"data directory {self.path} cannot be used: {error.strerror}") from error
        assert named.directory_id is not None
        return named.directory_id

    def space(self) -> DiskSpace:
        """The size and the usable space of the directory's file system. Raises OSError."""
        return self.files.space(self.path)

    # Clean stop

    def take_clean_mark(self) -> bool:
        """Whether the last stop was clean. Removes the mark, so that a later crash is not taken for a clean stop.

        Raises OSError.
        """
        path = self.path / CLEAN_SHUTDOWN
        if not self.files.exists(path):
            return False
        self.files.remove(path)
        self.files.sync_directory(self.path)
        return True

    def leave_clean_mark(self, broker_epoch: int = -1) -> None:
        """Write the mark of a clean stop, which says that every log was closed. Raises OSError."""
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        self.files.replace(self.path / CLEAN_SHUTDOWN, content.encode())

    # Checkpoints

    def read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """The offsets in a checkpoint. A damaged one counts as empty, so that logs are checked from their beginning.

        Raises OSError.
        """
        try:
            return checkpoints.read_offsets(self.files, self.path / name)
        except checkpoints.CorruptCheckpoint as error:
            logger.warning("the checkpoint in %s is corrupt and is ignored: %s", self.path, error)
            return {}
