"""The two sparse indexes of a segment, and look-ups of batches with them.

    …000.index       an entry for about every 4 KiB          offset -> position
    …000.timeindex   at the same places                      time -> offset

A look-up has two steps: the index gives a batch that begins at or before the offset, and batch headers are read from
there to the batch that holds the offset. The indexes are loaded at the first use. A missing or corrupt index is
rebuilt. It is also rebuilt when a look-up uses an entry that names no batch.

Source: Kafka's LogSegment. Left out: the memory maps of the indexes.
"""

import logging
from array import array
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from struct import Struct

from headrace.config import TopicConfig
from headrace.errors import CorruptMessage
from headrace.log.append_state import IndexSteps
from headrace.log.filenames import INDEX, TIME_INDEX
from headrace.log.files import Bytes, Files, LogFile
from headrace.log.segment.file_records import FileRecords
from headrace.log.segment.index_file import CorruptIndex
from headrace.log.segment.offset_index import OffsetIndex
from headrace.log.segment.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset
from headrace.records.format2.header import MAGIC, BatchHeader

logger = logging.getLogger(__name__)

ENTRY_HEAD = Struct(">qi")
"""The beginning of a batch of every format: the offset, and the number of bytes that follow."""


def _can_mean(entry: TimestampOffset, header: BatchHeader) -> bool:
    """Whether a time index entry can belong to a batch.

    Only a batch of format 2 with records can contradict it: an entry for older messages may cover several, and a batch
    that compaction emptied has lost its timestamps.
    """
    has_timestamp = header.magic == MAGIC and header.record_count
    return not has_timestamp or (header.last_offset, header.max_timestamp) == (entry.offset, entry.timestamp_ms)


