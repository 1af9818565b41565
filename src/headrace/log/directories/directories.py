"""The data directories of a broker: locks them, claims them for the broker, and takes failed ones offline.

A directory with a disk error goes offline, at the start or by `take_offline`; the others stay in use. The broker stops
if the last one fails, or an `essential` one. Source: Kafka's LogManager.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.errors import KafkaError
from headrace.log.directories.data_directory import DataDirectory, DataDirectoryFailed
from headrace.log.files import Files, LocalFiles
from headrace.log.watched_files import DirectoryWatch, WatchedFiles

logger = logging.getLogger(__name__)


class DataDirectories:
    """The data directories of one broker, locked from the construction until `release`."""

    def __init__(
        self, paths: Sequence[Path], *, broker_id: int, files: Files | None = None, essential: Path | None = None
    ) -> None:
        """Create and lock the directories. Raises DataDirectoryRefused, and then holds no lock."""
        disk = files or LocalFiles()
        self.watch = DirectoryWatch(disk, paths)
        self.files: Files = WatchedFiles(disk, self.watch)
        self.broker_id = broker_id
        self.in_use: list[DataDirectory] = []
        self.offline: dict[Path, str] = {}
        """The failed directories, each with the reason."""
        self.essential = essential
        self._paths = paths
        try:
            for path in paths:
                with self.leaving_out(path):
                    self.in_use.append(DataDirectory(self.files, path))
        except KafkaError:
            self.release()
            raise

    def release(self) -> None:
        """Release the locks of all data directories."""
        for directory in self.in_use:
            directory.release()
        self.in_use.clear()

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster that owns the directories; None when all are new. Raises DataDirectoryRefused."""
        found = None
        for directory in list(self.in_use):
            with self.leaving_out(directory.path):
                identity = directory.identity()
                found = found or (identity and identity.cluster_id)
        return found

    @property
    def known_broker_id(self) -> int | None:
        """The id of the broker that owns the directories; None when all are new. Raises DataDirectoryFailed."""
        found = [identity for each in list(self.in_use) if (identity := each.identity()) is not None]
        return found[0].broker_id if found else None

    def claim(self, cluster_id: str) -> None:
        """Mark new directories as this broker's.

        Raises DataDirectoryRefused for a directory of another cluster or broker.
        """
        for directory in list(self.in_use):
            with self.leaving_out(directory.path):
                directory.claim(cluster_id, self.broker_id)

    def directory_id(self, new_id: Callable[[], str]) -> str:
        """The directory id of the first directory in use. A directory without one gets the result of `new_id`.

        Raises DataDirectoryFailed.
        """
        return self.in_use[0].own_id(new_id)

    def find(self, path: Path) -> DataDirectory | None:
        """The data directory at `path`, or None when it is not in use."""
        return next((each for each in self.in_use if each.path.absolute() == path.absolute()), None)

    @contextmanager
    def leaving_out(self, path: Path) -> Iterator[None]:
        """Take the directory offline when the body fails, at a start.

        Raises DataDirectoryFailed when the directory is essential or the last one.
        """
        try:
            yield
        except (DataDirectoryFailed, OSError) as error:
            reason = error.message if isinstance(error, KafkaError) else f"{path}: {error}"
            if path == self.essential or len(self.offline) + 1 == len(self._paths):
                raise DataDirectoryFailed(reason) from error
            logger.error("%s; the broker continues without this directory, and its partitions are offline", reason)
            self.take_offline(path, reason)

    def take_offline(self, path: Path, reason: str) -> None:
        """Take a failed data directory out of use, and release its lock. `reason` is for error messages."""
        self.offline[path] = reason
        for directory in [each for each in self.in_use if each.path == path]:
            self.in_use.remove(directory)
            with suppress(OSError):
                directory.release()
