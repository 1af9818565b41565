"""A disk that keeps what it was told to keep, and nothing else: POSIX to the letter.

`support.SimulatedDisk` orders names as a journal does, and a sync of any directory brings all of them to the disk.
Here a name, a directory's too, is only safe once the directory that it is in was synced; and a power failure takes
everything that is not safe. Before the n-th write, sync or change of a name the power can be made to fail.
"""

import os
from pathlib import Path

from headrace.log.files import Bytes, PathText
from tests.log.support import Inode, SimulatedDisk, SimulatedFile

ROOT = Path("/")


class PowerFailure(BaseException):
    """Nothing that runs may catch it."""


class StrictFile(SimulatedFile):
    """An open file of that disk."""

    def __init__(self, disk: "StrictDisk", inode: Inode) -> None:
        super().__init__(inode)
        self.disk = disk

    def write(self, data: Bytes, position: int) -> None:
        self.disk.step()
        super().write(data, position)

    def truncate(self, size: int) -> None:
        self.disk.step()
        super().truncate(size)

    def sync(self) -> None:
        self.disk.step()
        super().sync()


class StrictDisk(SimulatedDisk):
    """See above. The root is always there."""

    def __init__(self) -> None:
        super().__init__()
        self.directories = {ROOT}
        self.directories_durable = {ROOT}
        self.steps_left = -1
        """How many steps until the power fails; negative for never."""

    def step(self) -> None:
        if self.steps_left == 0:
            raise PowerFailure
        self.steps_left -= 1

    def after_power_failure(self) -> "StrictDisk":
        """What was synced, under names that were."""
        disk = StrictDisk()
        for each in sorted(self.directories_durable):
            if each.parent in disk.directories:
                disk.directories.add(each)
        for path, inode in self.names_durable.items():
            if path.parent in disk.directories:
                disk.names_now[path] = Inode(bytearray(inode.durable), inode.durable)
        disk.names_durable = dict(disk.names_now)
        disk.directories_durable = set(disk.directories)
        return disk

    def open(self, path: PathText, *, create: bool = False) -> StrictFile:
        if Path(path).parent not in self.directories:
            raise FileNotFoundError(path)
        return StrictFile(self, super().open(path, create=create).inode)

    def make_directory(self, path: PathText) -> None:
        self.step()
        self.directories |= {Path(path), *Path(path).parents}

    def exists(self, path: PathText) -> bool:
        return Path(path) in self.names_now or Path(path) in self.directories

    def is_directory(self, path: PathText) -> bool:
        return Path(path) in self.directories

    def names(self, directory: PathText) -> list[str]:
        inside = [*self.names_now, *(self.directories - {ROOT})]
        return sorted(path.name for path in inside if _is_in(path, Path(directory)))

    def _change(self, what: str, path: Path, other: Path | Inode | None = None) -> None:
        self.step()
        super()._change(what, path, other)
        self.journal.clear()

    def sync_directory(self, path: PathText) -> None:
        path = Path(path)
        self.step()
        if path not in self.directories:
            raise FileNotFoundError(path)
        elsewhere = {name: inode for name, inode in self.names_durable.items() if not _is_in(name, path)}
        self.names_durable = elsewhere | {name: inode for name, inode in self.names_now.items() if _is_in(name, path)}
        kept = {each for each in self.directories_durable if not _is_in(each, path)}
        self.directories_durable = kept | {each for each in self.directories if _is_in(each, path)}


def _is_in(path: Path, directory: Path) -> bool:
    """Whether `directory` holds that name: `path.parent == directory`, without making a path of it each time."""
    return path != ROOT and os.path.dirname(path) == str(directory)
