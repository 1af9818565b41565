"""The segment reader: lists segment files and reads their records as columns, without a broker.

    DIR/flights-0/00000000000000000000.log      closed: it ends where the next one begins
    DIR/flights-0/00000000000000191427.log      the newest: a broker may write to it now

`DIR` may be a data directory, a partition's directory, or one segment file (which then counts as closed). It reads
files of headrace and of Apache Kafka, and changes nothing. A partition's records start at the log start offset in the
data directory's checkpoint, if there is one, and end with its last closed segment, or, with `newest`, with the last
batch of the newest segment that has a correct CRC. In a cluster of several brokers, the end of a newest segment may
have records that are not committed yet. Batches may be of any format. Left out: the isolation of transactions.
"""

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headrace.errors import CorruptMessage, KafkaError
from headrace.log.directories import checkpoints
from headrace.log.filenames import INDEX, LOG, is_segment_file, offset_of, parse_partition
from headrace.log.files import Files, LogFile
from headrace.log.segment.batch_scan import read_checked, read_headers, records_in
from headrace.log.segment.index_file import CorruptIndex, read_used
from headrace.log.segment.offset_index import OffsetIndex
from headrace.records.any_format import any_header_bytes, read_any_header, scan_any
from headrace.records.format2.columns import RecordColumns
from headrace.types import TopicPartition

CHUNK_BYTES = 4 << 20


class SegmentFile(NamedTuple):
    """One segment. Its records have offsets in [base_offset, end_offset)."""

    path: Path
    base_offset: int
    end_offset: int


class PartitionFiles(NamedTuple):
    """The segments of one partition, in order, without empty ones. `start_offset` may be inside the first one."""

    partition: TopicPartition
    start_offset: int
    segments: tuple[SegmentFile, ...]

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        return self.segments[-1].end_offset if self.segments else self.start_offset


def find_partitions(files: Files, path: Path, *, newest: bool) -> list[PartitionFiles]:
    """The partitions at or below `path`, sorted. Raises FileNotFoundError if none, CorruptMessage and OSError."""
    if is_segment_file(path.name, LOG):
        partition = parse_partition(path.parent.name)
        if partition is None or not files.exists(path):
            raise FileNotFoundError(f"{path}: no such segment file in a directory named TOPIC-PARTITION")
        return [_partition_files(files, partition, [path], newest=True)]
    if not files.is_directory(path):
        raise FileNotFoundError(f"{path}: no such directory")
    named = [path] if _segments(files, path) else [path / name for name in files.names(path)]
    found = []
    for directory in named:
        partition = parse_partition(directory.name)
        if partition is not None and files.is_directory(directory):
            found.append(_partition_files(files, partition, _segments(files, directory), newest=newest))
    if not found:
        raise FileNotFoundError(
            f"{path} has no segments: name a data directory, a TOPIC-PARTITION directory or a segment file"
        )
    return sorted(found)


def _segments(files: Files, directory: Path) -> list[Path]:
    return [directory / name for name in files.names(directory) if is_segment_file(name, LOG)]


def _partition_files(files: Files, partition: TopicPartition, paths: list[Path], *, newest: bool) -> PartitionFiles:
    bases = [offset_of(path.name) for path in paths]
    ends = [*bases[1:], _end_of_newest(files, paths[-1]) if newest else bases[-1]] if paths else []
    segments = [SegmentFile(*found) for found in zip(paths, bases, ends, strict=True)]
    start = bases[0] if bases else 0
    if paths:
        checkpoint = paths[0].parents[1] / checkpoints.LOG_START_OFFSET
        start = max(start, checkpoints.read_offsets(files, checkpoint).get(partition, 0))
    kept = tuple(segment for segment in segments if segment.end_offset > max(segment.base_offset, start))
    return PartitionFiles(partition, start, kept)


def _end_of_newest(files: Files, path: Path) -> int:
    file = files.open_readonly(path)
    end = offset_of(path.name)
    for _, header in read_checked(file, file.size(), end):
        end = header.next_offset
    return end


def offset_for_time(files: Files, partition: PartitionFiles, timestamp_ms: int) -> int | None:
    """The offset of the first record at or after a time, or None. Raises CorruptMessage, OSError."""
    for segment in partition.segments:
        file = files.open_readonly(segment.path)
        for position, header in read_headers(file, 0, file.size()):
            if header.base_offset >= segment.end_offset:
                break
            is_early = header.max_timestamp < timestamp_ms or header.last_offset < partition.start_offset
            if not is_early and not header.is_control:
                for record in records_in(file.read(header.size_bytes, position), header):
                    if record.timestamp_ms >= timestamp_ms and record.offset >= partition.start_offset:
                        return record.offset
            if header.next_offset >= segment.end_offset:
                break  # preallocated space may follow
    return None


def read_segment(
    files: Files,
    path: Path,
    start: int,
    end: int,
    *,
    batch_rows: int,
    keys: bool = True,
    values: bool = True,
    headers: bool = False,
) -> Iterator[RecordColumns]:
    """The records with offsets in [start, end), in chunks of about `batch_rows` rows: whole batches, no empty chunk.

    Omits control records. Raises OSError, and CorruptMessage with the file and the position for a damaged or incomplete
    batch before `end`.
    """
    file = files.open_readonly(path)
    position = _position_of(files, path, start)
    wanted = (keys, values, headers)
    while start < end and position < file.size():
        chunk = memoryview(_read_batches(file, path, position))
        consumed = 0
        while consumed < len(chunk):
            columns = _scan(chunk[consumed:], path, position + consumed, start, end, batch_rows, wanted)
            if columns.count:
                yield columns
            consumed += columns.bytes_consumed
            start = max(start, columns.next_offset)
            if start >= end or columns.bytes_consumed == 0:
                break
        position += consumed


def _read_batches(file: LogFile, path: Path, position: int) -> bytes:
    """The bytes from `position` on, with at least one complete batch. Raises CorruptMessage."""
    chunk = file.read(CHUNK_BYTES, position)
    try:
        needed = any_header_bytes(chunk)
        size = read_any_header(chunk).size_bytes if len(chunk) >= needed else needed
    except KafkaError as error:
        raise CorruptMessage(f"{path} at position {position}: {error.message}") from error
    if size > len(chunk):
        chunk = file.read(size, position)
    if size > len(chunk):
        raise CorruptMessage(
            f"{path} at position {position}: the batch of {size} bytes is cut off by the end of the file"
        )
    return chunk


def _scan(
    data: memoryview, path: Path, position: int, start: int, end: int, rows: int, wanted: tuple[bool, bool, bool]
) -> RecordColumns:
    keys, values, headers = wanted
    try:
        return scan_any(
            data, from_offset=start, to_offset=end, keys=keys, values=values, headers=headers, max_records=rows
        )
    except CorruptMessage as error:
        raise CorruptMessage(f"{path}, from position {position} on: {error.message}") from error


def _position_of(files: Files, path: Path, offset: int) -> int:
    """The position of a batch at or before the one that holds `offset`; 0 without a usable index."""
    index_path = path.with_suffix(INDEX)
    if not files.exists(index_path):
        return 0
    try:
        relative_offsets, positions = OffsetIndex.read_columns(read_used(files, index_path), index_path.name)
    except CorruptIndex:
        return 0
    slot = bisect_right(relative_offsets, offset - offset_of(path.name)) - 1
    return positions[slot] if slot >= 0 else 0
