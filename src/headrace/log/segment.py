"""One segment of a log, as its log writes it: appended to, rolled, cut and removed.

Only the last segment of a log, the active one, is written to. The files of the active segment may be longer than what
is in them, by zeros: its indexes always are, the log file with `preallocate`. A roll and a clean stop cut them.

Invariants: `size` counts whole batches; what a failed write left behind it is written over. Offsets ascend, but need
not be without gaps. An offset fits the segment while it is less than 2^31 above the base offset.
Source: Kafka's LogSegment.
"""

from contextlib import suppress
from pathlib import Path
from struct import Struct

from headrace.config import TopicConfig
from headrace.log.files import Bytes, Files
from headrace.log.index_file import RELATIVE_OFFSET_MAX
from headrace.log.names import DELETED, INDEX, LOG, TIME_INDEX, TXN_INDEX
from headrace.log.segment_files import SegmentFiles
from headrace.log.time_index import TimestampOffset

ENTRY_HEAD = Struct(">qi")
"""What every format begins with: an offset, and how many bytes follow."""


class Segment(SegmentFiles):
    """One segment."""

    __slots__ = ()

    @classmethod
    def create(cls, files: Files, directory: Path, base_offset: int, config: TopicConfig, *, now_ms: int) -> "Segment":
        """Make an empty segment. Files of its name that are there already are overwritten."""
        segment = cls(files, directory, base_offset, config, size=0, now_ms=now_ms)
        segment._file = files.open(segment.path(LOG), create=True)
        segment._file.truncate(0)
        segment.is_trimmed = False
        if config.preallocate:
            segment._file.extend(config.segment_bytes)
        segment.reset_indexes()
        segment.write_indexes()
        files.remove(segment.path(TXN_INDEX))
        return segment

    # Appending

    def append(self, batch: Bytes, last_offset: int, max_timestamp_ms: int) -> int:
        """Write one batch behind the others; returns its position. Raises OSError, and then nothing has changed."""
        position = self.size
        size = len(batch)
        try:
            (self._file or self.file).write(batch, position)
        except OSError:
            self._cut_off_tail()
            raise
        self.size = position + size
        if position == 0:
            self._first_timestamp_ms = max_timestamp_ms
        self._note(position, size, last_offset, max_timestamp_ms)
        return position

    def append_set(self, entries: Bytes, last_offset: int, max_timestamp_ms: int, offset_of_max: int) -> int:
        """Write messages of an older format behind the batches that are there; as `append`. `offset_of_max` is where
        the largest timestamp is."""
        position = self.size
        size = len(entries)
        try:
            self.file.write(entries, position)
        except OSError:
            self._cut_off_tail()
            raise
        self.size = position + size
        if position == 0:
            self._first_timestamp_ms = max_timestamp_ms
        if max_timestamp_ms > self.largest.timestamp_ms:
            self._largest = TimestampOffset(max_timestamp_ms, offset_of_max)
        if self.unindexed_bytes + size <= self.config.index_interval_bytes:
            self.unindexed_bytes += size
            return position
        at = 0
        while at < size:
            offset, length = ENTRY_HEAD.unpack_from(entries, at)
            if self.unindexed_bytes > self.config.index_interval_bytes:
                self._add_index_entries(offset, position + at)
            length += ENTRY_HEAD.size
            self.unindexed_bytes += length
            at += length
        return position

    def _cut_off_tail(self) -> None:
        """Drop what a failed write left behind. Were it to stay, recovery could take the inside of a batch for one."""
        with suppress(OSError):  # then it goes when the segment is closed
            self.file.truncate(self.size)

    def must_roll(self, size: int, last_offset: int, max_timestamp_ms: int, now_ms: int) -> bool:
        """Whether a batch has to go to a new segment: for size, age, a full index, or an offset too far up.

        Age is what lies between the timestamps of the first batch and this one (of the creation and now, where
        batches have none): so a segment holds `segment_ms` of data, also when old data is loaded.
        """
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if not self.size:
            return size > self.config.segment_bytes  # it fits no segment, which is for the caller to say
        first_ms = self._first_timestamp_ms
        if first_ms is None:
            first_ms = self._read_first_timestamp()
        waited_ms = max_timestamp_ms - first_ms if first_ms >= 0 else now_ms - self.created_ms
        return self.size + size > self.config.segment_bytes or waited_ms > self.roll_after_ms or self.is_index_full

    # Cutting, removing

    def truncate_to(self, offset: int) -> None:
        """Drop the batch that holds `offset` and everything behind it."""
        found = self.locate(offset)
        self.index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(self.files, offset)
        if found is not None:
            self.cut(found[0])
        self.trim_indexes()

    def cut(self, size: int) -> None:
        """Cut the log file to `size` bytes; the indexes are the caller's."""
        self.file.truncate(size)
        self.size = size
        self._largest = None
        if size == 0:
            self._first_timestamp_ms = None
        self.unindexed_bytes = size - (self._index.last_position if self._index else 0)
        self.is_index_full = False

    def mark_deleted(self) -> list[Path]:
        """Rename the segment's files to `.deleted`; returns where they are now. Readers go on undisturbed."""
        renamed = []
        for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX):
            path = self.path(suffix)
            if self.files.exists(path):
                renamed.append(path.with_name(path.name + DELETED))
                self.files.rename(path, renamed[-1])
        self._file = None
        return renamed

    def release(self) -> None:
        """Let go of the file; it closes when no reader holds it."""
        self._file = None
