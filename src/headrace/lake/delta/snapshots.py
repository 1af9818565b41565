"""The newest snapshot of a table for readers, opened again only if the table has changed.

To open a table and to find its progress takes some milliseconds, which is a good part of a query of few rows. A
snapshot does not change, so it is kept, and is still the newest one if

    _delta_log/00000000000000000007.json     is the file that it was: no other table has taken its place
    _delta_log/00000000000000000008.json     is not there: nobody has committed since

A commit is the next number, so a look at these two names is enough; the times of folders are not relied on. Left out:
object stores, where the two looks would take as long as the library's own.
"""

import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Final, NamedTuple

from headrace.lake.delta.delta_table import LoadTable
from headrace.lake.delta.location import Location

KEPT_TABLES: Final = 8
RECENT_NS: Final = 1_000_000_000
"""A commit that is newer than so is not kept: another table may take its place within one tick of the file's clock."""


class _Stamp(NamedTuple):
    """The file of a commit. That of another table at the same place differs."""

    device: int
    inode: int
    size: int
    changed_ns: int


class _Kept(NamedTuple):
    snapshot: LoadTable
    stamp: _Stamp


_kept: OrderedDict[str, _Kept] = OrderedDict()
_lock = threading.Lock()


def newest_snapshot(location: Location) -> LoadTable | None:
    """The newest snapshot, which is only to be read; None if there is no table.

    Raises UnsupportedTableError and TableUnreachableError.
    """
    if location.directory is None:
        return LoadTable.open(location)
    key = location.uri
    with _lock:
        kept = _kept.get(key)
    if kept is not None and _is_newest(location.directory, kept):
        with _lock:
            if key in _kept:
                _kept.move_to_end(key)
        return kept.snapshot
    began_ns = time.time_ns()
    snapshot = LoadTable.open(location)
    stamp = None if snapshot is None else _stamp(_commit(location.directory, snapshot.version))
    with _lock:
        _kept.pop(key, None)
        if snapshot is not None and stamp is not None and stamp.changed_ns < began_ns - RECENT_NS:
            _kept[key] = _Kept(snapshot, stamp)
        while len(_kept) > KEPT_TABLES:
            _kept.popitem(last=False)
    return snapshot


def _is_newest(directory: Path, kept: _Kept) -> bool:
    version = kept.snapshot.version
    return _stamp(_commit(directory, version)) == kept.stamp and not _commit(directory, version + 1).exists()


def _commit(directory: Path, version: int) -> Path:
    return directory / "_delta_log" / f"{version:020}.json"


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return _Stamp(found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)
