"""The disk of a simulated host, and the view that one process has of it.

What it holds, and forgets, is `tests.log.support.SimulatedDisk`. Here is what more than one process needs:

    process crash    every byte that was written stays: it is in the host's page cache
    power loss       only what was synced is sure to stay; of the rest some writes do, some are torn, some become zeros
    lock             is the process's, and goes with it
    a dead process   writes nothing any more, whatever of it is still lying about

A disk may be plain: then an open log has a descriptor of the system, of memory without a name. The compiled ways of
produces, fetches and followers read and write such a descriptor, past everything here. So a plain disk knows no single
writes. With the power it loses all that was not synced, or nothing, or what is behind some byte. It has room for ever,
and does not refuse a dead process: nothing of one runs, whose broker is in the scheduler's hands.
"""

import os
import weakref
from collections.abc import Sequence
from errno import EIO, ENOSPC
from pathlib import Path
from random import Random

from headrace.log.files import Bytes, DiskSpace, LogFile, PathText, remove_each
from tests.log.support import Inode, SimulatedDisk, SimulatedFile, apply_write
from tests.simulation.scheduler import Process


class _Memory:
    """The content of a log that is open, under a descriptor. Those who have it open hold it; its last holder's end puts
    the content back."""

    def __init__(self, inode: "_PlainInode", content: bytearray) -> None:
        self._inode = inode
        self.fd = os.memfd_create("log")
        self.write(content, 0)

    def write(self, data: Bytes | None, position: int) -> None:
        if data is None:
            os.ftruncate(self.fd, position)
        elif data:
            assert os.pwrite(self.fd, data, position) == len(data)

    def read(self, size: int, position: int) -> bytes:
        return os.pread(self.fd, size, position)

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def __del__(self) -> None:
        self._inode.content = bytearray(self.read(self.size(), 0))
        os.close(self.fd)


class _PlainInode(Inode):
    """A log on a plain disk."""

    _memory: "weakref.ref[_Memory] | None" = None
    _kept: bytearray

    @property
    def content(self) -> bytearray:
        """What it holds; a copy while it is open."""
        memory = None if self._memory is None else self._memory()
        return self._kept if memory is None else bytearray(memory.read(memory.size(), 0))

    @content.setter
    def content(self, content: bytearray) -> None:
        self._kept = content

    def open(self) -> _Memory:
        memory = None if self._memory is None else self._memory()
        if memory is None:
            memory = _Memory(self, self._kept)
            self._memory = weakref.ref(memory)
        return memory

    def write(self, data: bytes | None, position: int) -> None:
        memory = None if self._memory is None else self._memory()
        if memory is None:
            apply_write(self._kept, position, data)
        else:
            memory.write(data, position)

    def after_crash(self, chance: Random) -> "_PlainInode":
        """All, or what was synced, or the beginning of what was written since, with or without zeros at its end."""
        content, durable = bytes(self.content), self.durable
        what = chance.random()
        if what < 0.3 or content == durable:
            content = durable
        elif what < 0.7:
            same = next((at for at, (one, other) in enumerate(zip(content, durable, strict=False)) if one != other), -1)
            same = same if same >= 0 else min(len(content), len(durable))
            end = chance.randint(same, len(content))
            zeros = chance.randint(same, end) if what < 0.4 else end
            content = content[:zeros] + bytes(end - zeros) + durable[end:]
        return _PlainInode(bytearray(content), content)


class _PlainContent(SimulatedDisk):
    """What a plain disk holds."""

    def make_inode(self, path: Path) -> Inode:
        return _PlainInode() if path.suffix == ".log" else Inode()


class HostDisk:
    """One host's disk, over all lives of its processes."""

    def __init__(self, *, is_plain: bool = False) -> None:
        self.is_plain = is_plain = is_plain and hasattr(os, "memfd_create")  # which only Linux has
        self.content = _PlainContent() if is_plain else SimulatedDisk()
        self.locks: dict[Path, Process] = {}
        self.is_full = False

    def lose_power(self, chance: Random) -> None:
        """Forgets what was not synced."""
        self.content = self.content.after_crash(chance)


class _File(SimulatedFile):
    """An open file of a process."""

    def __init__(self, opened: SimulatedFile, files: "SimFiles") -> None:
        super().__init__(opened.inode)
        self._files = files

    def write(self, data: Bytes, position: int) -> None:
        self._files.check(is_growing=True)
        super().write(data, position)

    def make_room(self, position: int, size: int) -> int:
        try:
            self._files.check(is_growing=True)
        except OSError:
            return 0
        return super().make_room(position, size)

    def truncate(self, size: int) -> None:
        self._files.check()
        super().truncate(size)

    def sync(self) -> None:
        self._files.check()
        super().sync()


