"""Stored partitions: reads partitions of headrace, Apache Kafka and Kafka 0.7 from their files, without a broker.

    data directory / flights-0 / 00…0.log      segments of any message format, indexes not needed
    data directory / flights-0 / 00…0.kafka    Kafka 0.7

Returns the records that a read_committed consumer would get: none below the log start offset (if the data directory's
checkpoint exists), no markers, and none of aborted or unfinished transactions. It changes nothing and trusts nothing:
`damages` lists what cannot be read, and reading continues after it where possible. Memory is bounded by a chunk or, if
larger, one decompressed batch.
"""

from array import array
from collections.abc import Iterator
from errno import ENOENT
from pathlib import Path
from struct import Struct
from typing import NamedTuple, Protocol

from headrace.errors import CorruptMessage, KafkaError
from headrace.limits import INT64_MAX
from headrace.log.directories import checkpoints
from headrace.log.filenames import LOG, is_segment_file, offset_of, parse_partition
from headrace.log.files import Files, LogFile
from headrace.log.segment.preallocation import filled_to, is_zeros
from headrace.offline import segments_07
from headrace.offline.segments_07 import Damage07, LogReader07
from headrace.records.any_format import ANY_HEADER_BYTES_MIN, read_any_header, scan_any
from headrace.records.binary import column_of
from headrace.records.format2.columns import RecordColumns
from headrace.records.format2.control import read_marker
from headrace.records.format2.header import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    read_header,
)
from headrace.types import TopicPartition

CHUNK_BYTES = 4 << 20
_LENGTH_AT, _MAGIC_AT = 8, 16
_length = Struct(">i")


class StoredPartition(NamedTuple):
    """A partition and its directory. `is_07` says that it is one of Kafka 0.7."""

    partition: TopicPartition
    directory: Path
    is_07: bool


class StoredLog(Protocol):
    """A partition that can be read once, from its beginning."""

    partition: TopicPartition
    size_bytes: int
    formats: list[str]
    """The message formats found so far: "0.7", "0", "1", "2"."""
    damages: list[Damage07]
    bytes_read: int
    records_left_out: int
    """The number of skipped records of aborted and unfinished transactions."""

    def columns(self) -> Iterator[RecordColumns]:
        """The records with their headers, in order, in pieces of about 4 MiB. Raises OSError."""


def find_partitions(files: Files, path: Path) -> list[StoredPartition]:
    """The partition whose directory is `path`, or the partitions of the data directory `path`, sorted.

    Raises FileNotFoundError when there are none, and OSError.
    """
    found = _partition_in(files, path)
    if found is not None:
        return [found]
    children = [path / name for name in files.names(path)]
    partitions = [_partition_in(files, child) for child in children if files.is_directory(child)]
    stored = sorted(each for each in partitions if each is not None)
    if not stored:
        raise FileNotFoundError(
            ENOENT, "no partition (a directory such as topic-0, with .log or .kafka files) at this path or below", path
        )
    return stored


def _partition_in(files: Files, directory: Path) -> StoredPartition | None:
    named, named_07 = parse_partition(directory.name), segments_07.partition_of(directory.name)
    if named_07 is None:
        return None
    names = files.names(directory)
    if named is not None and any(is_segment_file(name, LOG) for name in names):
        return StoredPartition(named, directory, is_07=False)
    if any(segments_07.is_segment_name(name) for name in names):
        return StoredPartition(named_07, directory, is_07=True)
    return None


def open_stored(files: Files, stored: StoredPartition) -> StoredLog:
    """The partition's log, ready to be read. Raises OSError."""
    return _Log07(files, stored) if stored.is_07 else _Log(files, stored)


class _Log07:
    """A partition of Kafka 0.7. It has only values, and an offset is a byte position."""

    def __init__(self, files: Files, stored: StoredPartition) -> None:
        self._reader = LogReader07(files, stored.directory)
        self.partition = stored.partition
        self.size_bytes = sum(segment.size_bytes for segment in self._reader.segments)
        self.formats = ["0.7"]
        self.damages = self._reader.damages
        self.bytes_read = 0
        self.records_left_out = 0
        for start, end in self._reader.missing():
            self.damages.append(Damage07(stored.directory, start, end, "no file holds these bytes"))

    def columns(self) -> Iterator[RecordColumns]:
        payloads: list[bytes] = []
        offsets, size, end = array("q"), 0, self._reader.start_offset
        for start, end, found in self._reader.messages():
            offsets.extend([start] * len(found))
            payloads += map(bytes, found)
            size += sum(map(len, found))
            if size >= CHUNK_BYTES:
                self.bytes_read = end - self._reader.start_offset
                yield _values(payloads, offsets, end)
                payloads, offsets, size = [], array("q"), 0
        self.bytes_read = self.size_bytes
        if payloads:
            yield _values(payloads, offsets, end)


def _values(payloads: list[bytes], offsets: "array[int]", next_offset: int) -> RecordColumns:
    count = len(payloads)
    none = array("q", [NO_TIMESTAMP]) * count
    return RecordColumns(count, offsets, none, bytearray(count), None, column_of(payloads), None, next_offset, 0)


