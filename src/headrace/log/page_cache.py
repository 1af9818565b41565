"""How Linux keeps the files of a directory in memory.

    mount point  ->  type of the file system, Linux version  ->  whether its files are in large folios

A folio is what the page cache keeps as one: 4 KiB, or with large folios up to several megabytes. No system call tells
which ones a file system uses. The table has what was measured: ext4, from Linux 6.16 on.
"""

import os
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

LARGE_FOLIOS_SINCE = {"ext4": (6, 16)}
"""The first version of Linux, by the type of the file system."""
_WITHOUT = "data=journal"
"""The option of ext4 that keeps its files in small folios."""


@lru_cache(maxsize=64)
def has_large_folios(directory: str) -> bool:
    """Whether files below a directory are kept in large folios. False where it is not known."""
    try:
        device = os.stat(directory).st_dev  # noqa: PTH116 - a text
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return False
    return keeps_large_folios(mounts, f"{os.major(device)}:{os.minor(device)}", os.uname().release)


def keeps_large_folios(mounts: Iterable[str], device: str, release: str) -> bool:
    """The same for a device, MAJOR:MINOR, from the lines of /proc/self/mountinfo and the release of Linux."""
    version = re.match(r"(\d+)\.(\d+)", release)
    for line in mounts:
        mount, _, options = line.partition(" - ")
        fields, about = mount.split(), options.split()
        if version and len(fields) > 2 and fields[2] == device and len(about) > 2:
            since = LARGE_FOLIOS_SINCE.get(about[0])
            found = int(version[1]), int(version[2])
            return since is not None and found >= since and _WITHOUT not in about[2].split(",")
    return False
