"""Acknowledgement: a member accepts, releases, rejects or renews records that it has acquired.

One request's acknowledgements of a partition take effect together or not at all. The messages are Apache Kafka's, which
clients and their users know. Source: Kafka's SharePartition.acknowledge; KIP-932, KIP-1222.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from headrace.coordinators.share_partitions.records import (
    ACQUIRED,
    NO_MEMBER,
    InFlightBatch,
    RecordRun,
    RecordState,
    RecordTransition,
)
from headrace.coordinators.share_partitions.share_partition import SharePartition
from headrace.errors import ErrorCode, InvalidRequest, KafkaError

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
_STATES = {
    GAP: RecordState.ARCHIVED,
    ACCEPT: RecordState.ACKNOWLEDGED,
    RELEASE: RecordState.AVAILABLE,
    REJECT: RecordState.ARCHIVED,
}


class Acknowledged(NamedTuple):
    """Acknowledged records `first` to `last` (inclusive): one type for all, or one for each."""

    first: int
    last: int
    types: Sequence[int]


def acknowledge(
    partition: SharePartition, member: str, acknowledged: Sequence[Acknowledged], now_ms: int
) -> RecordTransition | None:
    """Begins what a member acknowledges; returns the transition to wait for, None when there is nothing to store.

    Raises INVALID_RECORD_STATE and INVALID_REQUEST, and then changes nothing but renewed locks.
    """
    transition = RecordTransition()
    try:
        for each in acknowledged:
            if each.last >= partition.start_offset:
                _acknowledge(partition, member, each, transition, now_ms)
    except KafkaError:
        partition.undo(transition, now_ms)
        raise
    partition.begin_write(transition)
    return transition if transition.runs else None


def _acknowledge(
    partition: SharePartition, member: str, acknowledged: Acknowledged, transition: RecordTransition, now_ms: int
) -> None:
    for batch in _batches(partition, acknowledged.first, acknowledged.last):
        if batch.last < partition.start_offset:
            continue
        if not batch.is_split:
            _check_batch(batch, member)
            if (
                len(acknowledged.types) > 1
                or batch.first < partition.start_offset
                or not batch.lies_in(acknowledged.first, acknowledged.last)
            ):
                batch.split()
        for first, last, kind in _ranges(acknowledged, batch, partition.start_offset):
            for run in batch.within(first, last):
                _check(run, member)
                part = batch.only(run, first, last)
                if kind == RENEW:
                    _renew(partition, part, now_ms)
                else:
                    transition.begin(part, _STATES[kind], partition.limits.delivery_count_max)
                    partition.finished(part)


def _batches(partition: SharePartition, first: int, last: int) -> Sequence[InFlightBatch]:
    """The batches in flight that hold the acknowledged records. Raises for records that are not in flight."""
    in_flight = partition.in_flight
    floor = in_flight.floor(first)
    if floor is None and first < partition.start_offset <= last:
        floor = in_flight.floor(partition.start_offset)
    if floor is None:
        raise _invalid_state("Batch record not found. The request batch offsets are not found in the cache.")
    found = in_flight.beginning_in(floor.first, last)
    if found[-1].last < first:
        raise InvalidRequest("Batch record not found. The first offset in request is past acquired records.")
    if last > found[-1].last:
        raise InvalidRequest("Batch record not found. The last offset in request is past acquired records.")
    return list(found)


def _ranges(acknowledged: Acknowledged, batch: InFlightBatch, start_offset: int) -> Iterator[tuple[int, int, int]]:
    """The acknowledged records of a batch from the start offset on, as ranges of one type."""
    first, last = max(acknowledged.first, batch.first, start_offset), min(acknowledged.last, batch.last)
    types = acknowledged.types
    if len(types) == 1:
        yield first, last, types[0]
        return
    for kind, same in groupby(types[first - acknowledged.first : last - acknowledged.first + 1]):
        count = sum(1 for _ in same)
        yield first, first + count - 1, kind
        first += count


def _check_batch(batch: InFlightBatch, member: str) -> None:
    run = batch.runs[0]
    if run.member == NO_MEMBER:
        raise _invalid_state("The batch cannot be acknowledged. The batch is not in the acquired state.")
    if run.member != member:
        raise _invalid_state("Member is not the owner of batch record")


def _check(run: RecordRun, member: str) -> None:
    if run.state is not ACQUIRED:
        raise _invalid_state("The offset cannot be acknowledged. The offset is not acquired.")
    if run.member != member:
        raise _invalid_state("Member is not the owner of offset")


def _renew(partition: SharePartition, run: RecordRun, now_ms: int) -> None:
    if not partition.limits.can_renew:
        raise _invalid_state("Renewing acquisition locks is not enabled for the group.")
    partition.lock(run, now_ms + partition.limits.lock_ms)


def _invalid_state(message: str) -> KafkaError:
    return KafkaError(message, ErrorCode.INVALID_RECORD_STATE)
