"""Detects failed data directories: a `Files` that forwards every call and reports refused calls.

A refused call raises the same error as without this module. The error decides whether the data directory has failed:

    full, over a quota or a limit, out of descriptors or memory     no: temporary, or a problem of this process
    no such file                                                    only when `meta.properties` and `.lock` are gone too
    EIO, EROFS, EACCES, ESTALE, ... and all other errors            yes

In Apache Kafka every IOException fails the directory, also that of a full disk. Here a full disk refuses records until
there is space. Each failed directory is reported once. Source: Kafka's LogDirFailureChannel.
"""

import errno
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

from headrace.log.directories import meta_properties
from headrace.log.files import (
    AtPath,
    Bytes,
    DirectoryLock,
    DiskSpace,
    Files,
    LogFile,
    PathText,
    folder_and_name,
    plain_fd_of,
    sync_fd_of,
)

_ALWAYS_THERE = (meta_properties.FILE_NAME, ".lock")
P = ParamSpec("P")
R = TypeVar("R")
_NOT_THE_DIRECTORY = frozenset(
    {
        errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR,
        errno.EEXIST, errno.ENOTEMPTY, errno.EINVAL, errno.ENAMETOOLONG, errno.EOPNOTSUPP, errno.EBADF,
    }
)  # fmt: skip


class DirectoryWatch:
    """Decides from refused calls whether a data directory has failed. Any thread."""

    def __init__(self, files: Files, directories: Sequence[Path]) -> None:
        self._files = files
        self._directories = list(directories)
        self._lock = threading.Lock()
        self.failed: dict[Path, str] = {}
        """The failed directories, each with the reason."""
        self._listeners: list[Callable[[Path, str], None]] = []

    def on_failure(self, listener: Callable[[Path, str], None]) -> dict[Path, str]:
        """Call `listener` with each directory that fails from now on and the reason, on the refused call's thread.

        Returns the directories that have failed before, each with the reason.
        """
        with self._lock:
            self._listeners.append(listener)
            return dict(self.failed)

    def refused(self, path: PathText, error: OSError) -> None:
        """Note that the disk refused a call at `path` with `error`."""
        path = Path(path)
        directory = next((each for each in self._directories if path == each or each in path.parents), None)
        if directory is None or directory in self.failed or not self._means_failure(directory, error):
            return
        reason = f"{error.strerror or error} ({path.relative_to(directory)})"
        with self._lock:
            if directory in self.failed:
                return
            self.failed[directory] = reason
            listeners = list(self._listeners)
        for listener in listeners:
            listener(directory, reason)

    def _means_failure(self, directory: Path, error: OSError) -> bool:
        if error.errno is None or error.errno in _NOT_THE_DIRECTORY:
            return False
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            try:
                return not any(self._files.exists(directory / name) for name in _ALWAYS_THERE)
            except OSError:
                return True
        return True


class WatchedFiles:
    """`Files` that reports refused calls to a `DirectoryWatch`."""

    def __init__(self, files: Files, watch: DirectoryWatch) -> None:
        self._files = files
        self._watch = watch

    def _do(self, path: PathText, call: Callable[P, R], *arguments: P.args, **more: P.kwargs) -> R:
        try:
            return call(*arguments, **more)
        except OSError as error:
            self._watch.refused(path, error)
            raise

    def open(self, path: PathText, *, create: bool = False) -> LogFile:
        try:
            file = self._files.open(path, create=create)
        except OSError as error:
            self._watch.refused(path, error)
            raise
        return WatchedFile(file, path, self._watch)

    def open_new(self, path: PathText) -> LogFile:
        return WatchedFile(self._do(path, self._files.open_new, path), path, self._watch)

    def make_hole(self, path: PathText, size: int) -> None:
        self._do(path, self._files.make_hole, path, size)

    def open_readonly(self, path: PathText) -> LogFile:
        return WatchedFile(self._do(path, self._files.open_readonly, path), path, self._watch)

    def read(self, path: PathText) -> bytes:
        return self._do(path, self._files.read, path)

    def replace(self, path: PathText, data: Bytes, *, sync: bool = True) -> None:
        self._do(path, self._files.replace, path, data, sync=sync)

    def names(self, directory: PathText) -> list[str]:
        return self._do(directory, self._files.names, directory)

    def exists(self, path: PathText) -> bool:
        return self._files.exists(path)

    def is_directory(self, path: PathText) -> bool:
        return self._files.is_directory(path)

    def file_size(self, path: PathText) -> int:
        return self._do(path, self._files.file_size, path)

    def allocated_bytes(self, path: PathText) -> int:
        return self._files.allocated_bytes(path)

    def modified_ms(self, path: PathText) -> int:
        return self._do(path, self._files.modified_ms, path)

    def set_modified_ms(self, path: PathText, modified_ms: int) -> None:
        self._do(path, self._files.set_modified_ms, path, modified_ms)

    def space(self, directory: PathText) -> DiskSpace:
        return self._files.space(directory)

    def has_large_folios(self, directory: PathText) -> bool:
        return self._files.has_large_folios(directory)

    def make_directory(self, path: PathText) -> None:
        self._do(path, self._files.make_directory, path)

    def rename(self, old: PathText, new: PathText) -> None:
        try:
            self._files.rename(old, new)
        except OSError as error:
            self._watch.refused(old, error)
            raise

    def remove(self, path: PathText) -> None:
        self._do(path, self._files.remove, path)

    def remove_all(self, paths: Sequence[PathText]) -> dict[str, OSError]:
        errors = self._files.remove_all(paths)
        for path, error in errors.items():
            self._watch.refused(path, error)
        return errors

    def remove_tree(self, path: PathText) -> None:
        self._do(path, self._files.remove_tree, path)

    def sync_directory(self, path: PathText) -> None:
        self._do(path, self._files.sync_directory, path)

    def lock(self, path: PathText) -> DirectoryLock:
        return self._files.lock(path)


class WatchedFile(AtPath):
    """An open file that reports refused calls. Every produce writes, so each method makes its call directly.

    The error of a sync names the file: it fails the log for good, and the operator has to know which disk it was."""

    __slots__ = ("_file", "_folder", "_name", "_watch", "fd", "plain_fd", "sync_fd")

    def __init__(self, file: LogFile, path: PathText, watch: DirectoryWatch) -> None:
        self._file, self._watch = file, watch
        self._folder, self._name = folder_and_name(path)
        self.fd, self.plain_fd, self.sync_fd = file.fd, plain_fd_of(file), sync_fd_of(file)

    def write(self, data: Bytes, position: int) -> None:
        try:
            self._file.write(data, position)
        except OSError as error:
            self._watch.refused(self.text, error)
            raise

    def read(self, size: int, position: int) -> bytes:
        try:
            return self._file.read(size, position)
        except OSError as error:
            self._watch.refused(self.text, error)
            raise

    def read_into(self, buffer: memoryview, position: int) -> int:
        try:
            return self._file.read_into(buffer, position)
        except OSError as error:
            self._watch.refused(self.text, error)
            raise

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        try:
            self._file.truncate(size)
        except OSError as error:
            self._watch.refused(self.text, error)
            raise

    def extend(self, size: int) -> None:
        self._file.extend(size)

    def make_room(self, position: int, size: int) -> int:
        return self._file.make_room(position, size)

    def sync(self) -> None:
        try:
            self._file.sync()
        except OSError as error:
            self._watch.refused(self.text, error)
            error.filename = self.text
            raise

    def sync_failed(self, code: int) -> OSError:
        error = self._file.sync_failed(code)
        self._watch.refused(self.text, error)
        error.filename = self.text
        return error
