"""ListOffsets (key 2), versions 0-11.

0     time -> base offsets of segments last written by that time, newest first, up to `max_num_offsets`; still used by
      clients of 0.8 and 0.9, whose records have no timestamps
1     time -> first offset at or after it (an error for a topic that stores format 0); -1 the end, -2 the start
2     isolation level: with read_committed the end is the last stable offset
4     leader epoch in the request (an older one gets FENCED_LEADER_EPOCH) and in the response
5     OFFSET_NOT_AVAILABLE from a new leader whose high watermark lags (before: LEADER_NOT_AVAILABLE)
6     flexible
7     -3: the offset of the largest timestamp
8     -4: the earliest local offset, which without a remote tier is the log start offset
9     -5: the last offset of the remote tier; there is none
10    a time-out, for remote tiers
11    -6: the first offset that waits for the remote tier; there is none

A search by timestamp ends in one batch, which may have to be decompressed. The first few small searches run on the
event loop. A thread runs the others, one after the other, and the connection's later requests wait.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from enum import Enum

from headrace.broker.fair_threads import FairThreads
from headrace.broker.partitions.replica_manager import Partition
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import TOPICS, Demand, Demands
from headrace.errors import ErrorCode, InvalidRequest, KafkaError, StorageError, UnsupportedForMessageFormat
from headrace.limits import INLINE_TIME_SEARCHES_MAX, INT64_MAX, TIME_SEARCHES_AT_ONCE_MAX
from headrace.log.segment.time_lookup import TakesLong, TimeOffset, TimeSearch, segment_offsets
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.types import NO_EPOCH, TopicPartition

API_KEY = ApiKey.LIST_OFFSETS
VERSIONS = range(12)


DEMANDS: Demands = (
    Demand(
        Operation.DESCRIBE,
        ResourceType.TOPIC,
        entries=TOPICS._replace(concerns=lambda request: request.replica_id < 0),
    ),
    Demand(  # as OffsetForLeaderEpoch, so that a follower with CLUSTER_ACTION alone finds the offsets of its leader
        Operation.DESCRIBE,
        ResourceType.TOPIC,
        or_on_cluster=Operation.CLUSTER_ACTION,
        entries=TOPICS._replace(concerns=lambda request: request.replica_id >= 0),
    ),
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
NAMED_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The timestamps with a special meaning, and the version that added each."""
READ_COMMITTED = 1
TIMES_FROM, LEADER_EPOCH_FROM, NOT_AVAILABLE_FROM = 1, 4, 5


class FetchIsolation(Enum):
    """The end of the records that the sender may see."""

    HIGH_WATERMARK = "the high watermark"
    LAST_STABLE_OFFSET = "the last stable offset"
    LOG_END = "the log's end"


PARTITIONS_PER_TURN_MAX = 500
"""Partitions answered in one turn of the event loop."""

_Work = Generator[TimeSearch | None, TimeOffset | None, "m.ListOffsetsResponse"]
"""Yields the searches whose results it needs, and None where other work may have its turn."""

_searching = FairThreads(TIME_SEARCHES_AT_ONCE_MAX, "time-search")


def handle(ctx: RequestContext, request: m.ListOffsetsRequest) -> Answer:
    """Returns one offset per partition; in version 0, any number of offsets."""
    work = _answers(ctx, request, _isolation(request))
    try:
        step = next(work)
        for _ in range(INLINE_TIME_SEARCHES_MAX):
            if step is None:
                break
            try:
                found = step.run_if_small()
            except TakesLong:
                break
            except OSError as error:
                step = work.throw(error)
            else:
                step = work.send(found)
    except StopIteration as done:
        answer: m.ListOffsetsResponse = done.value
        return answer

    def failed(error: Exception) -> m.ListOffsetsResponse:
        return fail(request, error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR)

    return ctx.in_order(_answer_in_order(ctx, work, step), failed)


async def _answer_in_order(ctx: RequestContext, work: _Work, step: TimeSearch | None) -> Answer:
    """Completes the work; searches run on a thread."""
    try:
        while not ctx.is_abandoned:
            found = None
            if step is None:
                await asyncio.sleep(0)
            else:
                try:
                    found = await ctx.services.loop.run_in_executor(_searching.of(ctx.prefix), step.run)
                except (KafkaError, OSError) as error:
                    step = work.throw(error)
                    continue
            step = work.send(found)
    except StopIteration as done:
        answer: m.ListOffsetsResponse = done.value
        return answer
    return None


