"""Disk usage of partitions, by kind of file. Counts allocated blocks: files of an active segment have holes."""

from pathlib import Path
from typing import NamedTuple

from headrace.log.filenames import INDEX, LOG, TIME_INDEX, TXN_INDEX, is_segment_file
from headrace.log.files import Files


class DiskUsage(NamedTuple):
    """The disk usage of one or more partitions. `other_bytes` are those of snapshots, checkpoints, and files that are
    being deleted."""

    name: str
    directory: Path
    log_bytes: int
    index_bytes: int
    other_bytes: int
    segments: int

    @property
    def total_bytes(self) -> int:
        """The total in bytes."""
        return self.log_bytes + self.index_bytes + self.other_bytes


def usage_of(files: Files, directory: Path) -> DiskUsage:
    """The disk usage of a partition's directory. A file that is deleted meanwhile counts as 0. Raises OSError."""
    log = indexes = other = segments = 0
    for name in files.names(directory):
        try:
            size = files.allocated_bytes(directory / name)
        except FileNotFoundError:
            continue
        if is_segment_file(name, LOG):
            log += size
            segments += 1
        elif any(is_segment_file(name, suffix) for suffix in (INDEX, TIME_INDEX, TXN_INDEX)):
            indexes += size
        else:
            other += size
    return DiskUsage(directory.name, directory, log, indexes, other, segments)
