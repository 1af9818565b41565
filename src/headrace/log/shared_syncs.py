"""Shares one sync of a directory among all threads that wait for it.

Many new partitions are flushed at once, and their names are in the same data directory. A sync serves every thread that
asked before it began. So the first of the waiting threads syncs, and the others find it done.

    asked by:    a | b c d |         a syncs; b, c and d ask meanwhile, and one of them syncs for all three
    syncs:       --1-- --2--

A failed sync fails for all threads that it would have served: a second attempt may succeed although data is lost. A
directory that could not be opened is refused to all of them, but for those whom a failed sync would have served too.
"""

import threading
from collections.abc import Callable


class OpenRefused(OSError):
    """What is to be synced could not be opened. No sync was tried, so nothing is lost, and a later sync may succeed.

    After a failed sync the kernel may have dropped what was not written: that is another OSError."""


class _Directory:
    """The syncs of one directory, numbered from 1."""

    __slots__ = ("begun", "failed", "failure", "lock", "refusal", "refused", "succeeded", "waiting")

    def __init__(self) -> None:
        self.lock = threading.Lock()  # held by the thread that syncs
        self.waiting = 0
        self.begun = self.succeeded = self.failed = self.refused = 0
        self.failure: OSError | None = None
        self.refusal: OSError | None = None


class SharedSyncs:
    """Syncs directories. Any thread."""

    def __init__(self, sync: Callable[[str], None]) -> None:
        """`sync` syncs one directory, and raises OSError."""
        self._sync = sync
        self._lock = threading.Lock()
        self._directories: dict[str, _Directory] = {}

    def sync(self, path: str) -> None:
        """Return once the current names in the directory are on the disk. Raises OSError."""
        with self._lock:
            directory = self._directories.setdefault(path, _Directory())
            directory.waiting += 1
            wanted = directory.begun + 1
        try:
            with directory.lock:
                _check(directory.failed >= wanted, directory.failure, path)  # first: the lock is not fair
                _check(directory.refused >= wanted, directory.refusal, path)
                if directory.succeeded < wanted:
                    self._do(path, directory)
        finally:
            with self._lock:
                directory.waiting -= 1
                if not directory.waiting:
                    del self._directories[path]

    def _do(self, path: str, directory: _Directory) -> None:
        with self._lock:
            directory.begun += 1
            number = directory.begun
        try:
            self._sync(path)
        except OpenRefused as error:
            directory.refused, directory.refusal = number, error
            raise
        except OSError as error:
            directory.failed, directory.failure = number, error
            raise
        directory.succeeded = number


def _check(is_so: bool, error: OSError | None, path: str) -> None:
    if is_so and error is not None:
        raise type(error)(error.errno, error.strerror, path)
