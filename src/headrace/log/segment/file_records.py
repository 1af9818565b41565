"""The log file of a segment: batches, one behind the other.

    …000.log    batch | batch | batch | … | with `preallocate`, while the segment is active: zeros up to `segment.bytes`

`size` counts whole batches. A failed write leaves bytes behind them, which the next append overwrites. The file is
opened at the first use, so a closed segment has only its name and its size in memory. Source: Kafka's FileRecords.
"""

from collections.abc import Iterator
from contextlib import suppress

from headrace.log.append_state import FileEnd
from headrace.log.filenames import LOG
from headrace.log.files import AtPath, Bytes, Files, LogFile, PathText, folder_and_name, plain_fd_of
from headrace.log.segment.batch_scan import read_headers
from headrace.records.format2.header import BatchHeader


class FileRecords(FileEnd, AtPath):
    """The batches in one file."""

    __slots__ = ("_files", "_folder", "_name")

    _file: LogFile | None

    def __init__(self, files: Files, path: PathText, size: int) -> None:
        self._files = files
        self._folder, self._name = folder_and_name(path)
        self.size = size
        self._file = None
        self.plain_fd = -1

    @classmethod
    def create(cls, files: Files, path: PathText, *, preallocated_bytes: int) -> "FileRecords":
        """Create an empty file, or empty the one of that name. Raises OSError."""
        records = cls(files, path, 0)
        file = records._use(files.open(path, create=True))
        file.truncate(0)
        if preallocated_bytes:
            file.extend(preallocated_bytes)
        return records

    @property
    def file(self) -> LogFile:
        """The open file."""
        return self._file or self._use(self._files.open(self.text))

    def beside(self, suffix: str) -> str:
        """The path of another file of the segment."""
        return f"{self._folder}/{self._name.replace(LOG, suffix, 1)}"

    def _use(self, file: LogFile) -> LogFile:
        self._file, self.plain_fd = file, plain_fd_of(file)
        return file

    @property
    def modified_ms(self) -> int:
        """The file's modification time, in ms since the epoch. Raises OSError."""
        return self._files.modified_ms(self.text)

    def append(self, batches: Bytes) -> int:
        """Write at the end, and return the position in bytes. Raises OSError, and then changes nothing."""
        position = self.size
        try:
            (self._file or self.file).write(batches, position)
        except OSError:
            with suppress(OSError):  # recovery must not take the inside of a batch for a batch; else `trim` cuts it
                self.file.truncate(position)
            raise
        self.size = position + len(batches)
        return position

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from `position` on, where a batch begins. Raises CorruptMessage."""
        return read_headers(self.file, position, self.size)

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        """The bytes of the batch at `position`. Raises OSError."""
        return self.file.read(header.size_bytes, position)

    def trim(self) -> bool:
        """Cut the file behind the last batch. Returns whether there was something to cut. Raises OSError."""
        is_longer = self.file.size() != self.size
        if is_longer:
            self.file.truncate(self.size)
        return is_longer

    def release(self) -> None:
        """Release the file. It closes when no reader holds it."""
        self._file, self.plain_fd = None, -1
