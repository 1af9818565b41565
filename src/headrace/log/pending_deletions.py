"""Delayed removal of files: renamed first, removed after `file.delete.delay.ms`. Source: Kafka's LocalLog."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from os.path import dirname
from pathlib import Path

from headrace.log.files import Files, PathText

logger = logging.getLogger(__name__)


class PendingDeletions:
    """Paths to remove, each at its time. The earliest comes first."""

    __slots__ = ("_paths",)

    def __init__(self) -> None:
        self._paths: tuple[tuple[int, str], ...] = ()  # an empty deque takes 700 bytes; most logs have none to remove

    def __len__(self) -> int:
        return len(self._paths)

    def add(self, paths: Iterable[PathText], at_ms: int) -> None:
        """Schedule the removal of `paths` at `at_ms`."""
        self._paths += tuple([(at_ms, str(path)) for path in paths])

    def take_due(self, now_ms: int) -> list[str]:
        """Take the paths whose time is at or before `now_ms`. The caller removes them."""
        if not self._paths or self._paths[0][0] > now_ms:
            return []
        due = [path for _, path in takewhile(lambda each: each[0] <= now_ms, self._paths)]
        self._paths = self._paths[len(due) :]
        return due

    def forget(self, directory: Path | None = None) -> None:
        """Forget the paths in a directory, or all paths for None, without removing them."""
        parent = str(directory)
        kept = () if directory is None else (each for each in self._paths if dirname(each[1]) != parent)  # noqa: PTH120
        self._paths = tuple(kept)


def remove_files(files: Files, paths: Sequence[str]) -> None:
    """Remove each file. Any thread. One that cannot be removed is logged, and is removed at the next start."""
    _report(files.remove_all(paths))


def remove_trees(files: Files, paths: Sequence[str]) -> None:
    """Remove each directory with everything in it. Any thread. Errors as for `remove_files`."""
    errors = {}
    for path in paths:
        try:
            files.remove_tree(path)
        except OSError as error:
            errors[path] = error
    _report(errors)


def _report(errors: Mapping[str, OSError]) -> None:
    for path, error in errors.items():
        logger.error("%s could not be removed: %s", path, error)
