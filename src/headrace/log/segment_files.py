"""The files of one segment, opened when they are first asked for, and what is where in them.

    …000.log         batch | batch | batch …                 only ever appended to
    …000.index       an entry for about every 4 KiB          offset -> position
    …000.timeindex   at the same places                      time -> offset
    …000.txnindex    aborted transactions, if any

A look-up has two steps: the index gives a batch that begins at or before the offset, and from there batch headers are
read until the one that holds it. A closed segment costs its name and its size until someone reads it. An index that is
missing or makes no sense is made again; so are those of which an entry, once it is used, turns out to name no batch.

Source: Kafka's LogSegment. Left out: the memory maps of the indexes.
"""

import logging
from array import array
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from zlib import crc32

from headrace.config import TopicConfig
from headrace.errors import CorruptMessage
from headrace.log.files import Files, LogFile
from headrace.log.index import OffsetIndex
from headrace.log.index_file import CorruptIndex
from headrace.log.names import INDEX, LOG, TIME_INDEX, TXN_INDEX, offset_file
from headrace.log.scan import read_headers
from headrace.log.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset
from headrace.log.txn_index import TransactionIndex
from headrace.records.header import MAGIC, BatchHeader

logger = logging.getLogger(__name__)


def _can_mean(entry: TimestampOffset, header: BatchHeader) -> bool:
    """Whether an entry of the time index can be that of a batch: before format 2 it may tell of others with it, and
    what compaction emptied does not say any more."""
    is_told = header.magic == MAGIC and header.record_count
    return not is_told or (header.last_offset, header.max_timestamp) == (entry.offset, entry.timestamp_ms)


