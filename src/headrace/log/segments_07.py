"""A partition's log as Kafka 0.7 kept it: `.kafka` files named by byte position. A reader and a writer.

    topic-0/00000000000000000000.kafka     entry | entry | entry …        (see records.format_07)
    topic-0/00000000000536870953.kafka     begins where the file before ends: its name is that byte's position

There is no index: an offset is a position, and a position less the file's name is where to read. Directories are named
`topic-0` (0.7's documents also say `topic_0`), files with 20 digits (the documents say 11): both are read.

What a crash leaves is handled as 0.7 does: a last file is good up to its last whole message with a right checksum.
Damage anywhere else ends that file; reading goes on with the next one, and says what was passed over. Source: Kafka
0.7.2's Log, LogManager and FileMessageSet.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from headrace.errors import CorruptMessage, KafkaError
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX
from headrace.log.files import Bytes, Files, LogFile
from headrace.log.names import offset_file, offset_of, parse_partition
from headrace.records.compression import Codec
from headrace.records.format_07 import LENGTH_BYTES, Entry, encode_set, entry_size, payloads_of, read_entry
from headrace.types import TopicPartition

SUFFIX = ".kafka"
CHUNK_BYTES = 1 << 20
SEGMENT_BYTES = 512 << 20
"""0.7's default of `log.file.size`."""

ENTRY_BYTES_MAX = DECOMPRESSED_BATCH_BYTES_MAX
"""A length above this is taken for damage, wherever the file ends: 0.7 refused messages over 1 MB by default."""


class Segment(NamedTuple):
    """One file: the position of its first byte in the partition, and how many it has."""

    base_offset: int
    size_bytes: int
    path: Path

    @property
    def end_offset(self) -> int:
        """Where the next segment begins."""
        return self.base_offset + self.size_bytes


class Damage(NamedTuple):
    """Bytes of a partition that hold no readable message, from `offset` up to `end_offset` (exclusive)."""

    path: Path
    offset: int
    end_offset: int
    reason: str


def is_segment_name(name: str) -> bool:
    """Whether a file of this name is a segment of Kafka 0.7."""
    return name.endswith(SUFFIX) and name[: -len(SUFFIX)].isascii() and name[: -len(SUFFIX)].isdigit()


def partition_of(directory_name: str) -> TopicPartition | None:
    """The partition that a directory's name stands for: `topic-0`, or `topic_0`; None when it is neither."""
    named = parse_partition(directory_name)
    if named is None:
        topic, _, partition = directory_name.rpartition("_")
        named = parse_partition(f"{topic}-{partition}")
    return named


def list_segments(files: Files, directory: Path) -> list[Segment]:
    """The segments in a directory, by position. Raises OSError."""
    found = [
        Segment(offset_of(name), files.file_size(directory / name), directory / name)
        for name in files.names(directory)
        if is_segment_name(name)
    ]
    return sorted(found)


class LogReader07:
    """Reads a partition's directory, and keeps in `damages` what it had to pass over."""

    def __init__(self, files: Files, directory: Path) -> None:
        """Raises OSError, or FileNotFoundError when there is no segment."""
        self._files = files
        self.segments = list_segments(files, directory)
        if not self.segments:
            raise FileNotFoundError(f"{directory} holds no {SUFFIX} file")
        self.damages: list[Damage] = []

    @property
    def start_offset(self) -> int:
        """The position of the first byte that is still there."""
        return self.segments[0].base_offset

    @property
    def end_offset(self) -> int:
        """The position behind the last byte."""
        return self.segments[-1].end_offset

    def missing(self) -> list[tuple[int, int]]:
        """Ranges of positions between the first segment and the last one that no file holds."""
        return [(a.end_offset, b.base_offset) for a, b in pairwise(self.segments) if a.end_offset < b.base_offset]

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Up to `max_bytes` from a position on, of one segment; the last entry may be cut off. As 0.7's fetch.

        Nothing at the end. ValueError below the start or behind the end.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise ValueError(f"offset {offset} is not within {self.start_offset} to {self.end_offset}")
        at = bisect_right(self.segments, offset, key=lambda each: each.base_offset) - 1
        segment = self.segments[at]
        size = min(max_bytes, segment.end_offset - offset)
        return self._files.open_readonly(segment.path).read(size, offset - segment.base_offset) if size > 0 else b""

    def entries(self, from_offset: int = 0) -> Iterator[tuple[int, Entry]]:
        """The position in the partition, and the entry there, from `from_offset` (where an entry begins) on.

        Memory is that of a chunk, or of one entry where that is larger. Checksums are compared; a file is left at the
        first entry that is damaged or cut off, with a line in `damages`.
        """
        for segment in self.segments:
            if segment.end_offset > from_offset:
                yield from self._entries(segment, max(0, from_offset - segment.base_offset))

    def messages(
        self, from_offset: int = 0, *, max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
    ) -> Iterator[tuple[int, int, list[memoryview]]]:
        """Where each entry begins and ends in the partition, and the payloads in it; otherwise as `entries`.

        A wrapper with a right checksum that does not open is passed over alone.
        """
        for offset, entry in self.entries(from_offset):
            end = offset + entry.size_bytes
            try:
                payloads = payloads_of(entry, max_bytes)
            except KafkaError as error:
                at = bisect_right(self.segments, offset, key=lambda each: each.base_offset) - 1
                self.damages.append(Damage(self.segments[at].path, offset, end, error.message))
                continue
            yield offset, end, payloads

    def _entries(self, segment: Segment, start: int) -> Iterator[tuple[int, Entry]]:
        file = self._files.open_readonly(segment.path)
        try:
            for position, entry in _read_entries(file, start, segment.size_bytes):
                yield segment.base_offset + position, entry
        except _Damaged as damage:
            at = segment.base_offset + damage.position
            self.damages.append(Damage(segment.path, at, segment.end_offset, damage.reason))