class _PlainFile(_File):
    """The same of a plain disk."""

    def __init__(self, opened: SimulatedFile, inode: _PlainInode, files: "SimFiles") -> None:
        super().__init__(opened, files)
        self._memory = inode.open()
        self.fd = self.plain_fd = self._memory.fd

    def read(self, size: int, position: int) -> bytes:
        return self._memory.read(size, position)

    def size(self) -> int:
        return self._memory.size()


class SimFiles:
    """`headrace.log.files.Files` for one process."""

    def __init__(self, disk: HostDisk, process: Process) -> None:
        self._disk, self._process = disk, process
        self._content = disk.content

    def check(self, *, is_growing: bool = False) -> None:
        """Refuses the dead, and the writes that a full disk has no room for."""
        if not self._process.is_alive:
            raise OSError(EIO, "this process is dead")
        if is_growing and self._disk.is_full:
            raise OSError(ENOSPC, "No space left on device")

    def open(self, path: PathText, *, create: bool = False) -> LogFile:
        self.check(is_growing=create and Path(path) not in self._content.names_now)
        return self._opened(self._content.open(path, create=create))

    def open_new(self, path: PathText) -> LogFile:
        self.check(is_growing=True)
        return self._opened(self._content.open_new(path))

    def make_hole(self, path: PathText, size: int) -> None:
        self.check(is_growing=Path(path) not in self._content.names_now)
        self._content.make_hole(path, size)

    def open_readonly(self, path: PathText) -> LogFile:
        return self._opened(self._content.open(path))

    def _opened(self, file: SimulatedFile) -> LogFile:
        inode = file.inode
        return _PlainFile(file, inode, self) if isinstance(inode, _PlainInode) else _File(file, self)

    def read(self, path: PathText) -> bytes:
        return self._content.read(path)

    def replace(self, path: PathText, data: Bytes, *, sync: bool = True) -> None:
        self.check(is_growing=True)
        self._content.replace(path, data, sync=sync)

    def names(self, directory: PathText) -> list[str]:
        """Files and directories; the simulated disk knows files alone."""
        above = Path(directory).parts
        depth = len(above)
        parts = (path.parts for path in self._content.names_now)
        return sorted({each[depth] for each in parts if each[:depth] == above and len(each) > depth})

    def exists(self, path: PathText) -> bool:
        return self._content.exists(path)

    def is_directory(self, path: PathText) -> bool:
        return self._content.is_directory(path)

    def file_size(self, path: PathText) -> int:
        return self._content.file_size(path)

    def allocated_bytes(self, path: PathText) -> int:
        return self._content.allocated_bytes(path)

    def modified_ms(self, path: PathText) -> int:
        return self._content.modified_ms(path)

    def set_modified_ms(self, path: PathText, modified_ms: int) -> None:
        self._content.set_modified_ms(path, modified_ms)

    def space(self, directory: PathText) -> DiskSpace:
        return DiskSpace(1 << 40, 0 if self._disk.is_full else 1 << 39)

    def has_large_folios(self, directory: PathText) -> bool:
        return self._content.has_large_folios(directory)

    def make_directory(self, path: PathText) -> None:
        self.check()

    def rename(self, old: PathText, new: PathText) -> None:
        self.check()
        old, new = Path(old), Path(new)
        if not self._content.exists(old):
            raise FileNotFoundError(old)
        for known in [known for known in self._content.names_now if old in known.parents]:
            self._content.rename(known, new / known.relative_to(old))
        if old in self._content.names_now:
            self._content.rename(old, new)

    def remove(self, path: PathText) -> None:
        self.check()
        self._content.remove(path)

    def remove_all(self, paths: Sequence[PathText]) -> dict[str, OSError]:
        return remove_each(self, paths)

    def remove_tree(self, path: PathText) -> None:
        self.check()
        self._content.remove_tree(path)

    def sync_directory(self, path: PathText) -> None:
        self.check()
        self._content.sync_directory(path)

    def lock(self, path: PathText) -> "SimLock":
        path = Path(path)
        holder = self._disk.locks.get(path)
        if holder is not None and holder.is_alive and holder is not self._process:
            raise BlockingIOError(f"{path} is locked by {holder.name}")
        self._disk.locks[path] = self._process
        return SimLock(self._disk, path, self._process)


class SimLock:
    """A held lock."""

    def __init__(self, disk: HostDisk, path: Path, process: Process) -> None:
        self._disk, self._path, self._process = disk, path, process

    def release(self) -> None:
        if self._disk.locks.get(self._path) is self._process:
            del self._disk.locks[self._path]
