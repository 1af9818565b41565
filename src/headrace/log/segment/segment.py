"""A segment of a log: append, roll, truncation and deletion.

    …000.log         `file_records`       the batches
    …000.index       `segment_indexes`    offset -> position
    …000.timeindex   `segment_indexes`    time -> offset
    …000.txnindex    `txn_index`          aborted transactions, if any

Appends go to the last segment of a log only, the active one. The files of the active segment may end with zeros: its
indexes always do, and the log file may, see `preallocation`. A roll and a clean stop cut them off.

Invariants: `size` counts whole batches, and the next append overwrites what a failed write left behind them. Offsets
ascend, with or without gaps. An offset fits the segment while it is less than 2^31 above the base offset.
Source: Kafka's LogSegment.
"""

from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from headrace.config import TopicConfig
from headrace.log.append_state import SegmentEnd
from headrace.log.filenames import DELETED, INDEX, LOG, TIME_INDEX, TXN_INDEX, offset_file
from headrace.log.files import Bytes, Files, LogFile
from headrace.log.segment.file_records import FileRecords
from headrace.log.segment.index_file import RELATIVE_OFFSET_MAX
from headrace.log.segment.segment_indexes import SegmentIndexes
from headrace.log.segment.time_index import NO_TIMESTAMP, TimestampOffset
from headrace.log.segment.txn_index import TransactionIndex
from headrace.records.format2.header import BatchHeader

GAP_IN_SEGMENT_MAX = 1 << 30
"""The largest number of missing offsets that a new segment includes.

A new segment begins at the end offset of the one before. With a larger gap the next offset might not fit it, so the
segment begins behind the gap. In Apache Kafka a follower's segment begins behind any gap in the leader's log."""


def mark_deleted(files: Files, path: str) -> str:
    """Rename a file to `.deleted`, and return its new path, or "" when there is no such file. Raises OSError."""
    try:
        files.rename(path, path + DELETED)
    except FileNotFoundError:
        return ""
    return path + DELETED


