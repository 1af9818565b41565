"""Finds open transactions in a data directory that no broker has open, and reads its coordinators' topics.

    open transactions     from a partition's newest producer snapshot and the batches behind it
    __transaction_state   the last state of each transactional id
    __consumer_offsets    groups of the kinds that only newer coordinators know (KIP-848, KIP-932, KIP-1071)

Nothing is changed, not even a snapshot that cannot be read. Source: Kafka's ProducerStateManager, TransactionState,
CoordinatorRecordType.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from headrace.errors import KafkaError
from headrace.log.filenames import SNAPSHOT, offset_file
from headrace.log.files import Files
from headrace.log.producers.producer_snapshot import CorruptSnapshot, decode_snapshot, snapshot_offsets
from headrace.migrate.batches import batches
from headrace.migrate.refusal import MigrationRefused
from headrace.protocol import messages as m

UNDECIDED = {1: "Ongoing", 2: "PrepareCommit", 3: "PrepareAbort", 7: "PrepareEpochFence"}
NEWER_GROUPS = {3: "consumer", 11: "share", 17: "streams"}
"""Version of a group's metadata key -> the protocol that its members speak."""


def open_transactions(files: Files, directory: Path, *, was_clean: bool) -> dict[int, int]:
    """Producer id -> first offset of its open transaction in this partition.

    After a clean stop the newest snapshot is complete, and no segment is read.
    """
    found: dict[int, int] = {}
    known_to = 0
    for offset in reversed(snapshot_offsets(files, directory)):
        try:
            entries = decode_snapshot(files.read(directory / offset_file(offset, SNAPSHOT)))
        except CorruptSnapshot:
            continue
        found = {each.producer_id: each.open_since for each in entries if each.open_since >= 0}
        known_to = offset
        if was_clean:
            return found
        break
    for batch in batches(files, directory, known_to):
        header = batch.header
        if not header.is_transactional or header.base_offset < known_to or not header.record_count:
            continue  # compaction leaves batches without records, which begin nothing
        if header.is_control:
            found.pop(header.producer_id, None)
        else:
            found.setdefault(header.producer_id, header.base_offset)
    return found


def transactional_ids(files: Files, directories: Iterable[Path]) -> dict[str, str | None]:
    """Transactional id -> its undecided state, or None, from the partitions of __transaction_state.

    Raises MigrationRefused for an unreadable record, because its transaction could be undecided.
    """
    found: dict[str, str | None] = {}
    for directory in directories:
        for key, value in _last_values(files, directory).items():
            if key[:2] != b"\0\0" or value is None:
                continue
            try:
                name = m.TransactionLogKey.decode(0, key, 2)[0].transactional_id
                state = m.TransactionLogValue.decode(int.from_bytes(value[:2], "big"), value, 2)[0].transaction_status
            except KafkaError as error:
                raise MigrationRefused(f"{directory}: a transactional id's state cannot be read: {error}") from error
            found[name] = UNDECIDED.get(state)
    return found


def newer_groups(files: Files, directories: Iterable[Path]) -> dict[str, int]:
    """Protocol -> the number of its groups in the partitions of __consumer_offsets."""
    found: dict[str, int] = {}
    for directory in directories:
        for key, value in _last_values(files, directory, NEWER_GROUPS).items():
            protocol = NEWER_GROUPS.get(int.from_bytes(key[:2], "big", signed=True))
            if protocol is not None and value is not None:
                found[protocol] = found.get(protocol, 0) + 1
    return found


def _last_values(files: Files, directory: Path, versions: Iterable[int] = ()) -> dict[bytes, bytes | None]:
    """The last value of each key (of these versions; of all, when none are named), up to the first bad batch."""
    wanted = {version.to_bytes(2, "big") for version in versions}
    found: dict[bytes, bytes | None] = {}
    try:
        for batch in batches(files, directory):
            if batch.header.is_control:
                continue
            for record in batch.records():
                if record.key is not None and (not wanted or record.key[:2] in wanted):
                    found[record.key] = record.value
    except KafkaError:
        pass  # what opening the copy makes of it counts
    return found
