"""The batch reader of segment files: `spark.read.format("headrace").load("/data/flights-0")`, without a broker.

    path ─▶ partitions and segments ─▶ offset ranges (the same options as with a broker) ─▶ a task for each segment

`headrace.offline.segment_reader` finds and reads the files, headrace's and Apache Kafka's alike. The path must be the
same on every worker. Each partition's newest segment is left out unless segments=all, which is for directories that no
broker writes to (copies, or after a clean stop). Kafka's own topics, whose names begin with two underscores, are read
when they are named. Not here: read_committed, and streams.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from headrace.log.files import LocalFiles
from headrace.offline.segment_reader import PartitionFiles, SegmentFile, find_partitions, offset_for_time, read_segment
from headrace.spark.option_values import OptionError
from headrace.spark.source.offsets import resolve_ranges, split_ranges
from headrace.spark.source.options import Assign, Selection, SourceOptions, Subscribe, SubscribePattern
from headrace.spark.source.source import BATCH_ROWS, NOTHING, arrow_batch
from headrace.spark.worker import settle
from headrace.types import OffsetRange, TopicPartition


class SegmentPartition(InputPartition):
    """The input of one task: a range of offsets inside one segment file."""

    def __init__(self, path: str, wanted: OffsetRange) -> None:
        super().__init__((path, tuple(wanted)))

    @property
    def path(self) -> Path:
        return Path(self.value[0])

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(*self.value[1])


class FileReader(DataSourceReader):
    """Reads the files below a path as they are when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        bounds = FileBounds(_find(options))
        ranges = resolve_ranges(options, bounds)
        pieces = [piece for wanted in ranges for piece in by_segment(wanted, bounds.segments(wanted))]
        parts = split_ranges([part for _, part in pieces], options.min_partitions, options.max_records_per_partition)
        paths = {(part.topic, part.partition, part.start): str(path) for path, part in pieces}
        tasks: list[InputPartition] = []
        path = ""
        for part in parts:  # in the order of the pieces that they are cut from
            path = paths.get((part.topic, part.partition, part.start), path)
            tasks.append(SegmentPartition(path, part))
        return tasks or [SegmentPartition("", NOTHING)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SegmentPartition)
        settle()
        wanted, options = partition.range, self._options
        if not wanted.size:
            return
        found = read_segment(
            LocalFiles(),
            partition.path,
            wanted.start,
            wanted.end,
            batch_rows=BATCH_ROWS,
            keys="key" in options.columns,
            values="value" in options.columns,
            headers=options.include_headers,
        )
        for columns in found:
            yield arrow_batch(columns, wanted, options)


def by_segment(wanted: OffsetRange, segments: Iterable[SegmentFile]) -> Iterator[tuple[Path, OffsetRange]]:
    """The part of a range in each segment."""
    for path, base_offset, end_offset in segments:
        start, end = max(wanted.start, base_offset), min(wanted.end, end_offset)
        if start < end:
            yield path, wanted._replace(start=start, end=end)


class FileBounds:
    """`offsets.LogBounds` of files."""

    def __init__(self, found: Iterable[PartitionFiles]) -> None:
        self._found = {one.partition: one for one in found}

    def segments(self, wanted: OffsetRange) -> tuple[SegmentFile, ...]:
        return self._found[TopicPartition(wanted.topic, wanted.partition)].segments

    def partitions_of(self, selection: Selection) -> list[TopicPartition]:
        match selection:
            case Assign(partitions):
                self._check("assign", [str(one) for one in partitions if one not in self._found])
                return list(partitions)
            case Subscribe(topics):
                there = {one.topic for one in self._found}
                self._check("subscribe", [topic for topic in topics if topic not in there])
                return [one for one in self._found if one.topic in topics]
            case SubscribePattern(pattern):
                return [
                    one for one in self._found if re.fullmatch(pattern, one.topic) and not one.topic.startswith("__")
                ]

    def earliest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {one: self._found[one].start_offset for one in partitions}

    def latest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {one: max(self._found[one].end_offset, self._found[one].start_offset) for one in partitions}

    def at_time(self, timestamps_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        files = LocalFiles()
        return {one: offset_for_time(files, self._found[one], when) for one, when in timestamps_ms.items()}

    def _check(self, option: str, missing: list[str]) -> None:
        if missing:
            raise OptionError(option, ", ".join(missing), "is not among the files; name what is, or remove the option")


def _find(options: SourceOptions) -> list[PartitionFiles]:
    path = Path(str(options.path).removeprefix("file://"))
    try:
        found = find_partitions(LocalFiles(), path, newest=options.with_newest_segment)
    except FileNotFoundError as missing:
        raise OptionError("path", options.path, str(missing)) from missing
    if not options.with_newest_segment and not any(one.segments for one in found):
        raise OptionError(
            "segments",
            "closed",
            "every partition there has only its newest segment, which a broker may still be writing to; "
            "set segments=all if none is",
        )
    return found
