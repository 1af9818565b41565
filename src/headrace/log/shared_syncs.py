"""One sync of a directory for all threads that wait for one.

Many new partitions are flushed at once, and each has its name in the same data directory. A sync that begins after a
thread has asked is good for it; so the first of those that wait does it, and the others find it done.

    asked by:    a | b c d |         a syncs; b, c and d ask meanwhile, and one of them syncs for the three
    syncs:       --1-- --2--

When it fails it fails for all whom it was to be good for: a second attempt might say yes to what is lost.
"""

import threading
from collections.abc import Callable
from pathlib import Path


class _Directory:
    """The syncs of one directory, numbered from 1."""

    __slots__ = ("asking", "begun", "failed", "failure", "lock", "succeeded")

    def __init__(self) -> None:
        self.lock = threading.Lock()  # held by the thread that syncs
        self.asking = 0
        self.begun = self.succeeded = self.failed = 0
        self.failure: OSError | None = None


class SharedSyncs:
    """Syncs directories; any thread."""

    def __init__(self, sync: Callable[[Path], None]) -> None:
        """`sync` does one, and raises OSError."""
        self._sync = sync
        self._lock = threading.Lock()
        self._directories: dict[Path, _Directory] = {}

    def sync(self, path: Path) -> None:
        """Return once what is in the directory now is on the disk. Raises OSError."""
        with self._lock:
            directory = self._directories.setdefault(path, _Directory())
            directory.asking += 1
            wanted = directory.begun + 1
        try:
            with directory.lock:
                if directory.failed >= wanted and directory.failure is not None:
                    raise OSError(directory.failure.errno, directory.failure.strerror, str(path))
                if directory.succeeded < wanted:
                    self._do(path, directory)
        finally:
            with self._lock:
                directory.asking -= 1
                if not directory.asking:
                    del self._directories[path]

    def _do(self, path: Path, directory: _Directory) -> None:
        with self._lock:
            directory.begun += 1
            number = directory.begun
        try:
            self._sync(path)
        except OSError as error:
            directory.failed, directory.failure = number, error
            raise
        directory.succeeded = number
