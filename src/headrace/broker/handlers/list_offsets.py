"""ListOffsets (key 2), versions 0-11.

0     time -> where segments begin that were last written to by then, newest first, up to `max_num_offsets`; still asked
      by clients of 0.8 and 0.9, whose records have no times
1     time -> first offset at or after it (no answer for a topic that stores format 0); -1 the end, -2 the start
2     isolation level: with read_committed the end is the last stable offset
4     leader epoch in the question (fenced when it is old) and in the answer
5     OFFSET_NOT_AVAILABLE from a new leader whose high watermark lags (before: LEADER_NOT_AVAILABLE)
6     flexible
7     -3: the offset of the largest timestamp
8     -4: the earliest local offset, which without a remote tier is the log start offset
9     -5: the last offset of the remote tier: there is none
10    a time-out, for remote tiers
11    -6: the first offset that waits for the remote tier: there is none
"""

from __future__ import annotations

from collections import Counter
from enum import Enum

from headrace.broker.cluster_action import must_be_a_broker
from headrace.broker.context import RequestContext
from headrace.broker.replica_manager import Partition
from headrace.errors import ErrorCode, InvalidRequest, KafkaError, StorageError, UnsupportedForMessageFormat
from headrace.limits import INT64_MAX
from headrace.log.time_lookup import segment_offsets
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.types import NO_EPOCH, TopicPartition

API_KEY = ApiKey.LIST_OFFSETS
VERSIONS = range(12)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
NAMED_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The names among the timestamps, and the version that each came with."""
READ_COMMITTED = 1
TIMES_FROM, LEADER_EPOCH_FROM, NOT_AVAILABLE_FROM = 1, 4, 5


class Reach(Enum):
    """Up to where the asker may know of records."""

    COMMITTED = "the high watermark"
    STABLE = "the last stable offset"
    LOG_END = "the log's end"


def handle(ctx: RequestContext, request: m.ListOffsetsRequest) -> m.ListOffsetsResponse:
    """One offset per partition; before version 1 any number."""
    asked = Counter(
        TopicPartition(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions
    )
    response = m.ListOffsetsResponse()
    reach = _reach(ctx, request)
    for topic in request.topics:
        answers = []
        for each in topic.partitions:
            try:
                key = TopicPartition(topic.name, each.partition_index)
                if asked[key] > 1 and ctx.api_version >= TIMES_FROM:
                    raise InvalidRequest(f"{key} is asked for {asked[key]} times")
                answer = _answer(ctx, key, each, reach)
            except KafkaError as error:
                answer = _refusal(each.partition_index, error.code)
            answers.append(answer)
        response.topics.append(m.ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return response


def _reach(ctx: RequestContext, request: m.ListOffsetsRequest) -> Reach:
    """A follower may know of all; a consumer, or who only looks (-2), of what is committed. Raises
    CLUSTER_AUTHORIZATION_FAILED for who may not ask as a follower."""
    if request.replica_id >= 0 and not ctx.broker.is_alone:
        must_be_a_broker(ctx)
        return Reach.LOG_END
    return Reach.STABLE if request.isolation_level == READ_COMMITTED else Reach.COMMITTED


def fail(request: m.ListOffsetsRequest, code: ErrorCode) -> m.ListOffsetsResponse:
    """The same refusal for every partition."""
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
    ctx: RequestContext, key: TopicPartition, asked: m.ListOffsetsRequest.ListOffsetsPartition, reach: Reach
) -> m.ListOffsetsResponse.ListOffsetsPartitionResponse:
    version, timestamp = ctx.api_version, asked.timestamp
    if version < TIMES_FROM:
        offsets = _before_times(ctx.broker.replicas.leader(*key), timestamp, ctx.broker.now_ms())
        return m.ListOffsetsResponse.ListOffsetsPartitionResponse(
            partition_index=key.partition, old_style_offsets=offsets[: max(0, asked.max_num_offsets)]
        )
    if timestamp < 0 and version < NAMED_SINCE.get(timestamp, VERSIONS.stop):
        raise KafkaError(f"version {version} has no timestamp {timestamp}", ErrorCode.UNSUPPORTED_VERSION)
    partition = ctx.broker.replicas.leader(*key)
    partition.check_leader_epoch(asked.current_leader_epoch)
    try:
        answer = _look_up(partition, timestamp, reach)
    except KafkaError as error:
        if error.code is ErrorCode.OFFSET_NOT_AVAILABLE and version < NOT_AVAILABLE_FROM:
            error.code = ErrorCode.LEADER_NOT_AVAILABLE
        raise
    answer.partition_index = key.partition
    if version < LEADER_EPOCH_FROM:
        answer.leader_epoch = NO_EPOCH
    return answer


def _before_times(partition: Partition, timestamp_ms: int, now_ms: int) -> list[int]:
    """What version 0 asks for; the high watermark stands for all that lies above it."""
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
        raise StorageError(f"{partition.key} could not be looked at: {error}") from error
    readable = [each for each in offsets if each <= partition.high_watermark]
    return readable if len(readable) == len(offsets) else [partition.high_watermark, *readable]


def _end(partition: Partition, reach: Reach) -> int:
    match reach:
        case Reach.LOG_END:
            return partition.log.log_end_offset
        case Reach.STABLE:
            return partition.last_stable_offset
        case Reach.COMMITTED:
            return partition.high_watermark


def _must_have_caught_up(partition: Partition, reach: Reach) -> None:
    """Raises OFFSET_NOT_AVAILABLE while a new leader does not know yet how much of what it took over is committed: an
    end below what consumers have read would send them back (KIP-207)."""
    if reach is not Reach.LOG_END and partition.state.epoch_start_offset > partition.high_watermark:
        raise KafkaError(
            f"the high watermark of {partition.key} is behind the start of its leader's epoch",
            ErrorCode.OFFSET_NOT_AVAILABLE,
        )


def _look_up(
    partition: Partition, timestamp_ms: int, reach: Reach
) -> m.ListOffsetsResponse.ListOffsetsPartitionResponse:
    answer = m.ListOffsetsResponse.ListOffsetsPartitionResponse()
    log = partition.log
    end_offset = _end(partition, reach)
    if timestamp_ms == LATEST:
        _must_have_caught_up(partition, reach)
        answer.offset, answer.leader_epoch = end_offset, partition.leader_epoch
    elif timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = log.log_start_offset
        answer.leader_epoch = log.leader_epochs.epoch_for(answer.offset)
    elif timestamp_ms not in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        if log.config.magic == 0:
            raise UnsupportedForMessageFormat(f"the messages of {partition.key} have no timestamps: format 0")
        found = (
            log.max_timestamp_offset()
            if timestamp_ms == MAX_TIMESTAMP
            else log.offset_for_time(timestamp_ms, end_offset)
        )
        if found is None or found.offset >= end_offset:
            _must_have_caught_up(partition, reach)
        if found is not None:
            answer.offset, answer.timestamp, answer.leader_epoch = found
    return answer
