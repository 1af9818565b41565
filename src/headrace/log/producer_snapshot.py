"""The producers of a partition at one offset, as a file: `%020d.snapshot`, named by the offset after the last known.

    version              int16 = 1
    crc                  uint32     CRC-32C of everything behind it
    count                int32
    per producer:
        producer_id              int64
        epoch                    int16
        last_sequence            int32     of the newest batch; -1 for none
        last_offset              int64     of the newest batch; -1 for none
        offset_delta             int32     last minus first offset of the newest batch
        timestamp_ms             int64     when the producer was last seen
        coordinator_epoch        int32     of the last transaction marker; -1 for none
        current_txn_first_offset int64     -1 when no transaction is open

Taken at every roll and at a clean close. At a start the newest one is read, and the batches behind it are gone
through; of the last five batches only the newest survives. Source: Kafka's ProducerSnapshot.json,
ProducerStateManager.
"""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from struct import Struct
from struct import error as StructError

from headrace.log.files import Files
from headrace.log.names import SNAPSHOT, offset_file, offset_of
from headrace.log.producer_state import KeptBatch, ProducerEntry, Producers
from headrace.records.crc import crc32c

logger = logging.getLogger(__name__)
VERSION = 1
PREFIX = Struct(">hIi")
ENTRY = Struct(">qhiqiqiq")
CRC_END = 6


class CorruptSnapshot(Exception):
    """A snapshot with another version, a wrong length, or a wrong CRC."""


def encode_snapshot(producers: Producers) -> bytes:
    """The content of a snapshot file."""
    body = bytearray(len(producers.entries).to_bytes(4, "big"))
    for entry in producers.entries.values():
        newest = entry.batches[-1] if entry.batches else KeptBatch(-1, -1, 0, -1)
        body += ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            newest.last_sequence,
            newest.last_offset,
            newest.offset_delta,
            entry.seen_ms,
            entry.coordinator_epoch,
            entry.open_since,
        )
    return VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """The entries of a snapshot file. Raises CorruptSnapshot."""
    try:
        version, crc, count = PREFIX.unpack_from(data)
    except StructError as error:
        raise CorruptSnapshot(f"{len(data)} bytes are too short for a snapshot") from error
    if version != VERSION:
        raise CorruptSnapshot(f"version {version} is not {VERSION}")
    if crc != crc32c(data[CRC_END:]):
        raise CorruptSnapshot("the CRC does not match")
    if len(data) != PREFIX.size + count * ENTRY.size:
        raise CorruptSnapshot(f"{count} entries announced, {len(data)} bytes found")
    return [_entry(*fields) for fields in ENTRY.iter_unpack(data[PREFIX.size :])]


def _entry(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp_ms: int,
    coordinator_epoch: int,
    open_since: int,
) -> ProducerEntry:
    entry = ProducerEntry(producer_id, epoch, timestamp_ms)
    entry.coordinator_epoch = coordinator_epoch
    entry.open_since = open_since
    if last_offset >= 0:
        entry.batches.append(KeptBatch(last_sequence, last_offset, offset_delta, timestamp_ms))
    return entry


def snapshot_offsets(files: Files, directory: Path) -> list[int]:
    """The offsets of the snapshots in a partition's directory, ascending."""
    return offsets_among(files.names(directory))


def offsets_among(names: Iterable[str]) -> list[int]:
    """The offsets of the snapshots among a directory's names, ascending as they are."""
    return [offset_of(name) for name in names if name.endswith(SNAPSHOT)]


def write_snapshot(files: Files, directory: Path, producers: Producers) -> Path:
    """Write the snapshot of `producers.end_offset`, not synced."""
    path = directory / offset_file(producers.end_offset, SNAPSHOT)
    files.replace(path, encode_snapshot(producers), sync=False)
    return path


def load_newest(files: Files, directory: Path, snapshots: Sequence[int], *, to_offset: int) -> Producers:
    """The producers at the newest good one of some snapshots up to an offset (inclusive); none, at 0, when there is no
    such snapshot. A bad snapshot is removed."""
    for offset in reversed(snapshots):
        if offset > to_offset:
            continue
        path = directory / offset_file(offset, SNAPSHOT)
        try:
            entries = decode_snapshot(files.read(path))
        except CorruptSnapshot as error:
            logger.warning("producer snapshot %s is not used: %s", path, error)
            files.remove(path)
            continue
        producers = Producers(offset)
        for entry in entries:
            producers.restore(entry)
        return producers
    return Producers()
