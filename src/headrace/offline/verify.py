"""Verify: checks the files of partitions for damage, and reports what a repair would lose. Changes nothing.

    for finding in verify(Path("data")): …        a data directory, a partition's directory, or one segment

It checks of every batch that the header is valid, the batch lies inside the file, the checksum is correct and the
offsets follow those before. Damage ends where the next good batch begins: where the length of the bad batch points to,
or else at the first one found. So a damage has a position, a size and the offsets that are lost with it:

    position   0          1000          1200                          size
               | good     | damaged     | good   offsets 57 and up
                  … 41      42 to 56 are lost

Indexes are compared with their segment; they can always be rebuilt. Source: Kafka's DumpLogSegments.
"""

from collections.abc import Iterator
from errno import ENOENT
from pathlib import Path
from typing import NamedTuple

from headrace.errors import KafkaError
from headrace.log.filenames import (
    CLEANED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    is_segment_file,
    offset_file,
    offset_of,
    parse_partition,
)
from headrace.log.files import Files, LocalFiles, LogFile
from headrace.log.producers.producer_snapshot import CorruptSnapshot, decode_snapshot
from headrace.log.segment import txn_index
from headrace.log.segment.batch_scan import records_in
from headrace.log.segment.index_file import RELATIVE_OFFSET_MAX, CorruptIndex, read_used
from headrace.log.segment.offset_index import OffsetIndex
from headrace.log.segment.preallocation import filled_to, may_be_room
from headrace.log.segment.time_index import TimeIndex
from headrace.records.any_format import any_crc_is_valid, read_any_header
from headrace.records.format2.header import HEADER_BYTES, MAGIC, BatchHeader

SEARCH_BYTES = 1 << 20
OFFSET_MAX = (1 << 63) - 1
SKIP_BYTES = 64 << 10
_LENGTH_AT = 8
_MAGIC_AT = 16


class Range(NamedTuple):
    """Bytes of a segment's file."""

    position: int
    size_bytes: int


class Damage(NamedTuple):
    """A damaged part of a segment. Offsets are inclusive; there may have been fewer records."""

    file: Path
    position: int
    size_bytes: int
    first_offset: int
    last_offset: int | None
    """The last lost offset; None at the end of the log, where it is unknown."""
    reason: str

    @property
    def loss(self) -> str:
        """A text that names the lost offsets."""
        if self.last_offset is None:
            return f"all records from offset {self.first_offset} on"
        if self.last_offset < self.first_offset:
            return "no record"
        count = self.last_offset - self.first_offset + 1
        return f"offsets {self.first_offset} to {self.last_offset}, at most {count} records"


class BadIndex(NamedTuple):
    """An index, or a producer snapshot, that does not match its segment; it can be rebuilt."""

    file: Path
    reason: str


class Leftover(NamedTuple):
    """A file of an interrupted cleaning. The next start of the broker removes it, or completes the cleaning."""

    file: Path


class CheckedSegment(NamedTuple):
    """A segment that was checked."""

    file: Path
    size_bytes: int
    """Without the space that was allocated in advance (`preallocate`)."""
    batches: int
    first_offset: int
    """Its base offset."""
    next_offset: int
    good: list[Range]
    """The undamaged ranges, joined."""
    damages: int


Finding = Damage | BadIndex | Leftover | CheckedSegment


def partition_directories(path: Path, files: Files) -> list[Path]:
    """The partition directories in a data directory, or `path` itself if it is one. Raises FileNotFoundError."""
    if not files.exists(path):
        raise FileNotFoundError(ENOENT, "no such file or directory", str(path))
    names = files.names(path)
    if any(is_segment_file(name, LOG) for name in names):
        return [path]
    return [path / name for name in names if parse_partition(name) is not None and files.is_directory(path / name)]


def verify(path: Path, *, deep: bool = False, files: Files | None = None) -> Iterator[Finding]:
    """The findings of a data directory, a partition's directory or a segment's `.log` file.

    `deep` decompresses every batch and walks its records. Raises OSError; ValueError for a file that is no segment.
    """
    files = files or LocalFiles()
    if files.exists(path) and not files.is_directory(path):
        if not is_segment_file(path.name, LOG):
            raise ValueError(f"{path} is not a segment: name a .log file, a partition's directory or a data directory")
        yield from verify_segment(files, path, end_offset=None, deep=deep)
        return
    for directory in partition_directories(path, files):
        yield from verify_partition(files, directory, deep=deep)


