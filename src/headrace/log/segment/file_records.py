"""The log file of a segment: batches, one behind the other.

    …000.log    batch | batch | batch | … | while the segment is active: zeros, see `preallocation`

`size` counts whole batches. A failed write leaves bytes behind them, which the next append overwrites. The file is
opened at the first use, so a closed segment has only its name and its size in memory. Source: Kafka's FileRecords.
"""

from collections.abc import Iterator
from contextlib import suppress

from headrace.config import TopicConfig
from headrace.limits import INT64_MAX, ROOM_BYTES
from headrace.log.append_state import FileEnd, zeros_behind
from headrace.log.filenames import LOG
from headrace.log.files import AtPath, Bytes, Files, LogFile, PathText, folder_and_name, plain_fd_of
from headrace.log.segment import preallocation
from headrace.log.segment.batch_scan import read_headers
from headrace.records.format2.header import BatchHeader


class FileRecords(FileEnd, AtPath):
    """The batches in one file."""

    __slots__ = ("_files", "_folder", "_name", "_rule")

    _file: LogFile | None
    _rule: str
    """The topic's rule for room."""

    def __init__(self, files: Files, path: PathText, size: int) -> None:
        self._files = files
        self._folder, self._name = folder_and_name(path)
        self.size = size
        self._file = None
        self.plain_fd = -1
        self._rule, self.has_room = preallocation.NEVER, False
        self.forget_room()

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
        end = position + len(batches)
        try:
            (self._file or self.file).write(batches, position)
        except OSError:
            with suppress(OSError):  # recovery must not take the inside of a batch for a batch; else `trim` cuts it
                self.file.truncate(position)
                self.forget_room()
            raise
        self.size = end
        if end > self.room_end and len(batches) < ROOM_BYTES and (zeros := zeros_behind(self, end)):
            self.note_room(end, zeros, self.file.make_room(end, zeros))
        return position

    def configure(self, config: TopicConfig) -> None:
        """Apply new settings of the topic."""
        self._rule, self.has_room = preallocation.rule_of(config), False
        self.forget_room()

    def finds_room(self) -> bool:
        self.has_room = preallocation.makes_room(self._rule, self._files, self._folder)
        if not self.has_room:
            self.room_end = INT64_MAX
        return self.has_room

    def note_room(self, end: int, zeros: int, made: int) -> None:
        if made == zeros:
            self.room_end = end + made
        elif made:
            with suppress(OSError):  # zeros that do not end where room does would look as lost records do
                self.file.truncate(end)

    def forget_room(self) -> None:
        """Note that the file has no room, after it was cut. Where room does not pay, the next write finds out again."""
        self.room_end = max(self.size, preallocation.ROOM_FROM_BYTES)

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
            self.forget_room()
        return is_longer

    def release(self) -> None:
        """Release the file. It closes when no reader holds it."""
        self._file, self.plain_fd = None, -1
