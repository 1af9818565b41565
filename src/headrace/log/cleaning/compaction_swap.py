"""The compaction swap: replaces segments by the cleaned segment made from them.

    before    0.log            4711.log          0.log.cleaned, complete and synced
    1.        0.log            4711.log          0.log.swap          the log file first, then its indexes
    2.        0.log.deleted    4711.log.deleted  0.log.swap          readers continue with the files that they hold
    3.                                           0.log

After a crash before the end of 1., the next start undoes the swap; after it, the next start finishes it: see
`recovery.leftovers`. Source: Kafka's LocalLog.replaceSegments.
"""

from headrace.log.cleaning.compaction import SEGMENT_FILES
from headrace.log.filenames import CLEANED, SNAPSHOT, SWAP, offset_file
from headrace.log.partition_log import PartitionLog
from headrace.log.segment.segment import Segment, mark_deleted


def replace_segments(log: PartitionLog, old: list[Segment], size_bytes: int, now_ms: int) -> None:
    """Replace the `old` segments by the cleaned segment with the base offset of the first one. Raises OSError.

    `size_bytes` is the cleaned segment's size. The caller syncs the directory before it relies on the removal.
    """
    first = old[0]
    names = [offset_file(first.base_offset, suffix) for suffix in SEGMENT_FILES]
    made = [name for name in names if log.files.exists(log.directory / (name + CLEANED))]
    removed: list[str] = []
    try:
        _rename_or_undo(log, made)
        for segment in old:
            removed += segment.mark_deleted()
        for segment in old[1:]:
            removed += filter(None, [mark_deleted(log.files, segment.text(SNAPSHOT))])
        for name in made:
            log.files.rename(log.directory / (name + SWAP), log.directory / name)
    except _Undone as undone:
        raise undone.error from undone
    except OSError as error:  # the swap is half done, and only the next start can finish it
        log.fail(f"{log.partition}: cleaned segments could not be put in place: {error}")
        raise
    cleaned = Segment(
        log.files, log.directory, first.base_offset, log.config, size=size_bytes, now_ms=old[-1].created_ms
    )
    log.replace(old, cleaned)
    log.remove_later(removed, now_ms)


class _Undone(Exception):
    """The swap failed in step 1, and was undone."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def _rename_or_undo(log: PartitionLog, names: list[str]) -> None:
    """Do step 1. When the disk refuses it, remove the cleaned files and raise _Undone."""
    try:
        for name in names:
            log.files.rename(log.directory / (name + CLEANED), log.directory / (name + SWAP))
    except OSError as error:
        for name in names:
            log.files.remove(log.directory / (name + SWAP))
            log.files.remove(log.directory / (name + CLEANED))
        raise _Undone(error) from error
