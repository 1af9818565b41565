"""One fetch: reads at once, and again after each change, until `min_bytes` are there or the wait is over.

The limits are Kafka's: `max_bytes` for all partitions and `partition_max_bytes` for each may cut a batch in two. The
first partition with records yields at least one whole batch, or a consumer could never get past a large one. Records
are sent as file ranges. Consumers that send their rack may read from any replica (KIP-392), up to its high watermark; a
leader may direct them to a replica nearby. `session_fetch` has the incremental fetches, `follower_fetch` those of
followers, `old_fetch` those before version 4.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Iterable, Sequence

from headrace.broker.fetch.fetch_sessions import (
    INITIAL_EPOCH,
    NO_SESSION,
    Partitions,
    SessionPartition,
    is_too_large,
)
from headrace.broker.fetch.follower_fetch import FollowerFetch, diverging_epoch_of, follower_of
from headrace.broker.fetch.small_reads import READ_AT_ONCE_BYTES_MAX, read_if_cached
from headrace.broker.partitions.current_leader import CurrentLeader, current_leader, nodes
from headrace.broker.partitions.partition import Partition, end_key
from headrace.broker.request.context import RequestContext
from headrace.broker.request.demands import FETCH_AS_BROKER, READ_TOPIC
from headrace.errors import ErrorCode, KafkaError, UnknownTopicOrPartition, UnsupportedCompressionType
from headrace.limits import ELEMENTS_PER_SLICE
from headrace.log.segment_list import SegmentRange
from headrace.metadata.model import NO_UUID
from headrace.protocol import messages as m
from headrace.security.access import CLUSTER_NAME
from headrace.types import BrokerId, TopicPartition

ZSTD_FROM, TOPIC_IDS_FROM, LEADERS_FROM = 10, 13, 16
logger = logging.getLogger(__name__)
_READ_COMMITTED = 1
SMALL_PARTITIONS_MAX = 1_000
_BACKOFF_S_PER_PARTITION = 25e-6
"""About ten times the cost of reading one partition, so a large fetch takes at most a tenth of the event loop."""
_UNREADABLE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
"""The errors that a partition has until the client or an administrator changes something. A forbidden partition is
answered as one that does not exist."""
_LED_OTHERWISE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def partition_error(index: int, code: ErrorCode) -> m.FetchResponse.PartitionData:
    return m.FetchResponse.PartitionData(partition_index=index, error_code=code, high_watermark=-1, records=b"")


def topic_name(ctx: RequestContext, topic_id: bytes, *, is_follower: bool) -> str | None:
    """The name of a topic. A follower may fetch a topic that LeaderAndIsr has announced and UpdateMetadata has not."""
    name = ctx.services.metadata.snapshot.names_by_id.get(topic_id)
    return ctx.services.replicas.names_by_id.get(topic_id) if name is None and is_follower else name


def code_of(error: KafkaError | OSError) -> ErrorCode:
    """The code for a partition that could not be read."""
    if isinstance(error, KafkaError):
        return error.code
    logger.error("a log could not be read: %s", error)
    return ErrorCode.KAFKA_STORAGE_ERROR


class Fetch:
    """One fetch: reads until there is enough for a response.

    `ends` means that the fetch does not wait, because of an error. An unknown or a forbidden topic does not count as
    one, or its consumers would poll without pause.
    """

    __slots__ = (
        "_at_least_one_each", "_backoff_until", "_ctx", "_follower", "_has_readable", "_is_committed_only",
        "_is_forbidden", "_is_woken",
        "_leaders", "_must_answer", "_remaining", "_request", "_taken", "is_waiting", "response", "size",
        "topics",
    )  # fmt: skip

    def __init__(
        self,
        ctx: RequestContext,
        request: m.FetchRequest,
        topics: Sequence[m.FetchRequest.FetchTopic],
        *,
        at_least_one_each: bool = False,
    ) -> None:
        """`topics` are those of the request by name, each partition once; the name of an unknown topic id is empty.
        With `at_least_one_each`, every partition yields a whole batch, whatever the limits."""
        self._ctx, self._request, self.topics = ctx, request, topics
        self._at_least_one_each = at_least_one_each
        follower = follower_of(request)
        self._follower = None if follower is None else FollowerFetch(ctx.services, follower, request)
        self._is_committed_only = request.isolation_level == _READ_COMMITTED and follower is None
        self._remaining = self.size = 0
        self._backoff_until, self._is_woken = 0.0, False
        self._must_answer = self._has_readable = self.is_waiting = self._is_forbidden = False
        self._leaders: list[CurrentLeader] = []
        self._taken: list[tuple[Partition, int]] = []
        self.response = m.FetchResponse()

    def keys(self) -> Iterable[Hashable]:
        """What the fetch waits for."""
        return self._watched(
            TopicPartition(topic.topic, each.partition) for topic in self.topics for each in topic.partitions
        )

    def _watched(self, keys: Iterable[TopicPartition]) -> Iterable[Hashable]:
        """A follower waits for the log end offset, a consumer for the high watermark."""
        return keys if self._follower is None else map(end_key, keys)

    def ends_now(self) -> bool:
        """Whether the fetch is answered without waiting."""
        return self._request.max_wait_ms <= 0 or not self._has_readable

    def try_complete(self) -> bool:
        """Reads; returns True when that is enough for a response, and sends it if the request was waiting."""
        if self._ctx.is_abandoned:
            return True
        if not self.read_enough():
            return False
        if self.is_waiting:
            self._ctx.reply(self.finish())
        return True

    def read_enough(self) -> bool:
        """Reads; returns whether that is enough for a response."""
        if self.is_waiting and self.backs_off():
            return False
        self.read()
        return self._is_enough()

    def _is_enough(self) -> bool:
        """Whether the response holds `min_bytes`, or as much as it may: otherwise a fetch for more than that would
        always wait until its time-out."""
        return self.size >= self._request.min_bytes or self._remaining <= 0 or self._must_answer

    def backs_off(self) -> bool:
        """Whether a large fetch of a consumer was read too recently to be read again.

        A change of one partition reads all partitions of the fetch: steady appends would otherwise occupy the event
        loop with one fetch.
        """
        count = self.partition_count()
        if count <= SMALL_PARTITIONS_MAX or self._follower is not None:
            return False
        loop = self._ctx.services.loop
        now = loop.time()
        if now >= self._backoff_until:
            self._backoff_until, self._is_woken = now + count * _BACKOFF_S_PER_PARTITION, False
            return False
        if not self._is_woken:
            self._is_woken = True
            loop.call_at(self._backoff_until, self._ctx.services.purgatory.touch, next(iter(self.keys())))
        return True

    def partition_count(self) -> int:
        """How many partitions the fetch reads."""
        return sum(len(topic.partitions) for topic in self.topics)

    def expire(self) -> None:
        """Answers with the records read so far."""
        if not self._ctx.is_abandoned:
            self.read()
            self._ctx.reply(self.finish())

    def finish(self) -> m.FetchResponse:
        """Completes the response: counts, current leaders, the session. It is empty if the client is throttled."""
        if throttle_ms := self.throttle_ms():
            return m.FetchResponse(throttle_time_ms=throttle_ms)
        self._count()
        self._name_leaders()
        if self._request.session_epoch == INITIAL_EPOCH:
            self.response.session_id = self._open_session()
        return self.response

    def throttle_ms(self) -> int:
        """Counts the records against the client's quota; returns how long it has to wait for them, in ms."""
        throttling = self._ctx.services.throttling
        if not throttling.is_active or self._follower is not None:
            return 0
        return throttling.fetched(self._ctx, self.size, self._taken)

    def _count(self) -> None:
        for partition, size in self._taken:
            partition.traffic.bytes_out += size

    def _name_leaders(self) -> None:
        if self._leaders:
            self.response.node_endpoints = [
                m.FetchResponse.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
                for node in nodes(self._ctx, (leader.id for leader in self._leaders))
            ]

    def _open_session(self) -> int:
        by_id = self._ctx.api_version >= TOPIC_IDS_FROM
        if is_too_large(self.partition_count(), is_follower=self._follower is not None):
            return NO_SESSION
        partitions: Partitions = {}
        for topic, topic_response in zip(self.topics, self.response.responses, strict=True):
            name: str | bytes = topic.topic_id if by_id else topic.topic
            for wanted, answer in zip(topic.partitions, topic_response.partitions, strict=True):
                partition = SessionPartition(topic.topic, topic.topic_id, wanted)
                partition.record_response(answer)
                partitions[name, wanted.partition] = partition
        return self._ctx.services.fetch_sessions.open(
            partitions,
            by_id=by_id,
            is_follower=self._follower is not None,
            now_ms=self._ctx.services.now_ms(),
            principal=self._ctx.principal,
        )

    def _reset(self) -> None:
        self._remaining = min(self._request.max_bytes, self._ctx.services.config.fetch_max_bytes)
        throttling = self._ctx.services.throttling
        if throttling.is_active and self._follower is None:
            self._remaining = int(min(self._remaining, throttling.fetch_bytes_max(self._ctx)))
        self._is_forbidden = self._follower is not None and self.is_waiting and not self._may_follow()
        self.size, self._must_answer, self._has_readable = 0, False, False
        self._leaders = []
        self._taken = []

    def _replica(self, topic: str, number: int) -> Partition:
        """The replica to read from. Raises what `ReplicaManager.get` and `leader` do.

        Apache Kafka lets any consumer read from any replica. Here only consumers that send their rack may, as those
        directed to a follower do. Others reached the follower by mistake; the response names the leader.
        """
        replicas = self._ctx.services.replicas
        if self._follower is None and self._request.rack_id:
            return replicas.get(topic, number)
        return replicas.leader(topic, number)

    def read(self) -> None:
        """Reads every partition, from the start of the fetch again."""
        self._reset()
        responses = []
        for topic in self.topics:
            partitions = self._read_partitions(topic, topic.partitions)
            responses.append(
                m.FetchResponse.FetchableTopicResponse(
                    topic=topic.topic, topic_id=topic.topic_id, partitions=partitions
                )
            )
        self.response.responses = responses

    async def read_in_slices(self) -> bool:
        """As `read_enough`, with turns for other requests in between."""
        self._reset()
        responses = []
        count = 0
        for topic in self.topics:
            response = m.FetchResponse.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[])
            responses.append(response)
            for start in range(0, len(topic.partitions), ELEMENTS_PER_SLICE):
                some = topic.partitions[start : start + ELEMENTS_PER_SLICE]
                response.partitions += self._read_partitions(topic, some)
                count += len(some)
                if count >= ELEMENTS_PER_SLICE:
                    count = 0
                    await asyncio.sleep(0)
        self.response.responses = responses
        return self._is_enough()

    def check_rights(self, topic: str) -> None:
        """Raises TOPIC_AUTHORIZATION_FAILED if the client may not read a topic. Asked at each read, so that a change of
        the rules holds for a fetch that waits."""
        admission = self._ctx.services.admission
        if self._is_forbidden or (self._follower is None and not admission.permits(self._ctx, READ_TOPIC, topic)):
            raise KafkaError(f"{topic} may not be read", ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _may_follow(self) -> bool:
        """Whether the sender of a follower's fetch may send it. The admission has asked that when it came."""
        return self._ctx.services.admission.permits(self._ctx, FETCH_AS_BROKER, CLUSTER_NAME)

    def _read_partitions(
        self, topic: m.FetchRequest.FetchTopic, wanted: Sequence[m.FetchRequest.FetchPartition]
    ) -> list[m.FetchResponse.PartitionData]:
        partitions = []
        has_rules = self._ctx.services.admission.has_rules
        for each in wanted:
            try:
                if not topic.topic:
                    raise unknown_topic(self._ctx, topic.topic_id)
                if has_rules:
                    self.check_rights(topic.topic)
                partition = self._replica(topic.topic, each.partition)
                answer = self._read_partition(partition, topic.topic_id, each)
            except (KafkaError, OSError) as error:
                answer = self._refuse(TopicPartition(topic.topic, each.partition), code_of(error))
            partitions.append(answer)
        return partitions

    def _refuse(self, key: TopicPartition, code: ErrorCode) -> m.FetchResponse.PartitionData:
        answer = partition_error(key.partition, code)
        self._ctx.services.replicas.traffic.known(key.topic).failed_fetches += 1
        if code not in _UNREADABLE:
            answer.aborted_transactions = None
        if code not in _UNREADABLE or self.is_waiting:
            self._must_answer = self._has_readable = True
        if code in _LED_OTHERWISE and self._ctx.api_version >= LEADERS_FROM:
            leader = current_leader(self._ctx, key)
            self._leaders.append(leader)
            answer.current_leader = m.FetchResponse.LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
        return answer

    def _read_partition(
        self, partition: Partition, topic_id: bytes, wanted: m.FetchRequest.FetchPartition
    ) -> m.FetchResponse.PartitionData:
        log = partition.log
        if topic_id != NO_UUID and topic_id != log.topic_id and log.topic_id is not None:
            raise KafkaError(f"{partition.key} has another topic id than the request", ErrorCode.INCONSISTENT_TOPIC_ID)
        if wanted.current_leader_epoch >= 0:
            partition.check_leader_epoch(wanted.current_leader_epoch)
        if self._ctx.api_version < ZSTD_FROM and log.config.compression_type == "zstd":
            raise UnsupportedCompressionType(
                f"{partition.key} uses zstd, which requires Fetch version {ZSTD_FROM} or later"
            )
        self._has_readable = True
        if self._follower is not None:
            return self._read_for_follower(self._follower, partition, wanted)
        partition.traffic.fetches += 1
        if self._request.rack_id:
            preferred = self._ctx.services.replication.preferred_read_replica(
                partition, self._request.rack_id, wanted.fetch_offset
            )
            if preferred is not None:
                self._must_answer = True
                return _redirect(partition, wanted, preferred)
        if wanted.last_fetched_epoch >= 0 and (diverging := diverging_epoch_of(partition, wanted)) is not None:
            self._must_answer = True
            return self._diverged(partition, wanted, diverging)
        if wanted.fetch_offset > log.log_end_offset and not partition.is_leader:
            raise KafkaError(
                f"this replica of {partition.key} does not have offset {wanted.fetch_offset} yet",
                ErrorCode.OFFSET_NOT_AVAILABLE,
            )
        last_stable_offset = partition.last_stable_offset
        end_offset = last_stable_offset if self._is_committed_only else partition.high_watermark
        found = self._find(partition, wanted, end_offset)
        if found is not None:
            self._taken.append((partition, found.size))
        aborted: list[m.FetchResponse.AbortedTransaction] | None = None
        if self._is_committed_only:
            offset = wanted.fetch_offset
            reach = offset if found is None else log.reach_of(found, offset)
            aborted = [
                m.FetchResponse.AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in log.aborted_transactions(offset, reach)
            ]
        return m.FetchResponse.PartitionData(
            partition_index=wanted.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=aborted,
            records=b"" if found is None else found,
        )

    def _diverged(
        self, partition: Partition, wanted: m.FetchRequest.FetchPartition, epoch: m.FetchResponse.EpochEndOffset
    ) -> m.FetchResponse.PartitionData:
        """Tells a consumer where the records that it has read part from this log, as Apache Kafka does."""
        return m.FetchResponse.PartitionData(
            partition_index=wanted.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            diverging_epoch=epoch,
            aborted_transactions=[] if self._is_committed_only else None,
            records=b"",
        )

    def _find(
        self, partition: Partition, wanted: m.FetchRequest.FetchPartition, end_offset: int
    ) -> SegmentRange | None:
        """The records that the limits allow; None when there are none. Raises OFFSET_OUT_OF_RANGE."""
        if self._remaining <= 0 < self.size:
            return None
        found = partition.log.read(
            wanted.fetch_offset,
            max(0, min(wanted.partition_max_bytes, self._remaining)),
            end_offset=end_offset,
            at_least_one=self._at_least_one_each or self.size == 0,
        )
        self.size += found.size
        self._remaining -= found.size
        return found if found.size else None

    def _read_for_follower(
        self, follower: FollowerFetch, partition: Partition, wanted: m.FetchRequest.FetchPartition
    ) -> m.FetchResponse.PartitionData:
        answer = m.FetchResponse.PartitionData(
            partition_index=wanted.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            records=b"",
        )
        diverging_epoch = follower.begin(partition, wanted, counts=not self.is_waiting)
        answer.high_watermark = partition.high_watermark  # after `begin`, since this fetch may have advanced it
        if diverging_epoch is not None:
            self._must_answer = True
            answer.diverging_epoch = diverging_epoch
        elif not follower.is_held_back(partition):
            found = self._find(partition, wanted, partition.log.log_end_offset)
            if found is not None:
                is_small = self.size <= READ_AT_ONCE_BYTES_MAX
                answer.records = (read_if_cached(found) if is_small else None) or found
                self._ctx.services.replication.sent(partition.key, found.size)
        return answer


def _redirect(
    partition: Partition, wanted: m.FetchRequest.FetchPartition, replica: BrokerId
) -> m.FetchResponse.PartitionData:
    """The response that directs the consumer to another replica."""
    return m.FetchResponse.PartitionData(
        partition_index=wanted.partition,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log.log_start_offset,
        preferred_read_replica=replica,
        records=b"",
    )


def unknown_topic(ctx: RequestContext, topic_id: bytes) -> KafkaError:
    """The error for a topic that this broker cannot name."""
    if ctx.api_version < TOPIC_IDS_FROM:
        return UnknownTopicOrPartition("the topic name is empty")
    return KafkaError(f"no topic has id {topic_id.hex()}", ErrorCode.UNKNOWN_TOPIC_ID)
