"""How much disk a partition takes, and for what. Files of an active segment are longer than what is in them: what
they have of holes takes nothing."""

from pathlib import Path
from typing import NamedTuple

from headrace.log.files import Files
from headrace.log.names import INDEX, LOG, TIME_INDEX, TXN_INDEX, is_segment_file


class Usage(NamedTuple):
    """One partition's files, or several partitions' together. `other_bytes` are those of snapshots, checkpoints, and
    files that are about to be removed."""

    name: str
    directory: Path
    log_bytes: int
    index_bytes: int
    other_bytes: int
    segments: int

    @property
    def total_bytes(self) -> int:
        """Everything."""
        return self.log_bytes + self.index_bytes + self.other_bytes


def usage_of(files: Files, directory: Path) -> Usage:
    """What the files of a partition's directory take. A file that goes meanwhile takes nothing."""
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
    return Usage(directory.name, directory, log, indexes, other, segments)
