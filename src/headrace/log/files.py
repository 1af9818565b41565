"""The interface between the log and the disk, and its implementation on the real disk. Only this module opens files.

The log uses `Files` and `LogFile`, so that a test can provide a simulated disk, which loses unsynced data, tears a
write, or fails at the n-th call.

- A `LogFile` closes itself when its last holder releases it. So a reader with a file range can finish after the
  segment is deleted.
- `write` writes everything or raises OSError. A failed write may leave bytes behind its position. The caller keeps its
  own size, so the next write overwrites these bytes.
- Any thread may call `sync`, `sync_directory`, `sync_open` and `remove_all`. The log's owner makes all other calls.
- A path may be a text. What is done at each roll and deletion of a segment uses texts: to make a `Path` takes longer
  than most calls of the disk.
"""

import fcntl
import os
from array import array
from collections.abc import Sequence
from contextlib import suppress
from errno import EIO, ENOENT
from pathlib import Path
from stat import S_ISDIR
from sys import intern
from typing import NamedTuple, Protocol

from headrace.log import disk_calls
from headrace.log.shared_syncs import OpenRefused, SharedSyncs

Bytes = bytes | bytearray | memoryview
PathText = Path | str
"""A path, or its text."""


class LogFile(Protocol):
    """An open file. Reads and writes have an explicit position, in bytes."""

    @property
    def fd(self) -> int:
        """The descriptor, for `os.sendfile`."""

    def write(self, data: Bytes, position: int) -> None:
        """Write all of `data` at `position`. Raises OSError."""

    def read(self, size: int, position: int) -> bytes:
        """Read `size` bytes at `position`; fewer only at the end of the file. Raises OSError."""

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position`, and return the number of bytes; fewer only at the end of the file."""

    def size(self) -> int:
        """The file's length in bytes."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, or extend it with zeros."""

    def extend(self, size: int) -> None:
        """Extend the file to `size` bytes with a hole. Does nothing when the disk has no holes or no space."""

    def make_room(self, position: int, size: int) -> int:
        """Write `size` zeros at `position`. Returns how many were written; fewer when the disk has no space."""

    def sync(self) -> None:
        """Return once the content is on the disk. Any thread. Raises OSError."""

    def sync_failed(self, code: int) -> OSError:
        """The error of a sync of a plain descriptor that failed with this errno. Reports it as `sync` does."""


class DirectoryLock(Protocol):
    """An exclusive lock, held until `release` or the end of the process."""

    def release(self) -> None:
        """Release the lock."""


class DiskSpace(NamedTuple):
    """A file system's size, and the space that this process can still use."""

    total_bytes: int
    usable_bytes: int


class Files(Protocol):
    """A disk: the operations of the log on paths. They raise OSError when the disk refuses them."""

    def open(self, path: PathText, *, create: bool = False) -> LogFile:
        """Open a file for reading and writing. Raises FileNotFoundError for a missing file unless `create`."""

    def open_new(self, path: PathText) -> LogFile:
        """Create a file for reading and writing. Raises FileExistsError when there is one."""

    def make_hole(self, path: PathText, size: int) -> None:
        """Create a file, or empty the one of that name, and extend it as `LogFile.extend` does."""

    def open_readonly(self, path: PathText) -> LogFile:
        """Open a file for reading only."""

    def read(self, path: PathText) -> bytes:
        """The whole content of a file."""

    def replace(self, path: PathText, data: Bytes, *, sync: bool = True) -> None:
        """Replace the file's content atomically: a crash leaves the old content or the new one.

        Without `sync` the new content may be lost.
        """

    def names(self, directory: PathText) -> list[str]:
        """The names in a directory, sorted."""

    def exists(self, path: PathText) -> bool: ...

    def is_directory(self, path: PathText) -> bool: ...

    def file_size(self, path: PathText) -> int: ...

    def allocated_bytes(self, path: PathText) -> int:
        """The space that a file takes on the disk, in bytes: its size without the holes."""

    def modified_ms(self, path: PathText) -> int:
        """The file's modification time, in ms since the epoch."""

    def set_modified_ms(self, path: PathText, modified_ms: int) -> None:
        """Set the file's modification time, in ms since the epoch."""

    def space(self, directory: PathText) -> DiskSpace: ...

    def has_large_folios(self, directory: PathText) -> bool:
        """Whether the page cache keeps the files below a directory in large folios."""

    def make_directory(self, path: PathText) -> None:
        """Create the directory and its parents. Does nothing when it exists."""

    def rename(self, old: PathText, new: PathText) -> None: ...

    def remove(self, path: PathText) -> None:
        """Remove a file. Does nothing when it does not exist."""

    def remove_all(self, paths: Sequence[PathText]) -> dict[str, OSError]:
        """Remove files. Returns the errors of those that could not be removed. Any thread."""

    def remove_tree(self, path: PathText) -> None:
        """Remove a directory with everything in it."""

    def sync_directory(self, path: PathText) -> None:
        """Return once the names in the directory are on the disk. Any thread.

        Raises FileNotFoundError, `OpenRefused`, and another OSError when the sync failed.
        """

    def lock(self, path: PathText) -> DirectoryLock:
        """Lock the file at `path`, and create it when missing. Raises BlockingIOError when the lock is held."""


def _sync_directory(path: str) -> None:
    failed = disk_calls.sync_directory(os.fsencode(path))
    if failed:
        code = abs(failed)
        raise (OpenRefused if failed > 0 and code != ENOENT else OSError)(code, os.strerror(code), path)


_shared_syncs = SharedSyncs(_sync_directory)


def _status(path: PathText) -> os.stat_result | None:
    """A file's status, or None when there is no such file. Raises OSError; `os.path.exists` does not."""
    try:
        return os.stat(path)  # noqa: PTH116 - texts
    except (FileNotFoundError, NotADirectoryError):
        return None


def plain_fd_of(file: LogFile) -> int:
    """The descriptor of a file for which a write is a write to it and nothing else; -1 for any other file.

    A write to the descriptor that fails has to be repeated by `LogFile.write`, which raises and reports the error."""
    found: int = getattr(file, "plain_fd", -1)
    return found


def sync_fd_of(file: LogFile) -> int:
    """The descriptor of a file for which a sync is a sync of it and nothing else; -1 for any other file. The memory of
    a simulated disk is written to as a plain descriptor, but the disk has to know of each sync."""
    found: int = getattr(file, "sync_fd", -1)
    return found


def sync_open(files: Sequence[LogFile]) -> None:
    """Sync open files. Any thread. Raises OSError, and then leaves the files behind the refused one alone."""
    fds = array("i", map(sync_fd_of, files))
    if fds and min(fds) >= 0:
        place, code = disk_calls.sync_files(fds)
        if place >= 0:
            raise files[place].sync_failed(code)
        return
    for file in files:
        file.sync()


def remove_each(files: "Files", paths: Sequence[PathText]) -> dict[str, OSError]:
    """`Files.remove_all` for a disk that removes one file at a time."""
    errors = {}
    for path in paths:
        try:
            files.remove(path)
        except OSError as error:
            errors[str(path)] = error
    return errors


class DiskFile:
    """A file of the real disk."""

    __slots__ = ("fd",)

    @property
    def plain_fd(self) -> int:
        """See `plain_fd_of`."""
        return self.fd if type(self) is DiskFile else -1

    sync_fd = plain_fd
    """See `sync_fd_of`."""

    def __init__(self, path: PathText, flags: int) -> None:
        self.fd = -1
        self.fd = os.open(path, flags | os.O_CLOEXEC, 0o644)

    def write(self, data: Bytes, position: int) -> None:
        written = os.pwrite(self.fd, data, position)
        if written != len(data):
            self._write_rest(data, position, written)

    def _write_rest(self, data: Bytes, position: int, written: int) -> None:
        """Continue a short write. It precedes ENOSPC or comes from a signal, and only the next write tells which."""
        view = memoryview(data)
        while written < len(view):
            more = os.pwrite(self.fd, view[written:], position + written)
            if not more:
                raise OSError(EIO, f"only {written} of {len(view)} bytes were written")
            written += more

    def read(self, size: int, position: int) -> bytes:
        data = os.pread(self.fd, size, position)
        while len(data) < size:
            more = os.pread(self.fd, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def read_into(self, buffer: memoryview, position: int) -> int:
        filled = 0
        while filled < len(buffer):
            count = os.preadv(self.fd, [buffer[filled:]], position + filled)
            if not count:
                break
            filled += count
        return filled

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)

    def extend(self, size: int) -> None:
        disk_calls.extend(self.fd, size)

    def make_room(self, position: int, size: int) -> int:
        try:
            return os.pwrite(self.fd, bytes(size), position)
        except OSError:
            return 0

    def sync(self) -> None:
        os.fdatasync(self.fd)

    def sync_failed(self, code: int) -> OSError:
        return OSError(code, os.strerror(code))

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class DiskLock:
    """Two locks on one file: a POSIX lock, which Apache Kafka uses too, and a flock.

    The flock also excludes a second log manager in the same process.
    """

    def __init__(self, path: PathText) -> None:
        self._file = DiskFile(path, os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.lockf(self._file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except PermissionError as error:
            raise BlockingIOError(*error.args) from error

    def release(self) -> None:
        fcntl.lockf(self._file.fd, fcntl.LOCK_UN)
        fcntl.flock(self._file.fd, fcntl.LOCK_UN)


def folder_and_name(path: PathText) -> tuple[str, str]:
    """What `AtPath` keeps of a path."""
    folder, _, name = os.fspath(path).rpartition("/")
    return intern(folder), intern(name)


class AtPath:
    """The base of what has a path for life, and keeps it as two texts, in `_folder` and `_name`.

    A `Path` takes four times the memory, and a broker has several for each partition. The folder is one text for all
    files of a partition, and a name one for all partitions that have a file of that name."""

    __slots__ = ()

    _folder: str
    _name: str

    @property
    def path(self) -> Path:
        """The path."""
        return Path(self.text)

    @property
    def text(self) -> str:
        """The path as a text."""
        return f"{self._folder}/{self._name}" if self._folder else self._name


class LocalFiles:
    """The real disk."""

    def open(self, path: PathText, *, create: bool = False) -> LogFile:
        return DiskFile(path, os.O_RDWR | os.O_CREAT if create else os.O_RDWR)

    def open_new(self, path: PathText) -> LogFile:
        return DiskFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def make_hole(self, path: PathText, size: int) -> None:
        failed = disk_calls.make_hole(os.fsencode(path), size)
        if failed:
            raise OSError(failed, os.strerror(failed), str(path))

    def open_readonly(self, path: PathText) -> LogFile:
        return DiskFile(path, os.O_RDONLY)

    def read(self, path: PathText) -> bytes:
        file = DiskFile(path, os.O_RDONLY)  # a start reads five small files per partition: `open` takes twice as long
        return file.read(file.size(), 0)

    def replace(self, path: PathText, data: Bytes, *, sync: bool = True) -> None:
        temporary = f"{path}.tmp"
        try:
            file = DiskFile(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            file.write(data, 0)
            if sync:
                file.sync()
            os.replace(temporary, path)  # noqa: PTH105 - texts
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
            raise
        if sync:
            self.sync_directory(os.path.dirname(path) or ".")  # noqa: PTH120

    def names(self, directory: PathText) -> list[str]:
        return sorted(os.listdir(directory))  # noqa: PTH208 - names are what is asked for

    def exists(self, path: PathText) -> bool:
        return _status(path) is not None

    def is_directory(self, path: PathText) -> bool:
        status = _status(path)
        return status is not None and S_ISDIR(status.st_mode)

    def modified_ms(self, path: PathText) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000  # noqa: PTH116

    def set_modified_ms(self, path: PathText, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000,) * 2)

    def file_size(self, path: PathText) -> int:
        return os.stat(path).st_size  # noqa: PTH116

    def allocated_bytes(self, path: PathText) -> int:
        status = os.stat(path)  # noqa: PTH116
        return min(status.st_size, disk_calls.allocated_bytes(status))

    def space(self, directory: PathText) -> DiskSpace:
        found = os.statvfs(directory)
        return DiskSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def has_large_folios(self, directory: PathText) -> bool:
        from headrace.log.page_cache import has_large_folios  # imported late: a start appends to no large segment

        return has_large_folios(str(directory))

    def make_directory(self, path: PathText) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    def rename(self, old: PathText, new: PathText) -> None:
        os.rename(old, new)  # noqa: PTH104

    def remove(self, path: PathText) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108

    def remove_all(self, paths: Sequence[PathText]) -> dict[str, OSError]:
        if type(self) is not LocalFiles:
            return remove_each(self, paths)
        texts = list(map(str, paths))
        codes = disk_calls.remove_files(b"".join(os.fsencode(text) + b"\0" for text in texts), len(texts))
        return {text: OSError(code, os.strerror(code), text) for text, code in zip(texts, codes, strict=True) if code}

    def remove_tree(self, path: PathText) -> None:
        from shutil import rmtree  # imported late: it imports bz2 and lzma, and a start removes nothing

        rmtree(path)

    def sync_directory(self, path: PathText) -> None:
        _shared_syncs.sync(str(path))

    def lock(self, path: PathText) -> DirectoryLock:
        return DiskLock(path)
