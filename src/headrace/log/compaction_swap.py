"""A cleaned segment takes the place of those it was made from.

    before    0.log            4711.log          0.log.cleaned, complete and synced
    1.        0.log            4711.log          0.log.swap          the log file first, then its indexes
    2.        0.log.deleted    4711.log.deleted  0.log.swap          readers go on with the files that they hold
    3.                                           0.log

A crash before 1. is over undoes it, one after it finishes it: see `leftovers`. Source: Kafka's
LocalLog.replaceSegments.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.log.compaction import SEGMENT_FILES
from headrace.log.names import CLEANED, DELETED, SNAPSHOT, SWAP, offset_file
from headrace.log.segment import Segment

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog


def replace_segments(log: PartitionLog, old: list[Segment], size_bytes: int, now_ms: int) -> None:
    """Put the cleaned segment named by the first of `old` in their place. Raises OSError.

    The directory is the caller's to sync, before anybody counts on the records that are gone.
    """
    first = old[0]
    names = [offset_file(first.base_offset, suffix) for suffix in SEGMENT_FILES]
    made = [name for name in names if log.files.exists(log.directory / (name + CLEANED))]
    removed: list[Path] = []
    try:
        _rename_or_undo(log, made)
        for segment in old:
            removed += segment.mark_deleted()
        for segment in old[1:]:
            removed += _mark_snapshot_deleted(log, segment)
        for name in made:
            log.files.rename(log.directory / (name + SWAP), log.directory / name)
    except _Undone as undone:
        raise undone.error from undone
    except OSError as error:  # the files are in between, and only the next start can tell what is what
        log.failure = f"{log.partition}: cleaned segments could not be put in place: {error}"
        raise
    cleaned = Segment(
        log.files, log.directory, first.base_offset, log.config, size=size_bytes, now_ms=old[-1].created_ms
    )
    going = set(map(id, old))
    log.set_segments(
        [
            cleaned if segment is first else segment
            for segment in log.segments
            if segment is first or id(segment) not in going
        ]
    )
    log.remove_later(removed, now_ms)


class _Undone(Exception):
    """A swap that failed at its beginning and left nothing behind."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def _rename_or_undo(log: PartitionLog, names: list[str]) -> None:
    """Step 1, or, when the disk refuses it, everything as before without the cleaned files."""
    try:
        for name in names:
            log.files.rename(log.directory / (name + CLEANED), log.directory / (name + SWAP))
    except OSError as error:
        for name in names:
            log.files.remove(log.directory / (name + SWAP))
            log.files.remove(log.directory / (name + CLEANED))
        raise _Undone(error) from error


def _mark_snapshot_deleted(log: PartitionLog, segment: Segment) -> list[Path]:
    """The producers at the beginning of a segment that is no more."""
    snapshot = segment.path(SNAPSHOT)
    if not log.files.exists(snapshot):
        return []
    renamed = snapshot.with_name(snapshot.name + DELETED)
    log.files.rename(snapshot, renamed)
    return [renamed]
