"""Reads the metadata records of a KRaft cluster: its newest snapshot, and the log after it.

    __cluster_metadata-0/00000000000000000042-0000000003.checkpoint   a snapshot: all that offsets below 42 add up to
    __cluster_metadata-0/00000000000000000000.log                     segments, as of any partition; never compacted

    snapshot   batch of a header record | batches | batch of a footer record     without the footer it is not whole
    value      frame version uvarint = 1 | kind uvarint | version uvarint | the record

Records between BeginTransaction and EndTransaction count together or, without the end, not at all. After a crash the
end of the last segment may be torn; it is left out and reported. Damage anywhere else is refused, because the records
after it are unknown. Source: Kafka's KafkaMetadataLog, RecordsSnapshotReader, MetadataRecordSerde;
KIP-630, KIP-631, KIP-868.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headrace.errors import KafkaError
from headrace.log.filenames import LOG, is_segment_file, offset_of
from headrace.log.files import Files
from headrace.migrate.refusal import MigrationRefused
from headrace.protocol import messages as m
from headrace.protocol.codec.wire import read_uvarint
from headrace.records.format2.batch import HEADER_BYTES, BatchHeader, crc_is_valid, decode_records, read_header

DIRECTORY = "__cluster_metadata-0"
QUORUM_STATE = "quorum-state"
SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")

FRAME_VERSION = 1
BEGIN_TRANSACTION, END_TRANSACTION, ABORT_TRANSACTION = 23, 24, 25
SNAPSHOT_HEADER, SNAPSHOT_FOOTER, VOTERS = 3, 4, 6  # kinds of control records

_MAY_BE_BATCH = re.compile(rb"(?=\0{2}.{14}\x02)", re.DOTALL)  # an offset below 2^48, and the magic


class MetadataRecord(NamedTuple):
    """One record: its kind (Kafka's apiKey), its version, and its bytes."""

    kind: int
    version: int
    body: memoryview


class MetadataLog(NamedTuple):
    """The contents of a metadata log."""

    records: list[MetadataRecord]
    epoch: int  # of the controller that wrote last
    end_offset: int
    ignored_bytes: int  # a torn end
    voters: int | None  # how many controllers there are; None where it is not said


def read_metadata_log(files: Files, directory: Path) -> MetadataLog:
    """Read a `__cluster_metadata-0`. Raises MigrationRefused if it is incomplete; OSError."""
    names = files.names(directory)
    snapshots = sorted(name for name in names if SNAPSHOT.fullmatch(name))
    segments = [name for name in names if is_segment_file(name, LOG)]
    if not snapshots and not segments:
        raise MigrationRefused(f"{directory} has neither a snapshot nor a segment")
    reading = _Reading(directory)
    if snapshots:
        found = SNAPSHOT.fullmatch(snapshots[-1])
        assert found is not None
        reading.epoch = int(found[2])
        reading.snapshot(files, snapshots[-1])
        reading.end_offset = int(found[1])
    reading.segments(files, segments)
    if reading.voters is None and QUORUM_STATE in names:
        reading.voters = _voters_of(files.read(directory / QUORUM_STATE))
    return MetadataLog(reading.records, reading.epoch, reading.end_offset, reading.ignored_bytes, reading.voters)


class _Reading:
    """A directory while it is read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: list[MetadataRecord] | None = None  # records of a transaction that has not ended
        self.records: list[MetadataRecord] = []
        self.epoch = 0
        self.end_offset = 0
        self.ignored_bytes = 0
        self.voters: int | None = None

    def snapshot(self, files: Files, name: str) -> None:
        """A whole snapshot, from its header to its footer."""
        kinds = []
        size = files.file_size(self._directory / name)
        position = 0
        for position, header, batch in _batches(files, self._directory / name):
            kinds += self._take(header, batch, name)
            position += header.size_bytes
        if position != size or kinds[:1] != [SNAPSHOT_HEADER] or kinds[-1:] != [SNAPSHOT_FOOTER]:
            raise MigrationRefused(
                f"the snapshot {self._directory / name} is incomplete: it is valid up to byte {position} of {size}"
            )
        self._open = None

    def segments(self, files: Files, names: list[str]) -> None:
        """The batches from `end_offset` on."""
        starts = [offset_of(name) for name in names]
        if starts and starts[0] > self.end_offset:
            raise MigrationRefused(f"{self._directory}: offsets {self.end_offset} to {starts[0] - 1} are missing")
        ends: list[int | None] = [*starts[1:], None]
        for name, next_start in zip(names, ends, strict=False):
            if next_start is not None and next_start <= self.end_offset:
                continue
            path = self._directory / name
            position, expected = 0, offset_of(name)
            for position, header, batch in _batches(files, path):
                if header.base_offset != expected:
                    break
                if header.base_offset >= self.end_offset:
                    self._take(header, batch, name)
                    self.epoch = max(self.epoch, header.leader_epoch)
                    self.end_offset = header.next_offset
                expected = header.next_offset
                position += header.size_bytes
            if next_start is None:
                self.ignored_bytes = files.file_size(path) - position
                if self.ignored_bytes and _has_batch_behind(files, path, position, expected):
                    raise MigrationRefused(f"{path} is damaged at byte {position}, before valid batches")
            elif expected != next_start:
                raise MigrationRefused(
                    f"{path} is damaged at byte {position}: it should reach offset {next_start} and ends at {expected}"
                )

    def _take(self, header: BatchHeader, batch: bytes, name: str) -> list[int]:
        """Note a batch's records; the kinds of its control records, or -1 for each batch of others."""
        try:
            records = decode_records(batch, header)
            if header.is_control:
                return [self._control(each.key or b"", each.value or b"") for each in records]
            for each in records:
                self._record(memoryview(each.value or b""))
        except (KafkaError, IndexError) as error:
            where = f"{self._directory / name}, offset {header.base_offset}"
            raise MigrationRefused(f"{where}: the records cannot be read: {error}") from error
        return [-1]

    def _control(self, key: bytes, value: bytes) -> int:
        kind = int.from_bytes(key[2:4], "big")
        if kind == VOTERS:
            self.voters = len(m.VotersRecord.decode(0, value)[0].voters)
        return kind

    def _record(self, value: memoryview) -> None:
        frame, pos = read_uvarint(value, 0)
        if frame != FRAME_VERSION:
            raise KafkaError(f"frame version {frame} is not {FRAME_VERSION}")
        kind, pos = read_uvarint(value, pos)
        version, pos = read_uvarint(value, pos)
        if kind == BEGIN_TRANSACTION:
            self._open = []
        elif kind in (END_TRANSACTION, ABORT_TRANSACTION):
            if kind == END_TRANSACTION:
                self.records += self._open or ()
            self._open = None
        else:
            (self.records if self._open is None else self._open).append(MetadataRecord(kind, version, value[pos:]))


def _batches(files: Files, path: Path) -> Iterator[tuple[int, BatchHeader, bytes]]:
    """(position, header, whole batch) up to the first that is torn or damaged."""
    file = files.open_readonly(path)
    size = file.size()
    position = 0
    while position + HEADER_BYTES <= size:
        try:
            header = read_header(file.read(HEADER_BYTES, position))
        except KafkaError:
            return
        if header.size_bytes > size - position:
            return
        batch = file.read(header.size_bytes, position)
        if not crc_is_valid(batch, 0, header):
            return
        yield position, header, batch
        position += header.size_bytes


def _has_batch_behind(files: Files, path: Path, position: int, expected: int) -> bool:
    """Whether a good batch of a later offset is at or after a bad position: this is damage, not a torn end."""
    file = files.open_readonly(path)
    tail = file.read(file.size() - position, position)
    for found in _MAY_BE_BATCH.finditer(tail):
        try:
            header = read_header(tail, found.start())
        except KafkaError:
            continue
        is_whole = header.size_bytes <= len(tail) - found.start()
        if is_whole and header.base_offset >= expected and crc_is_valid(tail, found.start(), header):
            return True
    return False


def _voters_of(data: bytes) -> int | None:
    """The number of voters in a `quorum-state`; a dynamic quorum has none."""
    try:
        voters = json.loads(data).get("currentVoters")
    except (ValueError, AttributeError):
        return None
    return len(voters) if isinstance(voters, list) and voters else None