def verify_partition(files: Files, directory: Path, *, deep: bool = False) -> Iterator[Finding]:
    """The findings of one partition's directory: its segments, indexes and producer snapshots."""
    names = files.names(directory)
    bases = [offset_of(name) for name in names if is_segment_file(name, LOG)]
    for base, next_base in zip(bases, [*bases[1:], None], strict=True):
        yield from verify_segment(files, directory / offset_file(base, LOG), end_offset=next_base, deep=deep)
    for name in names:
        if name.endswith((CLEANED, SWAP)):
            yield Leftover(directory / name)
        elif is_segment_file(name, SNAPSHOT):
            try:
                decode_snapshot(files.read(directory / name))
            except CorruptSnapshot as error:
                yield BadIndex(directory / name, str(error))


def verify_segment(files: Files, path: Path, *, end_offset: int | None, deep: bool = False) -> Iterator[Finding]:
    """The findings of a segment and its indexes. `end_offset` is the base offset of the next segment, or None."""
    file = files.open_readonly(path)
    filled, base = file.size(), offset_of(path.name)
    if end_offset is None:  # a broker may write to it
        filled = filled_to(file, filled)
    size, allocated = file.size(), files.allocated_bytes(path)  # now: a batch that begins before `filled` is whole
    places, bad = _index_places(files, path, base)
    limit = base + RELATIVE_OFFSET_MAX + 1 if end_offset is None else end_offset
    position, expected, batches = 0, base, 0
    good: list[Range] = []
    damages: list[Damage] = []
    before = Range(0, 0), base, False  # the last good batch, the offset expected of it, and whether it had that offset
    while position < size:
        if position >= filled and may_be_room(allocated, position, size):
            size = position
            break
        checked = _check(file, position, size, expected, limit, deep)
        if isinstance(checked, str) and before[1] < expected and not before[2]:
            again = _check(file, position, size, before[1], limit, deep)
            if isinstance(again, BatchHeader) and not _is_odd(file, position, size, expected, end_offset, again):
                # This batch is good. The offsets that the batch before it claims are wrong.
                (at, length), first, _ = before
                reason = f"the batch claims to end with offset {expected - 1}, but offset {again.base_offset} follows"
                _add(damages, Damage(path, at, length, first, again.base_offset - 1, reason))
                _take_back(good, length)
                batches, expected, checked = batches - 1, first, again
        if isinstance(checked, BatchHeader):
            # Apache Kafka writes one entry for batches that were appended together, with the last offset of them all.
            if position in places and places.pop(position) < checked.base_offset:
                bad = bad or f"the entry for position {position} has the offset of another batch"
            _join(good, position, checked.size_bytes)
            batches += 1
            before = Range(position, checked.size_bytes), expected, checked.base_offset == expected
            position, expected = position + checked.size_bytes, checked.next_offset
            continue
        found = _resume(file, position, size, expected, limit)
        stop, next_offset = (size, end_offset) if found is None else (found[0], found[1].base_offset)
        last_offset = None if next_offset is None else next_offset - 1
        _add(damages, Damage(path, position, stop - position, expected, last_offset, checked))
        position = stop
        before = Range(stop, 0), expected, False
    yield from damages
    yield CheckedSegment(path, size, batches, base, expected, good, len(damages))
    if not damages:
        if places:
            bad = bad or f"no batch begins at position {min(places)}, which an entry points to"
        if bad:
            yield BadIndex(path.with_name(offset_file(base, INDEX)), bad)
        yield from _verify_other_indexes(files, path, base, expected)


def _add(damages: list[Damage], damage: Damage) -> None:
    """Add a damage, or merge it with the one that it adjoins."""
    last = damages[-1] if damages else None
    if last is not None and last.position + last.size_bytes == damage.position:
        damages[-1] = last._replace(size_bytes=last.size_bytes + damage.size_bytes, last_offset=damage.last_offset)
    else:
        damages.append(damage)


def _join(good: list[Range], position: int, size: int) -> None:
    if good and good[-1].position + good[-1].size_bytes == position:
        good[-1] = Range(good[-1].position, good[-1].size_bytes + size)
    else:
        good.append(Range(position, size))


def _take_back(good: list[Range], size: int) -> None:
    """Undo the last `_join`."""
    last = good.pop()
    if last.size_bytes > size:
        good.append(Range(last.position, last.size_bytes - size))