class Segment(SegmentEnd):
    """One segment of a log."""

    records: FileRecords
    indexes: SegmentIndexes

    __slots__ = (
        "_name_ending",
        "config",
        "directory",
        "files",
        "is_trimmed",
        "txn_index",
    )

    def __init__(
        self,
        files: Files,
        directory: Path,
        base_offset: int,
        config: TopicConfig,
        *,
        size: int,
        now_ms: int,
        name_ending: str = "",
        records: FileRecords | None = None,
    ) -> None:
        """`size` is the number of bytes of the log file's whole batches. `name_ending` ends the names of all files.

        `records` is the log file, when it is open already.
        """
        self.files = files
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = now_ms
        self._name_ending = name_ending
        self.records = records or FileRecords(files, self.text(LOG), size)
        self.indexes = SegmentIndexes(files, self.records, base_offset, config)
        self.txn_index = TransactionIndex(self.text(TXN_INDEX))
        self.is_trimmed = records is None
        """Whether no file ends with zeros."""
        self._first_timestamp_ms: int | None = None
        self.configure(config)

    @classmethod
    def create(
        cls, files: Files, directory: Path, base_offset: int, config: TopicConfig, *, now_ms: int, name_ending: str = ""
    ) -> "Segment":
        """Create an empty segment, which replaces existing files of that name. Raises OSError."""
        records = FileRecords.create(
            files,
            f"{directory}/{offset_file(base_offset, LOG)}{name_ending}",
            preallocated_bytes=config.segment_bytes if config.preallocate else 0,
        )
        segment = cls(
            files, directory, base_offset, config, size=0, now_ms=now_ms, name_ending=name_ending, records=records
        )
        segment.indexes.create()
        segment.txn_index.remove(files)
        return segment

    def configure(self, config: TopicConfig) -> None:
        """Apply new settings. The jitter is computed from the segment's name, so that rolls spread out."""
        self.config = config
        self.bytes_max = config.segment_bytes
        self.records.configure(config)
        self.indexes.configure(config)
        age_max_ms = config.segment_age_max_ms
        jitter_ms = min(config.segment_jitter_ms, age_max_ms - 1)
        self.roll_after_ms = age_max_ms
        if jitter_ms > 0:
            self.roll_after_ms -= crc32(f"{self.directory.name}/{self.base_offset}".encode()) % jitter_ms

    def path(self, suffix: str) -> Path:
        """The path of one of the segment's files."""
        return Path(self.text(suffix))

    def text(self, suffix: str) -> str:
        """The path of one of the segment's files as a text."""
        return f"{self.directory}/{self.base_offset:020d}{suffix}{self._name_ending}"

    @property
    def size(self) -> int:
        """The number of bytes of all batches."""
        return self.records.size

    @property
    def file(self) -> LogFile:
        """The open log file."""
        return self.records.file

    @property
    def largest(self) -> TimestampOffset:
        """The segment's largest timestamp, and the last offset of the first batch that reached it."""
        return self.indexes.largest

    @property
    def first_timestamp_ms(self) -> int:
        """The largest timestamp of the first batch, in ms; -1 when it has none."""
        if self._first_timestamp_ms is None:
            found = next(self.records.headers(), None)
            self._first_timestamp_ms = found[1].max_timestamp if found else NO_TIMESTAMP
        return self._first_timestamp_ms

    # Reading

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from `position` on, where a batch begins. Raises CorruptMessage."""
        return self.records.headers(position)

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The position and header of the first batch that ends at or after `offset`; None when there is none."""
        return self.indexes.locate(offset)

    # Appending

    def append(self, batch: Bytes, last_offset: int, max_timestamp_ms: int) -> int:
        """Write one batch at the end, and return its position in bytes. Raises OSError, and then changes nothing."""
        position = self.records.append(batch)
        if position == 0:
            self._first_timestamp_ms = max_timestamp_ms
        self.indexes.note(position, len(batch), last_offset, max_timestamp_ms)
        return position

    def append_set(self, entries: Bytes, last_offset: int, max_timestamp_ms: int, offset_of_max: int) -> int:
        """Write messages of format 0 or 1 at the end, and return the position of the first one. Raises as `append`.

        `offset_of_max` is the offset of the message with the largest timestamp.
        """
        position = self.records.append(entries)
        if position == 0:
            self._first_timestamp_ms = max_timestamp_ms
        self.indexes.note_set(entries, position, max_timestamp_ms, offset_of_max)
        return position

    def must_roll(self, size: int, last_offset: int, max_timestamp_ms: int, now_ms: int) -> bool:
        """Whether a batch needs a new segment, because of size, age, a full index, or an offset that does not fit.

        The age is the time between the timestamps of the first batch and this one. Batches without timestamps count
        from the segment's creation until now. So a segment holds `segment.ms` of data, even of old data.
        """
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        held = self.records.size
        if not held:
            return size > self.config.segment_bytes  # the batch fits no segment; the caller raises the error
        first_ms = self._first_timestamp_ms
        if first_ms is None:
            first_ms = self.first_timestamp_ms
        waited_ms = max_timestamp_ms - first_ms if first_ms >= 0 else now_ms - self.created_ms
        return held + size > self.config.segment_bytes or waited_ms > self.roll_after_ms or self.indexes.is_full

    def close_for_appends(self) -> dict[str, LogFile]:
        """Write the last time index entry, and cut all files behind their content, at a roll or a clean stop.

        The next start takes a closed segment's size from its file, and Apache Kafka takes zeros in a closed segment's
        indexes for entries. Returns the files that the caller syncs, by their paths: the indexes, and the log file if
        it was cut, even if all its records are on the disk: after a crash, zeros behind them would end the log. Raises
        OSError.
        """
        is_cut = self.records.trim()
        written = self.indexes.close()
        if is_cut:
            written[self.records.text] = self.records.file
        self.is_trimmed = True
        return written

    # Recovering, copying

    def finish_recovery(self, size: int, largest: TimestampOffset, unindexed_bytes: int) -> None:
        """Cut the log file to `size` bytes, behind the last good batch, and write the indexes. Raises OSError.

        `largest` and `unindexed_bytes` are the scan's results.
        """
        self.indexes.scanned(largest, unindexed_bytes)
        is_shorter = self.records.size != size
        self.records.size = size
        if self.records.trim() or is_shorter:
            self.records.file.sync()
        self.close_for_appends()

    def copy_indexes(self, other: "Segment") -> None:
        """Copy the indexes of a segment with the same content. They are only in memory until they are written."""
        self.indexes.copy(other.indexes)
        self._first_timestamp_ms = other._first_timestamp_ms
        self.is_trimmed = False

    # Cutting, removing

    def truncate_to(self, offset: int) -> None:
        """Drop the batch that holds `offset` and all batches behind it. The caller cuts the file. Raises OSError."""
        found = self.locate(offset)
        self.txn_index.truncate_to(self.files, offset)
        if found is not None:
            self.records.size = found[0]
            self.records.forget_room()
            if found[0] == 0:
                self._first_timestamp_ms = None
        self.indexes.cut(offset)
        self.indexes.trim()

    def mark_deleted(self, renamed: list[str] | None = None) -> list[str]:
        """Rename the segment's files to `.deleted`, and return their new paths. Readers are not affected.

        The paths are added to `renamed`, which has those of the files before the refused one after an OSError.
        """
        renamed = [] if renamed is None else renamed
        for suffix in (LOG, INDEX, TIME_INDEX) if self.txn_index.has_no_file else (LOG, INDEX, TIME_INDEX, TXN_INDEX):
            if new := mark_deleted(self.files, self.text(suffix)):
                renamed.append(new)
        self.release()
        return renamed

    def release(self) -> None:
        """Release the log file. It closes when no reader holds it."""
        self.records.release()
