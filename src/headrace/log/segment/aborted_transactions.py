"""The aborted transactions of a segment, from its index, or from the log if the index is damaged.

The index file has no checksum, so the first read checks it. It must consist of whole entries in order, and each entry
must end at an abort marker of its producer. Of very many entries only some are compared with their markers. An index
that fails is rebuilt as after a crash: from the producer snapshot at the segment's beginning and the segment's batches.
An index that lost its last entries, or is missing, looks like one that never had them. Source: Kafka's
TransactionIndex.sanityCheck, LogSegment.recover, which compare less.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import pairwise
from operator import attrgetter

from headrace.errors import CorruptMessage
from headrace.log.filenames import LOG, is_segment_file, offset_file, offset_of
from headrace.log.producers.producer_snapshot import load_newest, offsets_among
from headrace.log.producers.producer_state import Producers
from headrace.log.segment.index_file import CorruptIndex
from headrace.log.segment.segment import Segment
from headrace.log.segment.txn_index import AbortedTransaction
from headrace.log.segment_list import SegmentList
from headrace.records.format2.control import Marker, read_marker
from headrace.records.format2.header import BatchHeader

logger = logging.getLogger(__name__)
_last_offset = attrgetter("last_offset")
COMPARED_MAX = 1000
"""The most entries that are compared with their markers. Each comparison costs a read."""


def aborted_transactions(segment: Segment) -> list[AbortedTransaction]:
    """The aborted transactions whose marker is in a segment, oldest first.

    Raises OSError, and CorruptMessage for damage in the segment's log file.
    """
    index = segment.txn_index
    if index.is_loaded:
        return index.entries(segment.files)
    try:
        entries = index.load(segment.files, segment.base_offset)
        for entry in entries[:: len(entries) // COMPARED_MAX + 1]:
            if not _is_marked(segment, entry):
                raise CorruptIndex(f"no transaction of producer {entry.producer_id} ends with {entry.last_offset}")
    except CorruptIndex as error:
        logger.warning("transaction index %s is rebuilt: %s", index.path, error)
        index.replace(segment.files, list(_from_log(segment)))
    else:
        index.take(entries)
    return index.entries(segment.files)


def aborted_between(segments: SegmentList, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
    """The aborted transactions with records from `from_offset` (inclusive) to `to_offset` (exclusive).

    Raises OSError, and CorruptMessage for damage in the log.
    """
    found = []
    for segment in segments[segments.number_of(from_offset) :]:
        known = aborted_transactions(segment)
        for number in range(bisect_left(known, from_offset, key=_last_offset), len(known)):
            transaction = known[number]
            if transaction.first_offset < to_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= to_offset:
                return found  # transactions that were aborted later began behind the range
    return found


def note_aborted(segment: Segment, transaction: AbortedTransaction) -> None:
    """Index a transaction whose abort marker was written to a segment, or found there.

    Raises OSError, and CorruptMessage for damage in the segment's log file.
    """
    aborted_transactions(segment)
    segment.txn_index.append(segment.files, transaction)


def replay(
    producers: Producers,
    segment: Segment,
    position: int,
    header: BatchHeader,
    now_ms: int,
    note: Callable[[AbortedTransaction], object],
) -> None:
    """Add a batch that the log has already to the producer state. Calls `note` with the transaction that it aborts.

    Raises OSError and CorruptMessage.
    """
    if not header.is_control:
        producers.append(header, header.base_offset, now_ms)
    elif header.record_count:
        marker = read_marker(segment.records.read_batch(position, header))
        end_transaction(producers, header, header.base_offset, marker, now_ms, note)


def end_transaction(
    producers: Producers,
    header: BatchHeader,
    base_offset: int,
    marker: Marker,
    now_ms: int,
    note: Callable[[AbortedTransaction], object],
) -> None:
    """End the transaction of a marker that was written, or found, at `base_offset`.

    Calls `note` first when the marker aborts a transaction. The transaction stays open when `note` raises an error, so
    that no read_committed consumer sees records of an aborted transaction that the index does not have. A marker that
    compaction emptied does not come here: its transaction's records are gone.
    """
    if marker.is_abort:
        aborted = producers.aborted_by(header.producer_id, base_offset)
        if aborted is not None:
            note(aborted)
    producers.end_transaction(header, base_offset, marker.coordinator_epoch, now_ms=now_ms)


def _is_marked(segment: Segment, entry: AbortedTransaction) -> bool:
    try:
        found = segment.locate(entry.last_offset)
    except CorruptMessage:
        return True  # the log is damaged, not its index
    if found is None:
        return False
    position, header = found
    if not header.is_control or (header.last_offset, header.producer_id) != (entry.last_offset, entry.producer_id):
        return False
    return not header.record_count or read_marker(segment.records.read_batch(position, header)).is_abort


def _from_log(segment: Segment) -> Iterator[AbortedTransaction]:
    """The aborted transactions of a segment, from its batches and the newest snapshot at or before its beginning."""
    files, directory = segment.files, segment.directory
    names = files.names(directory)
    bases = [offset_of(name) for name in names if is_segment_file(name, LOG)]
    producers = load_newest(files, directory, offsets_among(names), to_offset=segment.base_offset)
    for base, next_base in pairwise(bases):
        if producers.end_offset < next_base <= segment.base_offset:
            size = files.file_size(directory / offset_file(base, LOG))
            earlier = Segment(files, directory, base, segment.config, size=size, now_ms=segment.created_ms)
            _replay_segment(producers, earlier, producers.end_offset)
    yield from _replay_segment(producers, segment, segment.base_offset)


def _replay_segment(producers: Producers, segment: Segment, from_offset: int) -> list[AbortedTransaction]:
    found: list[AbortedTransaction] = []
    for position, header in segment.headers():
        if header.producer_id >= 0 and header.base_offset >= from_offset:
            replay(producers, segment, position, header, segment.created_ms, found.append)
    return found
