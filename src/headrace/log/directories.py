"""The data directories of a broker: locked, claimed for it, and left out when they fail.

A directory that its disk fails is left out, at the start or by `take_offline`; the others go on. The last one, and one
that is `essential`, cannot be done without. Source: Kafka's LogManager.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.errors import KafkaError
from headrace.log.data_directory import DataDirectory, DataDirectoryFailed
from headrace.log.files import Files, LocalFiles
from headrace.log.watched_files import DirectoryWatch, WatchedFiles
from headrace.types import TopicPartition

logger = logging.getLogger(__name__)


class DataDirectories:
    """Those of one broker."""

    def __init__(
        self, paths: Sequence[Path], *, broker_id: int, files: Files | None = None, essential: Path | None = None
    ) -> None:
        disk = files or LocalFiles()
        self.watch = DirectoryWatch(disk, paths)
        self.files: Files = WatchedFiles(disk, self.watch)
        self.broker_id = broker_id
        self.directories: list[DataDirectory] = []
        """Those that are in use."""
        self.offline: dict[Path, str] = {}
        """Those that failed, and why."""
        self.essential = essential
        self._paths = paths

    def lock(self) -> None:
        """Take the directories into use. Raises DataDirectoryRefused, and then holds none."""
        try:
            for path in self._paths:
                with self.leaving_out(path):
                    self.directories.append(DataDirectory(self.files, path))
        except KafkaError:
            self.release()
            raise

    def release(self) -> None:
        """Let go of the data directories, without closing anything."""
        for directory in self.directories:
            directory.release()
        self.directories.clear()

    @property
    def cluster_id(self) -> str | None:
        """The cluster that the directories belong to; None when all are new. Raises DataDirectoryRefused."""
        found = None
        for directory in list(self.directories):
            with self.leaving_out(directory.path):
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
            with self.leaving_out(directory.path):
                directory.claim(cluster_id, self.broker_id)

    def directory_id(self, new_id: Callable[[], str]) -> str:
        """What the first directory is known by among all that ever were; `new_id` when it has none yet. Raises
        DataDirectoryFailed."""
        return self.directories[0].own_id(new_id)

    def directory(self, path: Path) -> DataDirectory | None:
        """The data directory that is meant, if it is in use."""
        return next((each for each in self.directories if each.path.absolute() == path.absolute()), None)

    @contextmanager
    def leaving_out(self, path: Path) -> Iterator[None]:
        """At a start: goes on without a directory that fails. Raises DataDirectoryFailed when that is not possible."""
        try:
            yield
        except (DataDirectoryFailed, OSError) as error:
            reason = error.message if isinstance(error, KafkaError) else f"{path}: {error}"
            if path == self.essential or len(self.offline) + 1 == len(self._paths):
                raise DataDirectoryFailed(reason) from error
            logger.error("%s; the broker goes on without it, and its partitions are offline", reason)
            self.take_offline(path, reason)

    def take_offline(self, path: Path, reason: str) -> list[TopicPartition]:
        """Go on without a data directory that has failed; the partitions that were in it. Nothing is written to it any
        more, and another process may lock it."""
        self.offline[path] = reason
        for directory in [each for each in self.directories if each.path == path]:
            self.directories.remove(directory)
            with suppress(OSError):
                directory.release()
        return []
