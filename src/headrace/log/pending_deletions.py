"""Delayed removal of files: renamed first, removed after `file.delete.delay.ms`. Source: Kafka's LocalLog."""

import logging
from collections.abc import Callable, Iterable
from itertools import takewhile
from pathlib import Path

logger = logging.getLogger(__name__)


class PendingDeletions:
    """Paths to remove, each at its time. The earliest comes first."""

    __slots__ = ("_paths",)

    def __init__(self) -> None:
        self._paths: tuple[tuple[int, Path], ...] = ()  # an empty deque takes 700 bytes; most logs have none to remove

    def __len__(self) -> int:
        return len(self._paths)

    def add(self, paths: Iterable[Path], at_ms: int) -> None:
        """Schedule the removal of `paths` at `at_ms`."""
        self._paths += tuple((at_ms, path) for path in paths)

    def take_due(self, now_ms: int) -> list[Path]:
        """Take the paths whose time is at or before `now_ms`. The caller removes them."""
        due = list(takewhile(lambda each: each[0] <= now_ms, self._paths))
        self._paths = self._paths[len(due) :]
        return [path for _, path in due]

    def forget(self, directory: Path | None = None) -> None:
        """Forget the paths in a directory, or all paths for None, without removing them."""
        kept = () if directory is None else (each for each in self._paths if each[1].parent != directory)
        self._paths = tuple(kept)


def remove_all(remove: Callable[[Path], None], paths: Iterable[Path]) -> None:
    """Remove each path. Any thread. A path that cannot be removed is logged, and is removed at the next start."""
    for path in paths:
        try:
            remove(path)
        except OSError as error:
            logger.error("%s could not be removed: %s", path, error)