def _check(file: LogFile, position: int, size: int, expected: int, limit: int, deep: bool) -> BatchHeader | str:
    """The header of a good batch, or the reason why the batch is damaged."""
    try:
        header = read_any_header(file.read(min(HEADER_BYTES, size - position), position))
    except KafkaError as error:
        return error.message
    if header.size_bytes > size - position:
        return f"the batch of {header.size_bytes} bytes is cut off after {size - position} bytes"
    if not expected <= header.base_offset <= header.last_offset < limit:
        return f"the batch has offsets {header.base_offset} to {header.last_offset}, but offset {expected} is expected"
    batch = file.read(header.size_bytes, position)
    if not any_crc_is_valid(batch, 0, header):
        return "the batch does not match its CRC"
    if deep:
        try:
            records_in(batch, header)
        except KafkaError as error:
            return error.message
    return header


def _is_odd(
    file: LogFile, position: int, size: int, expected: int, end_offset: int | None, header: BatchHeader
) -> bool:
    """Whether the second of two batches with contradicting offsets, `header`, has a wrong base offset.

    No checksum covers a base offset. It is wrong if the next batch begins where `header` would end if it followed the
    first batch."""
    behind = position + header.size_bytes
    if behind == size:
        next_offset = end_offset
    else:
        try:
            next_offset = read_any_header(file.read(min(HEADER_BYTES, size - behind), behind)).base_offset
        except KafkaError:
            return False
    return next_offset == expected + header.last_offset - header.base_offset + 1


def _resume(file: LogFile, position: int, size: int, expected: int, limit: int) -> tuple[int, BatchHeader] | None:
    """The next good batch after a bad one; None if there is none."""
    try:
        named = position + read_any_header(file.read(min(HEADER_BYTES, size - position), position)).size_bytes
    except KafkaError:
        named = size
    if named < size:
        header = _check(file, named, size, expected, limit, deep=False)
        if isinstance(header, BatchHeader):
            return named, header
    at = position + 1
    while at < size:
        window = file.read(min(SEARCH_BYTES, size - at), at)
        for place in _candidates(window, expected, limit):
            header = _check(file, at + place, size, expected, limit, deep=False)
            if isinstance(header, BatchHeader):
                return at + place, header
        at += max(1, len(window) - HEADER_BYTES)
    return None


def _candidates(window: bytes, expected: int, limit: int) -> Iterator[int]:
    """The positions where a batch may begin: a plausible offset is followed by a length and a magic."""
    prefix = _common_prefix(expected, limit)
    place = window.find(prefix)
    while place >= 0 and place + _MAGIC_AT < len(window):
        if window[place + _MAGIC_AT] <= MAGIC and any(window[place + _LENGTH_AT : place + _MAGIC_AT]):
            yield place
            place += 1
        else:  # Skip zeros together: a damaged file may consist of nothing else.
            rest = window[place : place + SKIP_BYTES]
            zeros = len(rest) - len(rest.lstrip(b"\0"))
            place += max(1, zeros - _MAGIC_AT)
        place = window.find(prefix, place)


def _common_prefix(expected: int, limit: int) -> bytes:
    """The leading bytes that all offsets from `expected` to the limit, at most 2^31 later, share."""
    first = expected.to_bytes(8, "big")
    last = min(limit, expected + (1 << 31), OFFSET_MAX).to_bytes(8, "big")
    count = next((at for at in range(8) if first[at] != last[at]), 8)
    return first[:count]


def _index_places(files: Files, path: Path, base: int) -> tuple[dict[int, int], str]:
    """The offset index as position -> offset, and the reason why the index is bad, or an empty text."""
    index_path = path.with_name(offset_file(base, INDEX))
    if not files.exists(index_path):
        return {}, ""
    try:
        offsets, positions = OffsetIndex.read_columns(read_used(files, index_path), index_path.name)
    except CorruptIndex as error:
        return {}, str(error)
    return {position: base + offset for offset, position in zip(offsets, positions, strict=True)}, ""


def _verify_other_indexes(files: Files, path: Path, base: int, next_offset: int) -> Iterator[BadIndex]:
    time_path = path.with_name(offset_file(base, TIME_INDEX))
    if files.exists(time_path):
        try:
            _, offsets = TimeIndex.read_columns(read_used(files, time_path), time_path.name)
            if offsets and base + offsets[-1] >= next_offset:
                yield BadIndex(time_path, f"the last entry has offset {base + offsets[-1]}, past the segment's end")
        except CorruptIndex as error:
            yield BadIndex(time_path, str(error))
    txn_path = path.with_name(offset_file(base, TXN_INDEX))
    if files.exists(txn_path):
        try:
            entries = txn_index.parse_entries(files.read(txn_path), base, txn_path.name)
            if entries and entries[-1].last_offset >= next_offset:
                yield BadIndex(txn_path, f"the last entry has offset {entries[-1].last_offset}, past the segment's end")
        except CorruptIndex as error:
            yield BadIndex(txn_path, str(error))