class SegmentFiles:
    """Those of one segment, to be read and indexed."""

    __slots__ = (
        "_file",
        "_first_timestamp_ms",
        "_index",
        "_largest",
        "_time_index",
        "base_offset",
        "config",
        "created_ms",
        "directory",
        "files",
        "is_index_full",
        "is_trimmed",
        "roll_after_ms",
        "size",
        "txn_index",
        "unindexed_bytes",
    )

    def __init__(
        self, files: Files, directory: Path, base_offset: int, config: TopicConfig, *, size: int, now_ms: int
    ) -> None:
        self.files = files
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.created_ms = now_ms
        self.unindexed_bytes = 0
        self.is_index_full = False
        self.txn_index = TransactionIndex(self.path(TXN_INDEX))
        self.is_trimmed = True
        self._file: LogFile | None = None
        self._index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._largest: TimestampOffset | None = None
        self._first_timestamp_ms: int | None = None
        self.configure(config)

    def configure(self, config: TopicConfig) -> None:
        """Go on with other settings. The jitter is drawn from the segment's name, so that rolls spread out."""
        self.config = config
        age_max_ms = config.segment_age_max_ms
        jitter_ms = min(config.segment_jitter_ms, age_max_ms - 1)
        name = f"{self.directory.name}/{self.base_offset}".encode()
        self.roll_after_ms = age_max_ms - (crc32(name) % jitter_ms if jitter_ms > 0 else 0)

    def path(self, suffix: str) -> Path:
        """The path of one of the segment's files."""
        return self.directory / offset_file(self.base_offset, suffix)

    @property
    def file(self) -> LogFile:
        """The open log file."""
        if self._file is None:
            self._file = self.files.open(self.path(LOG))
        return self._file

    @property
    def modified_ms(self) -> int:
        """When it was last written to. Raises OSError."""
        return self.files.modified_ms(self.path(LOG))

    @property
    def index(self) -> OffsetIndex:
        """The offset index, loaded or rebuilt."""
        if self._index is None:
            self._load_indexes()
            assert self._index is not None
        return self._index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, loaded or rebuilt."""
        if self._time_index is None:
            self._load_indexes()
            assert self._time_index is not None
        return self._time_index

    @property
    def largest(self) -> TimestampOffset:
        """The segment's largest timestamp, and the last offset of the first batch that reached it."""
        if self._largest is None:
            self._largest = self._find_largest()
        return self._largest

    # Reading

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The position and header of the first batch that ends at or after `offset`; None when there is none."""
        for position, header in self.headers_from(offset):
            if header.last_offset >= offset:
                return position, header
        return None

    def headers_from(self, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """The headers from a batch on that begins at or before `offset`, if there is one. Raises CorruptMessage.

        The index says where to begin, and is not trusted: its entry has to name a batch that ends no later than it
        says (Apache Kafka has one entry for batches that came together: the last offset of all of them).
        """
        ends_at, position = self.index.entry_below(offset)
        if not position:
            return self.headers()
        headers = self.headers(position)
        try:
            first = next(headers, None)
        except CorruptMessage:
            first = None
        if first is not None and self.base_offset <= first[1].base_offset <= first[1].last_offset <= ends_at:
            return chain([first], headers)
        self._distrust(f"the entry for offset {ends_at} names position {position}, where no such batch is")
        return self.headers(self.index.lookup(offset))

    def reached_by(self, timestamp_ms: int) -> TimestampOffset:
        """The time index's last entry at or below a time: no batch that ends before its offset is as late as it."""
        entry = self.time_index.lookup(timestamp_ms)
        if entry.timestamp_ms != NO_TIMESTAMP and not self._is_so(entry):
            self._distrust(f"no batch that ends with offset {entry.offset} reached the time {entry.timestamp_ms}")
            entry = self.time_index.lookup(timestamp_ms)
        return entry

    def _is_so(self, entry: TimestampOffset) -> bool:
        found = self.locate(entry.offset)
        return found is not None and _can_mean(entry, found[1])

    def _distrust(self, reason: str) -> None:
        logger.warning("indexes of %s are made again: %s", self.path(LOG), reason)
        self.rebuild_indexes()

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """The headers of the batches from `position`, where one begins. Raises CorruptMessage."""
        return read_headers(self.file, position, self.size)

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        """A whole batch."""
        return self.file.read(header.size_bytes, position)

    def last_entry(self) -> tuple[int, BatchHeader] | None:
        """The position and header of the last whole batch; None when there is none. Raises CorruptMessage."""
        newest = deque(self.headers(self.index.last_position), maxlen=1)
        return newest[0] if newest else None

    # Indexes

    def reset_indexes(self) -> None:
        """Begin both indexes anew."""
        bytes_max = self.config.segment_index_bytes
        self._index = OffsetIndex(self.path(INDEX), self.base_offset, bytes_max)
        self._time_index = TimeIndex(self.path(TIME_INDEX), self.base_offset, bytes_max)
        self._largest = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self.unindexed_bytes = 0
        self.is_index_full = False

    def take_indexes(self, other: "SegmentFiles") -> None:
        """Have the indexes of a segment with the same content; they are in memory alone until they are written."""
        self.reset_indexes()
        self.index.copy_entries(other.index)
        self.time_index.copy_entries(other.time_index)
        self._largest, self._first_timestamp_ms = other._largest, other._first_timestamp_ms
        self.unindexed_bytes, self.is_index_full = other.unindexed_bytes, other.is_index_full
        self.is_trimmed = False

    def write_indexes(self) -> None:
        """Bring both index files up to date, at their full size."""
        self.index.write(self.files)
        self.time_index.write(self.files)

    def trim_indexes(self) -> None:
        """Bring both index files up to date, no longer than their entries."""
        self.index.trim(self.files)
        self.time_index.trim(self.files)

    def note_scanned(self, position: int, header: BatchHeader) -> None:
        """Index a batch that is in the file already, during a rebuild."""
        latest_ms = header.max_timestamp if header.record_count else NO_TIMESTAMP  # what compaction emptied has no time
        self._note(position, header.size_bytes, header.last_offset, latest_ms)

    def rebuild_indexes(self) -> None:
        """Make both indexes again from the batch headers. Raises CorruptMessage for damage in the way, OSError."""
        self.reset_indexes()
        for position, header in self.headers():
            self.note_scanned(position, header)
        with suppress(OSError):  # a full disk can still be read; the next start tries again
            self.close_for_appends()

    def note_stretch(self, places: "array[int]", times: "array[int]") -> None:
        """Index batches that are in the file already, during a recovery: entries of both indexes, as `recovery_scan`
        finds them."""
        index, time_index = self.index, self.time_index
        index.extend(self.files, places[0::2], places[1::2])
        time_index.extend(self.files, times[0::2], times[1::2])
        self.is_index_full = index.is_full or time_index.is_full

    def finish_recovery(self, size: int, largest: TimestampOffset, unindexed_bytes: int) -> None:
        """Cut the file behind the last good batch, and write the indexes that were made while it was checked. The
        largest timestamp, and what no index entry was made for, are the check's too."""
        self._largest, self.unindexed_bytes = largest, unindexed_bytes
        if self.size != size or self.file.size() != size:
            self.file.truncate(size)
            self.file.sync()
            self.size = size
        self.close_for_appends()

    def _load_indexes(self) -> None:
        bytes_max = self.config.segment_index_bytes
        try:
            index = OffsetIndex.load(self.files, self.path(INDEX), self.base_offset, bytes_max)
            time_index = TimeIndex.load(self.files, self.path(TIME_INDEX), self.base_offset, bytes_max)
            self._check_belongs(index)
        except (CorruptIndex, CorruptMessage, FileNotFoundError) as error:
            logger.warning("indexes of %s are made again: %s", self.path(LOG), error)
            self.rebuild_indexes()
        else:
            self._index, self._time_index = index, time_index
            self.is_index_full = index.is_full or time_index.is_full
            self.unindexed_bytes = self.size - index.last_position

    def _check_belongs(self, index: OffsetIndex) -> None:
        """The last entry has to point to the batch that ends with its offset; before format 2 it may be an earlier one:
        Apache Kafka has the last offset of a whole set of messages point to the first of them."""
        if index.keys:
            found = next(self.headers(index.last_position), None) if index.last_position < self.size else None
            behind = self.base_offset + index.keys[-1] - found[1].last_offset if found else -1
            if found is None or behind < 0 or (behind > 0 and found[1].magic == MAGIC):
                raise CorruptIndex(f"{index.path.name}: its last entry points to no such batch")

    def _find_largest(self) -> TimestampOffset:
        """The last entry of the time index, unless a batch behind it is later (after a crash, or a truncation)."""
        entry = largest = self.time_index.last
        is_told = entry.timestamp_ms == NO_TIMESTAMP
        for _, header in self.headers_from(largest.offset):
            if not is_told and header.last_offset >= entry.offset:
                is_told = _can_mean(entry, header)
                if not is_told:
                    break
            if header.max_timestamp > largest.timestamp_ms and header.record_count:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
        if is_told:
            return largest
        self._distrust(f"no batch that ends with offset {entry.offset} reached the time {entry.timestamp_ms}")
        return self._largest or self.time_index.last

    @property
    def first_timestamp_ms(self) -> int:
        """The largest timestamp of the first batch; -1 when it has none."""
        return self._read_first_timestamp() if self._first_timestamp_ms is None else self._first_timestamp_ms

    def _read_first_timestamp(self) -> int:
        found = next(self.headers(), None)
        self._first_timestamp_ms = found[1].max_timestamp if found else NO_TIMESTAMP
        return self._first_timestamp_ms

    def _note(self, position: int, size: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Keep the largest timestamp and, every `index.interval.bytes`, an index entry."""
        if max_timestamp_ms > (self._largest or self.largest).timestamp_ms:
            self._largest = TimestampOffset(max_timestamp_ms, last_offset)
        if self.unindexed_bytes > self.config.index_interval_bytes:
            self._add_index_entries(last_offset, position)
        self.unindexed_bytes += size

    def _add_index_entries(self, last_offset: int, position: int) -> None:
        self.unindexed_bytes = 0
        index, time_index = self.index, self.time_index
        index.append(self.files, last_offset, position)
        time_index.append(self.files, *self.largest)
        self.is_index_full = index.is_full or time_index.is_full

    def close_for_appends(self) -> bool:
        """Have the time index end with the largest timestamp, and no file be longer than what is in it: at a roll, or
        at the end. A closed segment's size is its file's at the next start, and Apache Kafka takes a closed segment's
        zeros for entries. Returns whether the log file was cut, which is to be synced. Raises OSError."""
        is_cut = self.file.size() != self.size
        if is_cut:
            self.file.truncate(self.size)
        self.time_index.append(self.files, *self.largest)
        self.trim_indexes()
        self.is_trimmed = True
        return is_cut
