"""Leftovers: removes or completes files that an interrupted deletion or compaction left in a partition's directory.

    *.deleted     a file that was being deleted: removed
    *.cleaned     an incomplete compacted segment: removed
    *.swap        a complete compacted segment: replaces the segments that it was made from
    *.index, *.timeindex, *.txnindex without a segment: removed

Compaction renames `.cleaned` to `.swap` only once everything is on the disk, and `.swap` to `.log` only once the old
segments are renamed. So each state determines the action. Source: Kafka's LogLoader.
"""

from pathlib import Path

from headrace.log.filenames import CLEANED, DELETED, INDEX, LOG, SWAP, TIME_INDEX, TXN_INDEX, is_segment_file, offset_of
from headrace.log.files import Files
from headrace.log.segment.batch_scan import read_headers

_INDEXES = (INDEX, TIME_INDEX, TXN_INDEX)


def clear_leftovers(files: Files, directory: Path) -> list[str]:
    """Finish or undo interrupted operations. Returns the names in the directory afterwards, sorted. Raises OSError."""
    names = files.names(directory)
    if any(name.endswith((DELETED, CLEANED, SWAP)) for name in names):
        _clear_interrupted(files, directory, names)
        names = files.names(directory)
    segments = {name.removesuffix(LOG) for name in names if is_segment_file(name, LOG)}
    indexes = [name for name in names if name.endswith(_INDEXES) and name.partition(".")[0].isdigit()]
    orphans = [name for name in indexes if name.partition(".")[0] not in segments]
    for name in orphans:
        files.remove(directory / name)
    return [name for name in names if name not in orphans] if orphans else names


def _clear_interrupted(files: Files, directory: Path, names: list[str]) -> None:
    first_cleaned = min((offset_of(name) for name in names if name.endswith(CLEANED)), default=None)
    for name in names:
        torn_swap = first_cleaned is not None and name.endswith(SWAP) and offset_of(name) >= first_cleaned
        if torn_swap or name.endswith((DELETED, CLEANED)):
            files.remove(directory / name)
    if any(name.endswith(SWAP) for name in names):
        _finish_swap(files, directory)


def _finish_swap(files: Files, directory: Path) -> None:
    names = files.names(directory)
    swapped = [name for name in names if name.endswith(LOG + SWAP)]
    if swapped:
        first = min(map(offset_of, swapped))
        # An emptied segment ends at its base offset. Its old files are removed too, hence the `first + 1`.
        end = max(first + 1, *(_next_offset(files, directory / name) for name in swapped))
        for name in names:
            is_old = any(is_segment_file(name, suffix) for suffix in (LOG, *_INDEXES))
            if is_old and first <= offset_of(name) < end:
                files.remove(directory / name)
    for name in names:
        if name.endswith(SWAP):
            files.rename(directory / name, directory / name.removesuffix(SWAP))


def _next_offset(files: Files, path: Path) -> int:
    """The offset after the last batch of a segment file."""
    next_offset = offset_of(path.name)
    for _, header in read_headers(files.open_readonly(path), 0, files.file_size(path)):
        next_offset = header.next_offset
    return next_offset