def _answers(ctx: RequestContext, request: m.ListOffsetsRequest, isolation: FetchIsolation) -> _Work:
    requested = Counter(
        TopicPartition(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions
    )
    response = m.ListOffsetsResponse()
    count = 0
    for topic in request.topics:
        answers = []
        for each in topic.partitions:
            count += 1
            if count % PARTITIONS_PER_TURN_MAX == 0:
                yield None
            try:
                key = TopicPartition(topic.name, each.partition_index)
                if requested[key] > 1:
                    raise InvalidRequest(f"{key} is asked for {requested[key]} times")
                answer = yield from _answer(ctx, key, each, isolation)
            except KafkaError as error:
                answer = _refusal(each.partition_index, error.code)
            answers.append(answer)
        response.topics.append(m.ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return response


def _isolation(request: m.ListOffsetsRequest) -> FetchIsolation:
    """Returns the end of the records that the sender asks for: a follower's is the log's end, that of a consumer or a
    debugging client (-2) is committed. Whether it is a follower is not asked, as in Apache Kafka: it learns an offset
    and no record."""
    if request.replica_id >= 0:
        return FetchIsolation.LOG_END
    return (
        FetchIsolation.LAST_STABLE_OFFSET
        if request.isolation_level == READ_COMMITTED
        else FetchIsolation.HIGH_WATERMARK
    )


def fail(request: m.ListOffsetsRequest, code: ErrorCode) -> m.ListOffsetsResponse:
    """Returns the same error for every partition."""
    return m.ListOffsetsResponse(
        topics=[
            m.ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name, partitions=[_refusal(each.partition_index, code) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _refusal(number: int, code: ErrorCode) -> m.ListOffsetsResponse.ListOffsetsPartitionResponse:
    return m.ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=number, error_code=code)


def _answer(
    ctx: RequestContext,
    key: TopicPartition,
    requested: m.ListOffsetsRequest.ListOffsetsPartition,
    isolation: FetchIsolation,
) -> Generator[TimeSearch | None, TimeOffset | None, m.ListOffsetsResponse.ListOffsetsPartitionResponse]:
    version, timestamp = ctx.api_version, requested.timestamp
    if version < TIMES_FROM:
        offsets = segment_offsets_before(ctx.services.replicas.leader(*key), timestamp, ctx.services.now_ms())
        return m.ListOffsetsResponse.ListOffsetsPartitionResponse(
            partition_index=key.partition, old_style_offsets=offsets[: max(0, requested.max_num_offsets)]
        )
    if timestamp < 0 and version < NAMED_SINCE.get(timestamp, VERSIONS.stop):
        raise KafkaError(
            f"ListOffsets version {version} does not support timestamp {timestamp}", ErrorCode.UNSUPPORTED_VERSION
        )
    partition = ctx.services.replicas.leader(*key)
    partition.check_leader_epoch(requested.current_leader_epoch)
    try:
        answer = yield from _look_up(partition, timestamp, isolation)
    except KafkaError as error:
        if error.code is ErrorCode.OFFSET_NOT_AVAILABLE and version < NOT_AVAILABLE_FROM:
            error.code = ErrorCode.LEADER_NOT_AVAILABLE
        raise
    answer.partition_index = key.partition
    if version < LEADER_EPOCH_FROM:
        answer.leader_epoch = NO_EPOCH
    return answer


def segment_offsets_before(partition: Partition, timestamp_ms: int, now_ms: int) -> list[int]:
    """Returns the offsets for version 0, newest first. The high watermark replaces all offsets above it."""
    log = partition.log
    if timestamp_ms == EARLIEST:
        return [log.log_start_offset]
    try:
        offsets = segment_offsets(
            log.segments,
            INT64_MAX if timestamp_ms == LATEST else timestamp_ms,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            now_ms=now_ms,
        )
    except OSError as error:
        raise StorageError(f"the segments of {partition.key} could not be read: {error}") from error
    readable = [each for each in offsets if each <= partition.high_watermark]
    return readable if len(readable) == len(offsets) else [partition.high_watermark, *readable]


def _end(partition: Partition, isolation: FetchIsolation) -> int:
    match isolation:
        case FetchIsolation.LOG_END:
            return partition.log.log_end_offset
        case FetchIsolation.LAST_STABLE_OFFSET:
            return partition.last_stable_offset
        case FetchIsolation.HIGH_WATERMARK:
            return partition.high_watermark


def _must_have_caught_up(partition: Partition, isolation: FetchIsolation) -> None:
    """Raises OFFSET_NOT_AVAILABLE while a new leader does not know how much of its log is committed.

    An end offset below the offsets that consumers have read would make them read records again (KIP-207).
    """
    if isolation is not FetchIsolation.LOG_END and partition.state.epoch_start_offset > partition.high_watermark:
        raise KafkaError(
            f"the high watermark of {partition.key} is below the start of the leader epoch; try again",
            ErrorCode.OFFSET_NOT_AVAILABLE,
        )


def _look_up(
    partition: Partition, timestamp_ms: int, isolation: FetchIsolation
) -> Generator[TimeSearch | None, TimeOffset | None, m.ListOffsetsResponse.ListOffsetsPartitionResponse]:
    answer = m.ListOffsetsResponse.ListOffsetsPartitionResponse()
    log = partition.log
    end_offset = _end(partition, isolation)
    if timestamp_ms == LATEST:
        _must_have_caught_up(partition, isolation)
        answer.offset, answer.leader_epoch = end_offset, partition.leader_epoch
    elif timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = log.log_start_offset
        # The leader's epoch begins at the log end offset, although this log notes it with the first batch.
        is_empty = answer.offset == log.log_end_offset
        answer.leader_epoch = partition.leader_epoch if is_empty else log.leader_epochs.epoch_for(answer.offset)
    elif timestamp_ms not in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        if log.config.magic == 0:
            raise UnsupportedForMessageFormat(f"{partition.key} stores message format 0, which has no timestamps")
        if timestamp_ms == MAX_TIMESTAMP:
            found = yield from _first_found(partition, log.searches_for_largest_timestamp)
        else:
            found = yield from _first_found(partition, lambda: log.searches_for_time(timestamp_ms, end_offset))
        if found is None or found.offset >= end_offset:
            _must_have_caught_up(partition, isolation)
        if found is not None and (timestamp_ms == MAX_TIMESTAMP or found.offset < end_offset):
            answer.offset, answer.timestamp, answer.leader_epoch = found
    return answer


def _first_found(
    partition: Partition, searches: Callable[[], Iterator[TimeSearch | None]]
) -> Generator[TimeSearch | None, TimeOffset | None, TimeOffset | None]:
    """Returns the result of the first successful search. Raises `StorageError`, `CorruptMessage`."""
    for is_first_try in (True, False):
        try:
            for search in searches():
                found = yield search
                if found is not None:
                    return found
            break
        except OSError as error:
            if not (is_first_try and isinstance(error, FileNotFoundError)):  # a segment was deleted between two turns
                raise StorageError(f"{partition.key} could not be searched: {error}") from error
    return None
