"""Producer snapshots: files with the producer state at one offset, `%020d.snapshot`, named by that end offset.

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

A snapshot is taken at every roll and at a clean close. A start reads the newest one and replays the batches after it.
Of a producer's last five batches, a snapshot keeps only the newest. Source: Kafka's ProducerSnapshot.json,
ProducerStateManager.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from struct import error as StructError

from headrace.log.filenames import SNAPSHOT, offset_file, offset_of
from headrace.log.files import Files, LogFile
from headrace.log.producers.producer_state import KeptBatch, ProducerEntry, Producers
from headrace.records.codecs.crc import crc32c

logger = logging.getLogger(__name__)
VERSION = 1
PREFIX = Struct(">hIi")
ENTRY = Struct(">qhiqiqiq")
CRC_END = 6


class CorruptSnapshot(Exception):
    """A snapshot has an unknown version, a wrong length, or a wrong CRC."""


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
    """The entries in a snapshot file's content. Raises CorruptSnapshot."""
    try:
        version, crc, count = PREFIX.unpack_from(data)
    except StructError as error:
        raise CorruptSnapshot(f"the snapshot has only {len(data)} bytes") from error
    if version != VERSION:
        raise CorruptSnapshot(f"version {version} is not {VERSION}")
    if crc != crc32c(data[CRC_END:]):
        raise CorruptSnapshot("the snapshot does not match its CRC")
    if len(data) != PREFIX.size + count * ENTRY.size:
        raise CorruptSnapshot(f"the snapshot claims {count} entries, but has {len(data)} bytes")
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
    entry = ProducerEntry(producer_id, epoch, timestamp_ms, coordinator_epoch, open_since)
    if last_offset >= 0:
        entry.batches.append(KeptBatch(last_sequence, last_offset, offset_delta, timestamp_ms))
    return entry


def snapshot_offsets(files: Files, directory: Path) -> list[int]:
    """The offsets of the snapshots in a partition's directory, ascending. Raises OSError."""
    return offsets_among(files.names(directory))


def offsets_among(names: Iterable[str]) -> list[int]:
    """The offsets of the snapshots among a directory's names, in the order of `names`."""
    return [offset_of(name) for name in names if name.endswith(SNAPSHOT)]


def write_snapshot(files: Files, directory: Path, producers: Producers) -> tuple[str, LogFile]:
    """Write the snapshot at `producers.end_offset` without a sync. Returns its path and the file. Raises OSError.

    A new snapshot is written directly, as Apache Kafka does: a crash may leave a part of it, which its CRC tells, and a
    start takes the snapshot before, as if it did not exist. An existing one is replaced as a whole.
    """
    path, data = f"{directory}/{producers.end_offset:020d}{SNAPSHOT}", encode_snapshot(producers)
    try:
        file = files.open_new(path)
    except FileExistsError:
        files.replace(path, data, sync=False)
        return path, files.open_readonly(path)
    try:
        file.write(data, 0)
    except OSError:
        with suppress(OSError):
            files.remove(path)
        raise
    return path, file


def load_newest(files: Files, directory: Path, snapshots: Sequence[int], *, to_offset: int) -> Producers:
    """The producers in the newest valid snapshot at or below `to_offset` (inclusive).

    `snapshots` are offsets, ascending. Returns no producers, with end offset 0, when there is no such snapshot. Removes
    a corrupt snapshot. Raises OSError.
    """
    for offset in reversed(snapshots):
        if offset > to_offset:
            continue
        path = directory / offset_file(offset, SNAPSHOT)
        try:
            entries = decode_snapshot(files.read(path))
        except CorruptSnapshot as error:
            logger.warning("producer snapshot %s is corrupt and is ignored: %s", path, error)
            files.remove(path)
            continue
        producers = Producers(offset)
        for entry in entries:
            producers.restore(entry)
        return producers
    return Producers()
