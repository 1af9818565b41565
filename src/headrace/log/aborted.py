"""The aborted transactions of a segment: from its index, and from the log where the index is not to be believed.

The index file has no checksum. When it is first read, it has to be whole entries in order, and the offset that each
ends with has to be an abort marker of its producer; of very many entries some are compared. What fails is made again as
after a crash: the producers' state where the segment begins, from a snapshot, brought up to the segment's end. An index
that lost its last entries, or is missing, cannot be told from one that never had them. Source: Kafka's
TransactionIndex.sanityCheck, LogSegment.recover, which compare less.
"""

import logging
from collections.abc import Iterator
from itertools import pairwise

from headrace.errors import CorruptMessage
from headrace.log.index_file import CorruptIndex
from headrace.log.names import LOG, is_segment_file, offset_of
from headrace.log.producer_snapshot import load_newest, offsets_among
from headrace.log.producer_state import Producers
from headrace.log.segment import Segment
from headrace.log.txn_index import AbortedTransaction
from headrace.records.control import read_marker
from headrace.records.header import BatchHeader

logger = logging.getLogger(__name__)
COMPARED_MAX = 1000
"""So many entries are compared with their markers: each costs a read."""


def aborted_transactions(segment: Segment) -> list[AbortedTransaction]:
    """Those whose marker is in a segment, oldest first. Raises OSError; CorruptMessage for damage in its log."""
    index = segment.txn_index
    if index.is_loaded:
        return index.entries(segment.files)
    try:
        entries = index.load(segment.files, segment.base_offset)
        for entry in entries[:: len(entries) // COMPARED_MAX + 1]:
            if not _is_marked(segment, entry):
                raise CorruptIndex(f"no transaction of producer {entry.producer_id} ends with {entry.last_offset}")
    except CorruptIndex as error:
        logger.warning("%s is made again: %s", index.path, error)
        index.replace(segment.files, list(_from_log(segment)))
    else:
        index.take(entries)
    return index.entries(segment.files)


def note_aborted(segment: Segment, transaction: AbortedTransaction) -> None:
    """Index a transaction whose abort marker was just written to a segment, or found there. Raises OSError."""
    aborted_transactions(segment)
    segment.txn_index.append(segment.files, transaction)


def replay(
    producers: Producers, segment: Segment, position: int, header: BatchHeader, now_ms: int
) -> AbortedTransaction | None:
    """Have the producers know a batch that the log holds already; the transaction that it aborts, if any."""
    if not header.is_control:
        producers.append(header, header.base_offset, now_ms)
        return None
    if not header.record_count:  # emptied by compaction: it ended a transaction that is gone
        return None
    marker = read_marker(segment.read_batch(position, header))
    return producers.end_transaction(
        header, header.base_offset, marker.coordinator_epoch, is_abort=marker.is_abort, now_ms=now_ms
    )


def _is_marked(segment: Segment, entry: AbortedTransaction) -> bool:
    try:
        found = segment.locate(entry.last_offset)
    except CorruptMessage:
        return True  # damage of the log, not of its index
    if found is None:
        return False
    position, header = found
    if not header.is_control or (header.last_offset, header.producer_id) != (entry.last_offset, entry.producer_id):
        return False
    return not header.record_count or read_marker(segment.read_batch(position, header)).is_abort


def _from_log(segment: Segment) -> Iterator[AbortedTransaction]:
    """The aborted transactions as the batches tell them, from the newest snapshot before the segment on."""
    files, directory = segment.files, segment.directory
    names = files.names(directory)
    bases = [offset_of(name) for name in names if is_segment_file(name, LOG)]
    producers = load_newest(files, directory, offsets_among(names), to_offset=segment.base_offset)
    for base, next_base in pairwise(bases):
        if producers.end_offset < next_base <= segment.base_offset:
            earlier = Segment(files, directory, base, segment.config, size=0, now_ms=segment.created_ms)
            earlier.size = earlier.file.size()
            _replay_segment(producers, earlier, producers.end_offset)
    yield from _replay_segment(producers, segment, segment.base_offset)


def _replay_segment(producers: Producers, segment: Segment, from_offset: int) -> list[AbortedTransaction]:
    found = []
    for position, header in segment.headers():
        if header.producer_id >= 0 and header.base_offset >= from_offset:
            aborted = replay(producers, segment, position, header, segment.created_ms)
            if aborted is not None:
                found.append(aborted)
    return found
