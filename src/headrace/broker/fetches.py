"""One fetch on its way: reads now, and again when something happened, until there is enough for an answer.

The limits are Kafka's: `max_bytes` for all partitions and `partition_max_bytes` for each cut a batch in two wherever
they fall, but the first partition that has anything gives at least one whole batch, or nobody would get past it.
Records leave as file ranges. In a session, a partition without news costs a few comparisons, and nothing is made for
it. Consumers that tell their rack are served by any replica (KIP-392), up to its high watermark; a leader may name them
one nearby. Followers are in `follower_fetches`, fetches before version 4 in `old_fetches`.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable

from headrace.broker.context import RequestContext
from headrace.broker.current_leader import CurrentLeader, current_leader, nodes
from headrace.broker.fetch_sessions import INITIAL_EPOCH, FetchSession, PartitionKey, Partitions, SessionPartition
from headrace.broker.follower_fetches import FollowerAsks, follower_of
from headrace.broker.metrics.traffic import Traffic
from headrace.broker.partition import Partition, end_key
from headrace.coordination.model import NO_UUID
from headrace.errors import ErrorCode, KafkaError, UnknownTopicOrPartition, UnsupportedCompressionType
from headrace.log.partition_log import FileRange
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition

ZSTD_FROM, TOPIC_IDS_FROM, LEADERS_FROM = 10, 13, 16
logger = logging.getLogger(__name__)
_READ_COMMITTED = 1
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_LED_OTHERWISE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def partition_error(index: int, code: ErrorCode) -> m.FetchResponse.PartitionData:
    return m.FetchResponse.PartitionData(partition_index=index, error_code=code, high_watermark=-1, records=b"")


def topic_name(ctx: RequestContext, topic_id: bytes, *, is_follower: bool) -> str | None:
    """The name of a topic. A follower may ask for a topic of which only its replicas have been told yet."""
    name = ctx.broker.metadata.snapshot.names_by_id.get(topic_id)
    return ctx.broker.replicas.names_by_id.get(topic_id) if name is None and is_follower else name


def _code_of(error: KafkaError | OSError) -> ErrorCode:
    if isinstance(error, KafkaError):
        return error.code
    logger.error("a log could not be read: %s", error)
    return ErrorCode.KAFKA_STORAGE_ERROR


class Fetch:
    """One fetch: read now, and again when something happened, until there is enough.

    `ends` says that waiting would not bring more: there was an error. A topic that nobody knows is none, or those
    who ask for it would never wait.
    """

    __slots__ = (
        "_ctx", "_ends", "_follower", "_has_readable", "_is_committed_only", "_leaders", "_remaining", "_request",
        "_size", "_taken", "is_waiting", "response",
    )  # fmt: skip

    def __init__(self, ctx: RequestContext, request: m.FetchRequest) -> None:
        self._ctx, self._request = ctx, request
        follower = follower_of(request)
        self._follower = None if follower is None else FollowerAsks(ctx.broker, follower, request)
        self._is_committed_only = request.isolation_level == _READ_COMMITTED and follower is None
        self._remaining = self._size = 0
        self._ends = self._has_readable = self.is_waiting = False
        self._leaders: list[CurrentLeader] = []
        self._taken: list[tuple[Traffic, int]] = []
        self.response = m.FetchResponse()

    def keys(self) -> Iterable[Hashable]:
        """What the fetch waits for."""
        return self._watched(
            TopicPartition(topic.topic, each.partition) for topic in self._request.topics for each in topic.partitions
        )

    def _watched(self, keys: Iterable[TopicPartition]) -> Iterable[Hashable]:
        """A follower waits for records, a reader for them to be committed."""
        return keys if self._follower is None else map(end_key, keys)

    def ends_now(self) -> bool:
        """Whether waiting would not help."""
        return self._request.max_wait_ms <= 0 or not self._has_readable

    def try_complete(self) -> bool:
        """Reads; True when that is enough for an answer, which is sent if the request was waiting."""
        if self._ctx.is_abandoned:
            return True
        self._read()
        if self._size < self._request.min_bytes and not self._ends:
            return False
        if self.is_waiting:
            self._send()
        return True

    def expire(self) -> None:
        """Answers with what there is."""
        if not self._ctx.is_abandoned:
            self._read()
            self._send()

    def _send(self) -> None:
        """Answers a fetch that was waiting."""
        self._ctx.reply(self.finish())

    def finish(self) -> m.FetchResponse:
        """The answer, with all that goes with its being sent."""
        self._count()
        self._name_leaders()
        if self._request.session_epoch == INITIAL_EPOCH:
            self.response.session_id = self._open_session()
        return self.response

    def _count(self) -> None:
        for traffic, size in self._taken:
            traffic.bytes_out += size

    def _name_leaders(self) -> None:
        if self._leaders:
            self.response.node_endpoints = [
                m.FetchResponse.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
                for node in nodes(self._ctx, (leader.id for leader in self._leaders))
            ]

    def _open_session(self) -> int:
        by_id = self._ctx.api_version >= TOPIC_IDS_FROM
        partitions: Partitions = {}
        for topic, told in zip(self._request.topics, self.response.responses, strict=True):
            name: str | bytes = topic.topic_id if by_id else topic.topic
            for wanted, answer in zip(topic.partitions, told.partitions, strict=True):
                partition = SessionPartition(topic.topic, topic.topic_id, wanted)
                partition.told(answer)
                partitions[name, wanted.partition] = partition
        return self._ctx.broker.fetch_sessions.open(
            partitions, by_id=by_id, is_follower=self._follower is not None, now_ms=self._ctx.broker.now_ms()
        )

    def _reset(self) -> None:
        self._remaining = min(self._request.max_bytes, self._ctx.broker.config.fetch_max_bytes)
        self._size, self._ends, self._has_readable = 0, False, False
        self._leaders = []
        self._taken = []

    def _replica(self, topic: str, number: int) -> Partition:
        """The replica to read from. Raises what `ReplicaManager.get` and `leader` do.

        Apache Kafka lets any consumer read from any replica. Here only those do that tell their rack, as whoever is
        sent to a follower has done: the others are there by mistake, and hear who leads.
        """
        replicas = self._ctx.broker.replicas
        if self._follower is None and self._request.rack_id:
            return replicas.get(topic, number)
        return replicas.leader(topic, number)

    def _read(self) -> None:
        self._reset()
        responses = []
        for topic in self._request.topics:
            partitions = []
            for each in topic.partitions:
                try:
                    if not topic.topic:
                        raise _unknown_topic(self._ctx, topic.topic_id)
                    partition = self._replica(topic.topic, each.partition)
                    answer = self._read_partition(partition, topic.topic_id, each)
                except (KafkaError, OSError) as error:
                    answer = self._refuse(TopicPartition(topic.topic, each.partition), _code_of(error))
                partitions.append(answer)
            responses.append(
                m.FetchResponse.FetchableTopicResponse(
                    topic=topic.topic, topic_id=topic.topic_id, partitions=partitions
                )
            )
        self.response.responses = responses

    def _takes_one(self) -> bool:
        """Whether a first batch of the next partition is taken though it is over the limits."""
        return self._size == 0

    def _refuse(self, key: TopicPartition, code: ErrorCode) -> m.FetchResponse.PartitionData:
        answer = partition_error(key.partition, code)
        self._ctx.broker.replicas.traffic.known(key.topic).failed_fetches += 1
        if code not in _UNKNOWN:
            answer.aborted_transactions = None
        if code not in _UNKNOWN or self.is_waiting:
            self._ends = self._has_readable = True
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
            raise KafkaError(f"{partition.key} is of another topic of that name", ErrorCode.INCONSISTENT_TOPIC_ID)
        if wanted.current_leader_epoch != -1:
            partition.check_leader_epoch(wanted.current_leader_epoch)
        if self._ctx.api_version < ZSTD_FROM and log.config.compression_type == "zstd":
            raise UnsupportedCompressionType(f"zstd came with Fetch version {ZSTD_FROM}")
        self._has_readable = True
        if self._follower is not None:
            return self._read_for_follower(self._follower, partition, wanted)
        partition.traffic.fetches += 1
        if self._request.rack_id:
            preferred = self._ctx.broker.replication.nearby(partition, self._request.rack_id, wanted.fetch_offset)
            if preferred is not None:
                self._ends = True
                return _elsewhere(partition, wanted, preferred)
        if wanted.fetch_offset > log.log_end_offset and not partition.is_leader:
            raise KafkaError(
                f"{partition.key} is not here to {wanted.fetch_offset} yet", ErrorCode.OFFSET_NOT_AVAILABLE
            )
        last_stable_offset = partition.last_stable_offset
        end_offset = last_stable_offset if self._is_committed_only else partition.high_watermark
        found = self._find(partition, wanted, end_offset)
        if found is not None:
            self._taken.append((partition.traffic, found.size))
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

    def _find(self, partition: Partition, wanted: m.FetchRequest.FetchPartition, end_offset: int) -> FileRange | None:
        """The records, as many as the limits leave room for; None when there are none. Raises OFFSET_OUT_OF_RANGE."""
        if self._remaining <= 0 < self._size:
            return None
        found = partition.log.read(
            wanted.fetch_offset,
            max(0, min(wanted.partition_max_bytes, self._remaining)),
            end_offset=end_offset,
            at_least_one=self._takes_one(),
        )
        self._size += found.size
        self._remaining -= found.size
        return found if found.size else None

    def _read_for_follower(
        self, follower: FollowerAsks, partition: Partition, wanted: m.FetchRequest.FetchPartition
    ) -> m.FetchResponse.PartitionData:
        answer = m.FetchResponse.PartitionData(
            partition_index=wanted.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            records=b"",
        )
        parting = follower.begin(partition, wanted, counts=not self.is_waiting)
        answer.high_watermark = partition.high_watermark  # which the follower may just have moved
        if parting is not None:
            self._ends = True
            answer.diverging_epoch = parting
        elif not follower.is_held_back(partition):
            found = self._find(partition, wanted, partition.log.log_end_offset)
            if found is not None:
                answer.records = found
                self._ctx.broker.replication.sent(partition.key, found.size)
        return answer


class SessionFetch(Fetch):
    """An incremental fetch: reads every partition of the session, and answers with news."""

    __slots__ = ("_epoch", "_news", "_session")

    def __init__(self, ctx: RequestContext, request: m.FetchRequest, session: FetchSession) -> None:
        super().__init__(ctx, request)
        self._session, self._epoch = session, session.epoch
        self._news: list[tuple[PartitionKey, SessionPartition, m.FetchResponse.PartitionData]] = []

    def keys(self) -> Iterable[Hashable]:
        """What the fetch waits for."""
        return self._watched(each.key for each in self._session.partitions.values())

    def finish(self) -> m.FetchResponse:
        """The answer; the session notes what it says."""
        session, response = self._session, self.response
        response.session_id = session.id
        if session.epoch != self._epoch:  # the client has gone on without waiting for this answer
            response.error_code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            return response
        self._count()
        self._name_leaders()
        by_topic: dict[str | bytes, m.FetchResponse.FetchableTopicResponse] = {}
        for key, partition, answer in self._news:
            session.told(key, answer)
            topic = by_topic.get(key[0])
            if topic is None:
                topic = by_topic[key[0]] = m.FetchResponse.FetchableTopicResponse(
                    topic=partition.key.topic, topic_id=partition.topic_id
                )
            topic.partitions.append(answer)
        response.responses = list(by_topic.values())
        return response

    def _read(self) -> None:
        self._reset()
        self._news = []
        if self._session.epoch != self._epoch:
            self._ends = True
            return
        replicas = self._ctx.broker.replicas
        for key, each in self._session.partitions.items():
            found = replicas.find(each.key)
            if found is not None and self._is_as_told(found, each):
                self._has_readable = True
                continue
            try:
                answer = self._read_partition(self._leader(each), each.topic_id, each.wanted)
            except (KafkaError, OSError) as error:
                answer = self._refuse(each.key, _code_of(error))
            if each.is_news(answer):
                self._news.append((key, each, answer))

    def _leader(self, each: SessionPartition) -> Partition:
        if not each.key.topic:
            name = topic_name(self._ctx, each.topic_id, is_follower=self._follower is not None)
            if name is None:
                raise _unknown_topic(self._ctx, each.topic_id)
            each.named(name)
        return self._replica(*each.key)

    def _is_as_told(self, partition: Partition, told: SessionPartition) -> bool:
        if self._follower is not None:
            return self._follower.is_as_told(partition, told, counts=not self.is_waiting)
        return _is_as_told(partition, told)


def _elsewhere(
    partition: Partition, wanted: m.FetchRequest.FetchPartition, replica: BrokerId
) -> m.FetchResponse.PartitionData:
    """The answer that names a replica to fetch from."""
    return m.FetchResponse.PartitionData(
        partition_index=wanted.partition,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log.log_start_offset,
        preferred_read_replica=replica,
        records=b"",
    )


def _is_as_told(partition: Partition, told: SessionPartition) -> bool:
    """Whether there is nothing to read and nothing to say. What is not certain here is found out by reading."""
    state, wanted = partition.state, told.wanted
    return (
        wanted.fetch_offset == state.high_watermark == told.high_watermark
        and partition.log.log_start_offset == told.log_start_offset
        and state.is_leader
        and wanted.current_leader_epoch in (-1, state.leader_epoch)
        and told.topic_id in (NO_UUID, partition.log.topic_id)
    )


def _unknown_topic(ctx: RequestContext, topic_id: bytes) -> KafkaError:
    if ctx.api_version < TOPIC_IDS_FROM:
        return UnknownTopicOrPartition("a topic has a name")
    return KafkaError(f"there is no topic {topic_id.hex()}", ErrorCode.UNKNOWN_TOPIC_ID)
