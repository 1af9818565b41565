"""The log of Kafka 0.7: a reader of `.kafka` files, which are named by byte position.

    topic-0/00000000000000000000.kafka     entry | entry | entry …        (see records.format_07)
    topic-0/00000000000536870953.kafka     begins where the file before ends: its name is that byte's position

There is no index: an offset is a position in the partition, and minus the file's name it is the position in the file.
Directories are named `topic-0` (0.7's documents also say `topic_0`), and files have 20 digits (the documents say 11).
Both forms are read.

After a crash, as in 0.7, the last file is valid up to its last complete message with a correct checksum. Damage in any
other file ends that file; reading continues with the next one, and reports the skipped bytes. Source: Kafka 0.7.2's
Log, LogManager and FileMessageSet.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from headrace.errors import CorruptMessage, KafkaError
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX
from headrace.log.filenames import offset_of, parse_partition
from headrace.log.files import Files, LogFile
from headrace.records.legacy.format_07 import LENGTH_BYTES, Entry07, entry_size, payloads_of, read_entry
from headrace.types import TopicPartition

SUFFIX = ".kafka"
CHUNK_BYTES = 1 << 20
ENTRY_BYTES_MAX = DECOMPRESSED_BATCH_BYTES_MAX
"""A length above this is taken for damage, wherever the file ends: 0.7 refused messages over 1 MB by default."""


class Segment07(NamedTuple):
    """One file: the position of its first byte in the partition, and its size in bytes."""

    base_offset: int
    size_bytes: int
    path: Path

    @property
    def end_offset(self) -> int:
        """The position (exclusive) where the segment ends, and the next one begins."""
        return self.base_offset + self.size_bytes


class Damage07(NamedTuple):
    """Bytes of a partition without a readable message, from `offset` to `end_offset` (exclusive)."""

    path: Path
    offset: int
    end_offset: int
    reason: str


def is_segment_name(name: str) -> bool:
    """Whether a file of this name is a segment of Kafka 0.7."""
    return name.endswith(SUFFIX) and name[: -len(SUFFIX)].isascii() and name[: -len(SUFFIX)].isdigit()


def partition_of(directory_name: str) -> TopicPartition | None:
    """The partition with this directory name, `topic-0` or `topic_0`; None for any other name."""
    named = parse_partition(directory_name)
    if named is None:
        topic, _, partition = directory_name.rpartition("_")
        named = parse_partition(f"{topic}-{partition}")
    return named


def list_segments(files: Files, directory: Path) -> list[Segment07]:
    """The segments in a directory, by position. Raises OSError."""
    found = [
        Segment07(offset_of(name), files.file_size(directory / name), directory / name)
        for name in files.names(directory)
        if is_segment_name(name)
    ]
    return sorted(found)


class LogReader07:
    """Reads a partition's directory. `damages` has the skipped bytes."""

    def __init__(self, files: Files, directory: Path) -> None:
        """Raises OSError, or FileNotFoundError when there is no segment."""
        self._files = files
        self.segments = list_segments(files, directory)
        if not self.segments:
            raise FileNotFoundError(f"{directory} has no {SUFFIX} file: name a partition's directory of Kafka 0.7")
        self.damages: list[Damage07] = []

    @property
    def start_offset(self) -> int:
        """The position of the first byte in the first segment."""
        return self.segments[0].base_offset

    @property
    def end_offset(self) -> int:
        """The position after the last byte."""
        return self.segments[-1].end_offset

    def missing(self) -> list[tuple[int, int]]:
        """The ranges of positions [start, end) between the first and the last segment that no file has."""
        return [(a.end_offset, b.base_offset) for a, b in pairwise(self.segments) if a.end_offset < b.base_offset]

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Up to `max_bytes` from a position on, of one segment, as 0.7's fetch. The last entry may be incomplete.

        Empty at the end. Raises ValueError for a position below the start or above the end, and OSError.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise ValueError(f"offset {offset} is not within {self.start_offset} to {self.end_offset}")
        at = bisect_right(self.segments, offset, key=lambda each: each.base_offset) - 1
        segment = self.segments[at]
        size = min(max_bytes, segment.end_offset - offset)
        return self._files.open_readonly(segment.path).read(size, offset - segment.base_offset) if size > 0 else b""

    def entries(self, from_offset: int = 0) -> Iterator[tuple[int, Entry07]]:
        """The position in the partition, and the entry there, from `from_offset` (where an entry begins) on.

        Memory is bounded by a chunk or, if larger, one entry. Checks the CRCs. Skips the rest of a file after the first
        damaged or incomplete entry, and adds it to `damages`.
        """
        for segment in self.segments:
            if segment.end_offset > from_offset:
                yield from self._entries(segment, max(0, from_offset - segment.base_offset))

    def messages(
        self, from_offset: int = 0, *, max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
    ) -> Iterator[tuple[int, int, list[memoryview]]]:
        """The start and end (exclusive) of each entry in the partition, and its payloads; otherwise as `entries`.

        Skips only the wrapper when its CRC is right but it cannot be opened.
        """
        for offset, entry in self.entries(from_offset):
            end = offset + entry.size_bytes
            try:
                payloads = payloads_of(entry, max_bytes)
            except KafkaError as error:
                at = bisect_right(self.segments, offset, key=lambda each: each.base_offset) - 1
                self.damages.append(Damage07(self.segments[at].path, offset, end, error.message))
                continue
            yield offset, end, payloads

    def _entries(self, segment: Segment07, start: int) -> Iterator[tuple[int, Entry07]]:
        file = self._files.open_readonly(segment.path)
        try:
            for position, entry in _read_entries(file, start, segment.size_bytes):
                yield segment.base_offset + position, entry
        except _Damaged as damage:
            at = segment.base_offset + damage.position
            self.damages.append(Damage07(segment.path, at, segment.end_offset, damage.reason))


class _Damaged(Exception):
    """The position in a file of the first message that is incomplete or damaged."""

    def __init__(self, position: int, reason: str) -> None:
        self.position = position
        self.reason = reason


def _read_entries(file: LogFile, position: int, end: int) -> Iterator[tuple[int, Entry07]]:
    """(position, entry) from `position` up to `end`; raises _Damaged at the first bad one."""
    chunk, start = b"", position
    while position < end:
        at = position - start
        if len(chunk) - at < LENGTH_BYTES:
            chunk, start, at = file.read(min(CHUNK_BYTES, end - position), position), position, 0
        try:
            if len(chunk) - at < LENGTH_BYTES:
                raise CorruptMessage(f"the length of a message is cut off after {len(chunk) - at} bytes")
            size = entry_size(chunk, at)
            if size > end - position:
                raise CorruptMessage(
                    f"a message of {size - LENGTH_BYTES} bytes is cut off: only {end - position} bytes are left"
                )
            if size > ENTRY_BYTES_MAX:
                raise CorruptMessage(f"a message of {size - LENGTH_BYTES} bytes is above the limit {ENTRY_BYTES_MAX}")
            if size > len(chunk) - at:
                chunk, start, at = file.read(max(size, min(CHUNK_BYTES, end - position)), position), position, 0
            entry = read_entry(chunk, at)
            if not entry.crc_is_valid:
                raise CorruptMessage(f"the payload does not match its CRC {entry.crc}")
        except CorruptMessage as error:
            raise _Damaged(position, error.message) from None
        yield position, entry._replace(position=position)
        position += size