class _Damaged(Exception):
    """Where in a file the first thing lies that is no whole, right message."""

    def __init__(self, position: int, reason: str) -> None:
        self.position = position
        self.reason = reason


def _read_entries(file: LogFile, position: int, end: int) -> Iterator[tuple[int, Entry]]:
    """(position, entry) from `position` up to `end`; raises _Damaged at the first bad one."""
    chunk, start = b"", position
    while position < end:
        at = position - start
        if len(chunk) - at < LENGTH_BYTES:
            chunk, start, at = file.read(min(CHUNK_BYTES, end - position), position), position, 0
        try:
            if len(chunk) - at < LENGTH_BYTES:
                raise CorruptMessage(f"a message's length is cut off: {len(chunk) - at} bytes are left")
            size = entry_size(chunk, at)
            if size > end - position:
                raise CorruptMessage(
                    f"a message of {size - LENGTH_BYTES} bytes is cut off: {end - position} bytes are left"
                )
            if size > ENTRY_BYTES_MAX:
                raise CorruptMessage(f"a message of {size - LENGTH_BYTES} bytes, over the {ENTRY_BYTES_MAX} read here")
            if size > len(chunk) - at:
                chunk, start, at = file.read(max(size, min(CHUNK_BYTES, end - position)), position), position, 0
            entry = read_entry(chunk, at)
            if not entry.crc_is_valid:
                raise CorruptMessage(f"the payload does not match its CRC {entry.crc}")
        except CorruptMessage as error:
            raise _Damaged(position, error.message) from None
        yield position, entry._replace(position=position)
        position += size


class LogWriter07:
    """Appends to a partition's directory as a broker of Kafka 0.7 does."""

    def __init__(self, files: Files, directory: Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Opens or makes the directory; the last segment is cut behind its last good message."""
        self._files = files
        self._directory = directory
        self._segment_bytes = segment_bytes
        files.make_directory(directory)
        segments = list_segments(files, directory)
        self._base_offset = segments[-1].base_offset if segments else 0
        self._file = files.open(directory / offset_file(self._base_offset, SUFFIX), create=True)
        self._size = _good_bytes(self._file)
        if self._size < self._file.size():
            self._file.truncate(self._size)

    @property
    def next_offset(self) -> int:
        """The position that the next entry will begin at."""
        return self._base_offset + self._size

    def append(self, payloads: Iterable[Bytes], *, magic: int = 1, codec: Codec = Codec.NONE) -> int:
        """Write a set; the offset of its first entry. ValueError as `encode_set`."""
        return self.append_set(encode_set(payloads, magic=magic, codec=codec))

    def append_set(self, entries: Bytes) -> int:
        """Write a set of entries as it is; its offset. A segment that is over its size is left for a new one first."""
        if self._size > self._segment_bytes:
            self.flush()
            self._base_offset, self._size = self.next_offset, 0
            self._file = self._files.open(self._directory / offset_file(self._base_offset, SUFFIX), create=True)
        offset = self.next_offset
        self._file.write(entries, self._size)
        self._size += len(entries)
        return offset

    def flush(self) -> None:
        """Return once what was appended is on the disk."""
        self._file.sync()
        self._files.sync_directory(self._directory)


def _good_bytes(file: LogFile) -> int:
    """How far a file holds whole messages with right checksums."""
    good = 0
    try:
        for position, entry in _read_entries(file, 0, file.size()):
            good = position + entry.size_bytes
    except _Damaged:
        pass
    return good
