"""The only module that opens files: what the log needs of a disk, and the real disk.

Everything above speaks to `Files` and `LogFile`, so that a test can put a simulated disk below: one that loses
what was not synced, tears a write, or fails at the n-th call.

- A `LogFile` closes itself when its last holder lets go of it. A reader that was given a file range therefore
  finishes, even when the segment is deleted under it.
- `write` writes everything or raises OSError. A failed write may leave bytes behind the position it was to begin
  at; the caller keeps its own size, so that the next write goes over them.
- `sync` and `sync_directory` may be called from any thread; everything else belongs to the log's owner.
"""

import fcntl
import os
import shutil
from contextlib import suppress
from errno import EIO
from pathlib import Path
from typing import NamedTuple, Protocol

from headrace.log.shared_syncs import SharedSyncs

Bytes = bytes | bytearray | memoryview


class LogFile(Protocol):
    """An open file, read and written at positions."""

    @property
    def fd(self) -> int:
        """The descriptor, for `os.sendfile`."""

    def write(self, data: Bytes, position: int) -> None:
        """Write all of `data` at `position`."""

    def read(self, size: int, position: int) -> bytes:
        """Up to `size` bytes at `position`; fewer only at the end of the file."""

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position`; returns the bytes read, fewer only at the end of the file."""

    def size(self) -> int:
        """The length in bytes."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, or extend it with zeros."""

    def extend(self, size: int) -> None:
        """Make the file longer by a hole that ends at `size`; nothing where the disk has no holes, or no room."""

    def sync(self) -> None:
        """Return once the content is on the disk. Any thread."""


class DirectoryLock(Protocol):
    """An exclusive lock; held until `release`, or the death of the process."""

    def release(self) -> None:
        """Let others have it."""


class DiskSpace(NamedTuple):
    """A file system's size, and what of it this process could still use."""

    total_bytes: int
    usable_bytes: int


class Files(Protocol):
    """A disk: what the log does with paths."""

    def open(self, path: Path, *, create: bool = False) -> LogFile:
        """Open for reading and writing; FileNotFoundError unless `create`."""

    def open_readonly(self, path: Path) -> LogFile:
        """Open for reading alone."""

    def read(self, path: Path) -> bytes:
        """The whole content."""

    def replace(self, path: Path, data: Bytes, *, sync: bool = True) -> None:
        """Put `data` at `path` so that a crash leaves the old content or the new, never a mixture."""

    def names(self, directory: Path) -> list[str]:
        """The names in a directory, sorted."""

    def exists(self, path: Path) -> bool: ...

    def is_directory(self, path: Path) -> bool: ...

    def file_size(self, path: Path) -> int: ...

    def allocated_bytes(self, path: Path) -> int:
        """What a file takes on the disk: its size, less the holes in it."""

    def modified_ms(self, path: Path) -> int:
        """When a file was last written to."""

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """Have a file say that it was last written to then."""

    def space(self, directory: Path) -> DiskSpace: ...

    def make_directory(self, path: Path) -> None:
        """Make the directory and its parents; nothing when it is there."""

    def rename(self, old: Path, new: Path) -> None: ...

    def remove(self, path: Path) -> None:
        """Remove a file; nothing when it is not there."""

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with everything in it."""

    def sync_directory(self, path: Path) -> None:
        """Return once the names in the directory are on the disk. Any thread."""

    def lock(self, path: Path) -> DirectoryLock:
        """Lock the file at `path`, made when missing; BlockingIOError when another holds it."""


_without_holes: set[int] = set()
"""Devices whose file systems write zeros where a file is made longer (FAT): there nothing is."""


def _allocated(status: os.stat_result) -> int:
    return status.st_blocks * 512  # whatever the file system's own blocks are


def _sync_directory(path: Path) -> None:
    DiskFile(path, os.O_RDONLY | os.O_DIRECTORY).sync()


_shared_syncs = SharedSyncs(_sync_directory)


class DiskFile:
    """A file of the real disk."""

    __slots__ = ("fd",)

    def __init__(self, path: Path, flags: int) -> None:
        self.fd = -1
        self.fd = os.open(path, flags | os.O_CLOEXEC, 0o644)

    def write(self, data: Bytes, position: int) -> None:
        written = os.pwrite(self.fd, data, position)
        if written != len(data):
            self._write_rest(data, position, written)

    def _write_rest(self, data: Bytes, position: int, written: int) -> None:
        """Short writes come before ENOSPC, or from a signal: go on until the disk says which."""
        view = memoryview(data)
        while written < len(view):
            more = os.pwrite(self.fd, view[written:], position + written)
            if not more:
                raise OSError(EIO, f"the disk took {written} of {len(view)} bytes")
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
        before = os.fstat(self.fd)
        if size <= before.st_size or before.st_dev in _without_holes:
            return
        try:
            os.ftruncate(self.fd, size)
        except OSError:
            return
        if _allocated(os.fstat(self.fd)) - _allocated(before) >= size - before.st_size:
            _without_holes.add(before.st_dev)
            os.ftruncate(self.fd, before.st_size)

    def sync(self) -> None:
        os.fdatasync(self.fd)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class DiskLock:
    """Two locks on one file: a POSIX lock, which Apache Kafka takes too, and a flock, which also keeps out a
    second log manager in this process."""

    def __init__(self, path: Path) -> None:
        self._file = DiskFile(path, os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.lockf(self._file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except PermissionError as error:
            raise BlockingIOError(*error.args) from error

    def release(self) -> None:
        fcntl.lockf(self._file.fd, fcntl.LOCK_UN)
        fcntl.flock(self._file.fd, fcntl.LOCK_UN)


class LocalFiles:
    """The real disk."""

    def open(self, path: Path, *, create: bool = False) -> LogFile:
        return DiskFile(path, os.O_RDWR | os.O_CREAT if create else os.O_RDWR)

    def open_readonly(self, path: Path) -> LogFile:
        return DiskFile(path, os.O_RDONLY)

    def read(self, path: Path) -> bytes:
        file = DiskFile(path, os.O_RDONLY)  # a start reads five small files per partition: `open` takes twice as long
        return file.read(file.size(), 0)

    def replace(self, path: Path, data: Bytes, *, sync: bool = True) -> None:
        temporary = path.with_name(path.name + ".tmp")
        try:
            file = DiskFile(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            file.write(data, 0)
            if sync:
                file.sync()
            temporary.replace(path)
        except OSError:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        if sync:
            self.sync_directory(path.parent)

    def names(self, directory: Path) -> list[str]:
        return sorted(os.listdir(directory))  # noqa: PTH208 - names are what is asked for

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000,) * 2)

    def file_size(self, path: Path) -> int:
        return path.stat().st_size

    def allocated_bytes(self, path: Path) -> int:
        status = path.stat()
        return min(status.st_size, _allocated(status))

    def space(self, directory: Path) -> DiskSpace:
        found = shutil.disk_usage(directory)
        return DiskSpace(found.total, found.free)

    def make_directory(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def rename(self, old: Path, new: Path) -> None:
        old.rename(new)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path)

    def sync_directory(self, path: Path) -> None:
        _shared_syncs.sync(path)

    def lock(self, path: Path) -> DirectoryLock:
        return DiskLock(path)