class SegmentIndexes(IndexSteps):
    """The offset index, the time index and the largest timestamp of one segment."""

    _loaded: tuple[OffsetIndex, TimeIndex] | None

    __slots__ = (
        "_base_offset",
        "_files",
        "_max_bytes",
        "_records",
    )

    def __init__(
        self,
        files: Files,
        records: FileRecords,
        base_offset: int,
        config: TopicConfig,
    ) -> None:
        self._files = files
        self._records = records
        self._base_offset = base_offset
        self._loaded = None
        self._largest = None
        self.unindexed_bytes = 0
        self.is_full = False
        self.configure(config)

    def configure(self, config: TopicConfig) -> None:
        """Apply new settings. The sizes of the index files change with the next segment."""
        self._interval_bytes = config.index_interval_bytes
        self._max_bytes = config.segment_index_bytes

    @property
    def _largest(self) -> TimestampOffset | None:
        """The segment's largest timestamp, as far as it is known."""
        return TimestampOffset(self._largest_ms, self._offset_of_largest) if self._knows_largest else None

    @_largest.setter
    def _largest(self, largest: TimestampOffset | None) -> None:
        self._knows_largest = largest is not None
        if largest is not None:
            self._largest_ms, self._offset_of_largest = largest

    @property
    def _both(self) -> tuple[OffsetIndex, TimeIndex]:
        """Both indexes, loaded or rebuilt. Raises CorruptMessage for damaged batches, and OSError."""
        return self._loaded or self._load()

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, loaded or rebuilt."""
        return self._both[0]

    @property
    def time_index(self) -> TimeIndex:
        """The time index, loaded or rebuilt."""
        return self._both[1]

    @property
    def is_loaded(self) -> bool:
        """Whether the indexes and the largest timestamp are in memory, so that no file has to be read for them."""
        return self._loaded is not None and self._knows_largest

    @property
    def largest(self) -> TimestampOffset:
        """The segment's largest timestamp, and the last offset of the first batch that reached it."""
        largest = self._largest
        if largest is None:
            largest = self._largest = self._find_largest()
        return largest

    # Looking up

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The position and header of the first batch that ends at or after `offset`; None when there is none."""
        for position, header in self.headers_from(offset):
            if header.last_offset >= offset:
                return position, header
        return None

    def headers_from(self, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """The headers from a batch on that begins at or before `offset`, if there is one. Raises CorruptMessage.

        The index gives the first position. Its entry has to name a batch that ends at or before the entry's offset,
        otherwise the indexes are rebuilt. Apache Kafka writes one entry, with the last offset of all of them, for
        batches that were appended together.
        """
        ends_at, position = self.offset_index.entry_below(offset)
        if not position:
            return self._records.headers()
        headers = self._records.headers(position)
        try:
            first = next(headers, None)
        except CorruptMessage:
            first = None
        if first is not None and self._base_offset <= first[1].base_offset <= first[1].last_offset <= ends_at:
            return chain([first], headers)
        self._distrust(f"the entry for offset {ends_at} points to position {position}, where no such batch begins")
        return self._records.headers(self.offset_index.lookup(offset))

    def reached_by(self, timestamp_ms: int) -> TimestampOffset:
        """The time index's last entry at or below a time.

        All batches that end before its offset have timestamps below `timestamp_ms`.
        """
        entry = self.time_index.lookup(timestamp_ms)
        if entry.timestamp_ms != NO_TIMESTAMP and not self._is_so(entry):
            self._distrust(f"no batch with the last offset {entry.offset} has the timestamp {entry.timestamp_ms}")
            entry = self.time_index.lookup(timestamp_ms)
        return entry

    def _is_so(self, entry: TimestampOffset) -> bool:
        found = self.locate(entry.offset)
        return found is not None and _can_mean(entry, found[1])

    def _distrust(self, reason: str) -> None:
        logger.warning("the indexes of %s are rebuilt: %s", self._records.path, reason)
        self.rebuild()

    def last_entry(self) -> tuple[int, BatchHeader] | None:
        """The position and header of the last whole batch; None when there is none. Raises CorruptMessage."""
        newest = deque(self._records.headers(self.offset_index.last_position), maxlen=1)
        return newest[0] if newest else None

    def _find_largest(self) -> TimestampOffset:
        """The last entry of the time index, or a later batch behind it (after a crash or a truncation)."""
        entry = largest = self.time_index.last
        is_confirmed = entry.timestamp_ms == NO_TIMESTAMP
        for _, header in self.headers_from(largest.offset):
            if not is_confirmed and header.last_offset >= entry.offset:
                is_confirmed = _can_mean(entry, header)
                if not is_confirmed:
                    break
            if header.max_timestamp > largest.timestamp_ms and header.record_count:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
        if is_confirmed:
            return largest
        self._distrust(f"no batch with the last offset {entry.offset} has the timestamp {entry.timestamp_ms}")
        return self._largest or self.time_index.last

    # Adding

    def note(self, position: int, size: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Update the largest timestamp, and add an index entry every `index.interval.bytes`."""
        if not self._knows_largest:
            self._largest = self._find_largest()
        if max_timestamp_ms > self._largest_ms:
            self._largest = TimestampOffset(max_timestamp_ms, last_offset)
        if self.unindexed_bytes > self._interval_bytes and self._both:
            self.add_entries(last_offset, position)
        self.unindexed_bytes += size

    def note_set(self, entries: Bytes, position: int, max_timestamp_ms: int, offset_of_max: int) -> None:
        """As `note`, for messages of format 0 or 1 at `position`.

        `offset_of_max` is the offset of the message with the largest timestamp.
        """
        if max_timestamp_ms > self.largest.timestamp_ms:
            self._largest = TimestampOffset(max_timestamp_ms, offset_of_max)
        size = len(entries)
        if self.unindexed_bytes + size <= self._interval_bytes:
            self.unindexed_bytes += size
            return
        at = 0
        while at < size:
            offset, length = ENTRY_HEAD.unpack_from(entries, at)
            if self.unindexed_bytes > self._interval_bytes and self._both:
                self.add_entries(offset, position + at)
            length += ENTRY_HEAD.size
            self.unindexed_bytes += length
            at += length

    def _write_waiting(self) -> None:
        for index in self._both:
            index.write_waiting(self._files)

    def note_stretch(self, places: "array[int]", times: "array[int]") -> None:
        """Add entries for batches that the file has already, during a recovery.

        `places` and `times` are flat columns of two numbers an entry, as in `recovery_scan`.
        """
        offset_index, time_index = self._both
        offset_index.extend(self._files, places[0::2], places[1::2])
        time_index.extend(self._files, times[0::2], times[1::2])
        self.is_full = offset_index.is_full or time_index.is_full

    def scanned(self, largest: TimestampOffset, unindexed_bytes: int) -> None:
        """Take the results of a scan of all batches, whose entries `note_stretch` has added."""
        self._largest, self.unindexed_bytes = largest, unindexed_bytes

    # Whole indexes

    def reset(self) -> tuple[OffsetIndex, TimeIndex]:
        """Create empty indexes in memory."""
        made = self._loaded = (
            OffsetIndex(self._records.beside(INDEX), self._base_offset, self._max_bytes),
            TimeIndex(self._records.beside(TIME_INDEX), self._base_offset, self._max_bytes),
        )
        self._largest = TimestampOffset(NO_TIMESTAMP, self._base_offset)
        self.unindexed_bytes = 0
        self.is_full = False
        return made

    def copy(self, other: "SegmentIndexes") -> None:
        """Copy the indexes of a segment with the same content. They are only in memory until they are written."""
        for mine, theirs in zip(self.reset(), other._both, strict=True):
            mine.copy_entries(theirs)
        self._largest = other._largest
        self.unindexed_bytes, self.is_full = other.unindexed_bytes, other.is_full

    def create(self) -> None:
        """Create both indexes without entries, and their files at their full size. Raises OSError."""
        for index in self.reset():
            index.create(self._files)

    def trim(self) -> dict[str, LogFile]:
        """Write both index files, and cut them behind their entries. Returns them by their paths. Raises OSError."""
        return {index.text: index.trim(self._files) for index in self._both}

    def close(self) -> dict[str, LogFile]:
        """Write the last time index entry, and `trim`."""
        self.time_index.append(self._files, *self.largest)
        return self.trim()

    def cut(self, offset: int) -> None:
        """Drop the entries at or above `offset`, after the file's size was set. The next `trim` cuts the files."""
        for index in self._both:
            index.truncate_to(offset)
        self._largest = None
        self.unindexed_bytes = self._records.size - self.offset_index.last_position
        self.is_full = False

    def rebuild(self) -> None:
        """Rebuild both indexes from the batch headers. Raises CorruptMessage for damaged headers, and OSError."""
        self.reset()
        for position, header in self._records.headers():
            latest_ms = header.max_timestamp if header.record_count else NO_TIMESTAMP  # compaction emptied the batch
            self.note(position, header.size_bytes, header.last_offset, latest_ms)
        with suppress(OSError):  # a full disk can still be read; the next start tries again
            self._records.trim()
            self.close()

    def _load(self) -> tuple[OffsetIndex, TimeIndex]:
        try:
            offset_path, time_path = self._records.beside(INDEX), self._records.beside(TIME_INDEX)
            offset_index = OffsetIndex.load(self._files, offset_path, self._base_offset, self._max_bytes)
            time_index = TimeIndex.load(self._files, time_path, self._base_offset, self._max_bytes)
            self._check_belongs(offset_index)
        except (CorruptIndex, CorruptMessage, FileNotFoundError) as error:
            logger.warning("the indexes of %s are rebuilt: %s", self._records.path, error)
            self.rebuild()
            return self._both
        self._loaded = offset_index, time_index
        self.is_full = offset_index.is_full or time_index.is_full
        self.unindexed_bytes = self._records.size - offset_index.last_position
        return self._loaded

    def _check_belongs(self, index: OffsetIndex) -> None:
        """Check that the last entry points to the batch that ends with its offset. Raises CorruptIndex.

        Before format 2 it may point to an earlier message: Apache Kafka's entry for a message set has the last offset
        of the set and the position of its first message.
        """
        if index.keys:
            records = self._records
            found = next(records.headers(index.last_position), None) if index.last_position < records.size else None
            behind = self._base_offset + index.keys[-1] - found[1].last_offset if found else -1
            if found is None or behind < 0 or (behind > 0 and found[1].magic == MAGIC):
                raise CorruptIndex(f"{index.path.name}: the last entry does not point to a batch with its offset")
