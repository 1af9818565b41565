"""A disk that refuses what is written to a log, as one that is full."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headrace.log.partition_log import PartitionLog


class RefusingFile:
    """An open file of which every write fails."""

    def __init__(self, file: Any, code: int) -> None:
        self._file, self._code = file, code
        self.writes = 0

    def write(self, data: bytes, position: int) -> None:
        self.writes += 1
        raise OSError(self._code, os.strerror(self._code))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextmanager
def refusing(log: PartitionLog, code: int = errno.ENOSPC) -> Iterator[RefusingFile]:
    """Meanwhile the disk refuses what is written to the log's active segment."""
    records, watched = log.active.records, log.active.file
    plain_fd, file = records.plain_fd, watched._file  # type: ignore[attr-defined]
    refuses = RefusingFile(file, code)
    watched._file = refuses  # type: ignore[attr-defined]
    records.plain_fd = os.open("/dev/full", os.O_WRONLY)
    try:
        yield refuses
    finally:
        os.close(records.plain_fd)
        records.plain_fd = plain_fd
        watched._file = file  # type: ignore[attr-defined]