class _Log:
    """A partition of headrace, or of Kafka 0.8 or later."""

    def __init__(self, files: Files, stored: StoredPartition) -> None:
        self.partition = stored.partition
        directory = stored.directory
        names = sorted((name for name in files.names(directory) if is_segment_file(name, LOG)), key=offset_of)
        self._files = [(directory / name, files.open_readonly(directory / name)) for name in names]
        self._filled = [filled_to(file, file.size()) for _, file in self._files]
        self._sizes = [file.size() for _, file in self._files]
        self.size_bytes = sum(self._sizes)
        self.formats: list[str] = []
        self.damages: list[Damage07] = []
        self.bytes_read = 0
        self.records_left_out = 0
        self._start_offset = _log_start_offset(files, stored)
        self._left_out = _Transactions()
        for (_, file), size in zip(self._files, self._sizes, strict=True):
            self._survey(file, size)
        self._left_out.finish()

    def _survey(self, file: LogFile, size: int) -> None:
        """Note the formats and the transactions of a segment. Ignores damage, which the reading reports."""
        found = set()
        for position, magic, header in _walk(file, size):
            found.add(str(magic))
            if header is not None and header.is_control:
                try:
                    marker = read_marker(file.read(header.size_bytes, position))
                except KafkaError:
                    continue
                self._left_out.end(header, is_abort=marker.is_abort)
            elif header is not None and header.is_transactional:
                self._left_out.begin(header)
        self.formats = sorted({*self.formats, *found})

    def columns(self) -> Iterator[RecordColumns]:
        read = 0
        for (path, file), size, filled in zip(self._files, self._sizes, self._filled, strict=True):
            position = 0
            while position < filled:
                rows, after = self._chunk(path, file, position, filled, size)
                self.bytes_read, position = read + after, after
                if rows is not None and rows.count:
                    yield rows
            read += size

    def _chunk(
        self, path: Path, file: LogFile, position: int, filled: int, size: int
    ) -> tuple[RecordColumns | None, int]:
        """The records of the batches from `position` on, or None for damage, and the position to continue at.

        A batch that begins behind `filled` is newer than what is known of the transactions."""
        data = file.read(min(CHUNK_BYTES, filled - position), position)
        try:
            whole = read_any_header(data).size_bytes
            if whole > size - position:
                raise CorruptMessage(f"the batch of {whole} bytes is cut off: only {size - position} bytes are left")
            if whole > len(data):
                data = file.read(whole, position)
            rows = scan_any(data, from_offset=self._start_offset, headers=True, skip=self._skip)
        except KafkaError as error:
            after = _behind(file, position, size)
            if after < size or not is_zeros(file, position, size):
                self.damages.append(Damage07(path, position, after, error.message))
            return None, after
        return rows, position + rows.bytes_consumed

    def _skip(self, header: BatchHeader, _batch: memoryview) -> bool:
        if not self._left_out.holds(header):
            return False
        if not header.is_control:
            self.records_left_out += header.record_count
        return True


class _Transactions:
    """The offset ranges (both inclusive) of aborted and unfinished transactions, by producer id."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._ranges: dict[int, list[tuple[int, int]]] = {}

    def begin(self, header: BatchHeader) -> None:
        self._open.setdefault(header.producer_id, header.base_offset)

    def end(self, marker: BatchHeader, *, is_abort: bool) -> None:
        first = self._open.pop(marker.producer_id, None)
        if is_abort and first is not None:
            self._ranges.setdefault(marker.producer_id, []).append((first, marker.base_offset))

    def finish(self) -> None:
        """Note that there are no more markers: open transactions never end."""
        for producer_id, first in self._open.items():
            self._ranges.setdefault(producer_id, []).append((first, INT64_MAX))

    def holds(self, header: BatchHeader) -> bool:
        if not header.is_transactional or header.producer_id not in self._ranges:
            return False
        return any(first <= header.base_offset <= last for first, last in self._ranges[header.producer_id])


def _walk(file: LogFile, size: int) -> Iterator[tuple[int, int, BatchHeader | None]]:
    """Position, magic and, in format 2, header of each batch of a segment. Stops where no batch is."""
    position = start = 0
    chunk = b""
    while size - position >= ANY_HEADER_BYTES_MIN:
        at = position - start
        if at + HEADER_BYTES > len(chunk) and start + len(chunk) < size:
            chunk, start, at = file.read(CHUNK_BYTES, position), position, 0
        magic, header = chunk[at + _MAGIC_AT], None
        length = LOG_OVERHEAD_BYTES + _length.unpack_from(chunk, at + _LENGTH_AT)[0]
        if magic > MAGIC or not ANY_HEADER_BYTES_MIN <= length <= size - position:
            return
        if magic == MAGIC:
            try:
                header = read_header(chunk, at)
            except CorruptMessage:
                return
        yield position, magic, header
        position += length


def _behind(file: LogFile, position: int, size: int) -> int:
    """The position after a damaged batch: by its length, if a batch follows there, else the file's end."""
    try:
        damaged = read_any_header(file.read(HEADER_BYTES, position))
        after = position + damaged.size_bytes
        following = read_any_header(file.read(HEADER_BYTES, after))
        if following.last_offset > damaged.base_offset and after + following.size_bytes <= size:
            return after
    except CorruptMessage:
        pass
    return size


def _log_start_offset(files: Files, stored: StoredPartition) -> int:
    """The log start offset, below which records are deleted but still in their file; 0 if it is not recorded."""
    path = stored.directory.parent / checkpoints.LOG_START_OFFSET
    try:
        return checkpoints.read_offsets(files, path).get(stored.partition, 0)
    except checkpoints.CorruptCheckpoint:
        return 0
