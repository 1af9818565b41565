"""Deletes partitions: renames their directories, which are removed later.

A deletion has three steps, so that another thread can do the disk operations:

    deletion = PartitionDeletion(files, logs)   the owner: the logs refuse appends
    deletion.run()                              any thread: renames each, and syncs each data directory once
    deletion.finish()                           the owner: the logs release their files

Source: Kafka's LogManager.asyncDelete.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from headrace.log.filenames import DELETE_DIRECTORY, delete_name
from headrace.log.files import Files
from headrace.log.partition_log import PartitionLog


class PartitionDeletion:
    """One deletion of several partitions. `errors` has the partitions that failed; the caller may try them again."""

    def __init__(self, files: Files, logs: Iterable[PartitionLog]) -> None:
        self.errors: dict[PartitionLog, OSError] = {}
        self._files = files
        self._directories = {log: log.directory for log in logs}
        self._failures = {log: log.failure for log in self._directories}
        for log in self._directories:
            log.fail(f"{log.partition} is deleted")

    def run(self) -> None:
        """Rename the directories so that no start loads them as partitions. Any thread."""
        parents: dict[Path, list[PartitionLog]] = {}
        for log, directory in self._directories.items():
            if not directory.name.endswith(DELETE_DIRECTORY):  # otherwise an earlier attempt renamed it
                doomed = directory.with_name(delete_name(log.partition, os.urandom(16).hex()))
                try:
                    self._files.rename(directory, doomed)
                except OSError as error:
                    self.errors[log] = error
                    continue
                self._directories[log] = doomed
            parents.setdefault(directory.parent, []).append(log)
        for parent, logs in parents.items():
            try:
                self._files.sync_directory(parent)
            except OSError as error:
                self.errors |= dict.fromkeys(logs, error)

    def finish(self) -> Iterator[tuple[PartitionLog, Path]]:
        """Release the logs, one after the other; yields the deleted ones, each with its new directory."""
        for log, directory in self._directories.items():
            if log not in self.errors:
                log.release()
                log.flusher.log_is_deleted()
            elif directory == log.directory:
                log.revive(self._failures[log])
            log.renamed(directory)
            if log not in self.errors:
                yield log, directory
