# cython: language_level=3, annotation_typing=False, binding=False
"""System calls on the real disk that belong together, each run of them as one call of C.

Between two calls of Python's `os`, a thread takes the interpreter's lock and gives it back. Where the event loop is
busy, this takes longer than the call. Compiled, a run of calls gives the lock back once; it also runs uncompiled.
Errors are returned as `errno`, because only the caller knows the files' names and who is told of errors. Only `files`
uses this.
"""

from __future__ import annotations

import os
from array import array
from typing import Any

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if cython.compiled:
    from cython.cimports.headrace.log.system_calls import (
        run_make_hole,
        run_remove_files,
        run_sync_directory,
        run_sync_files,
    )

NO_FAILURE = (-1, 0)


def sync_files(fds: array[int]) -> tuple[int, int]:
    """Sync the content of open files, up to the first one that cannot be synced: its place and its errno, or
    `NO_FAILURE`. Any thread."""
    if cython.compiled:
        of_fds: Any = fds
        count, code = len(fds), 0
        with cython.nogil:
            failed = run_sync_files(of_fds.data.as_ints, count, cython.address(code))
        return NO_FAILURE if failed < 0 else (failed, code)
    for place, fd in enumerate(fds):
        try:
            os.fdatasync(fd)
        except OSError as error:
            return place, error.errno or 0
    return NO_FAILURE


def sync_directory(path: bytes) -> int:
    """Sync the names in a directory. Returns 0, the errno if it could not be opened, or minus the errno if the sync
    failed. Any thread."""
    if cython.compiled:
        data = path
        with cython.nogil:
            failed: int = run_sync_directory(data)
        return failed
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        return error.errno or 0
    try:
        os.fdatasync(fd)
    except OSError as error:
        return -(error.errno or 0)
    finally:
        os.close(fd)
    return 0


def remove_files(paths: bytes, count: int) -> array[int]:
    """Remove files, `count` paths with a zero behind each. Returns the errno of each, or 0; a file that is not there is
    no error. Any thread."""
    codes: Any = array("i", bytes(4 * count))
    if cython.compiled:
        data = paths
        with cython.nogil:
            run_remove_files(data, codes.data.as_ints, count)
        return codes  # type: ignore[no-any-return]
    for place, path in enumerate(paths.split(b"\0")[:count]):
        try:
            os.unlink(path)  # noqa: PTH108 - bytes
        except FileNotFoundError:
            pass
        except OSError as error:
            codes[place] = error.errno or 0
    return codes  # type: ignore[no-any-return]


_DEVICES_MAX = 16
_with_holes = array("Q")
_without_holes: set[int] = set()
"""Devices whose file systems have no holes (FAT): they write zeros to extend a file. Each shows with its first file."""


def extend(fd: int, size: int) -> None:
    """Extend an open file to `size` bytes with a hole. Does nothing when the disk has no holes or no space."""
    global _with_holes
    before = os.fstat(fd)
    device = before.st_dev
    if size <= before.st_size or device in _without_holes:
        return
    try:
        os.ftruncate(fd, size)
    except OSError:
        return
    if allocated_bytes(os.fstat(fd)) - allocated_bytes(before) >= size - before.st_size:
        _without_holes.add(device)
        os.ftruncate(fd, before.st_size)
    elif device not in _with_holes and len(_with_holes) < _DEVICES_MAX:
        _with_holes = _with_holes + array("Q", [device])  # another array: a thread may look at this one


def allocated_bytes(status: os.stat_result) -> int:
    """The space that a file takes, whatever the file system's own blocks are."""
    return status.st_blocks * 512


def make_hole(path: bytes, size: int) -> int:
    """Create a file, or empty the one of that name, and `extend` it. Returns the errno, or 0."""
    if cython.compiled:
        data, count, code = path, len(_with_holes), 0
        known: Any = _with_holes
        with cython.nogil:
            fd = run_make_hole(data, size, known.data.as_ulonglongs, count, cython.address(code))
        if fd < 0:
            failed: int = code
            return failed
    else:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        except OSError as error:
            return error.errno or 0
    try:
        extend(fd, size)
    finally:
        os.close(fd)
    return 0
