"""The disk of a simulated host, and the view that one process has of it.

What it holds, and forgets, is `tests.log.support.SimulatedDisk`. Here is what more than one process needs:

    process crash    every byte that was written stays: it is in the host's page cache
    power loss       only what was synced is sure to stay; of the rest some writes do, some are torn, some become zeros
    lock             is the process's, and goes with it
    a dead process   writes nothing any more, whatever of it is still lying about
"""

from collections.abc import Sequence
from errno import EIO, ENOSPC
from pathlib import Path
from random import Random

from headrace.log.files import Bytes, DiskSpace, LogFile, PathText, remove_each
from tests.log.support import SimulatedDisk, SimulatedFile
from tests.simulation.scheduler import Process


class HostDisk:
    """One host's disk, over all lives of its processes."""

    def __init__(self) -> None:
        self.content = SimulatedDisk()
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

    def truncate(self, size: int) -> None:
        self._files.check()
        super().truncate(size)

    def sync(self) -> None:
        self._files.check()
        super().sync()


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
        return _File(self._content.open(path, create=create), self)

    def open_new(self, path: PathText) -> LogFile:
        self.check(is_growing=True)
        return _File(self._content.open_new(path), self)

    def make_hole(self, path: PathText, size: int) -> None:
        self.check(is_growing=Path(path) not in self._content.names_now)
        self._content.make_hole(path, size)

    def open_readonly(self, path: PathText) -> LogFile:
        return _File(self._content.open(path), self)

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
