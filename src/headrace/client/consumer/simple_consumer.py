"""The simple consumer of Kafka 0.7 and 0.8: a connection to one broker, and no state.

    SimpleConsumer("host:9092")
    fetch(FetchRequest(topic, partition, offset))    messages from an offset on
    multifetch([...])                                several fetches in one request
    get_offsets_before(topic, partition, time, n)    valid offsets, newest first
    find_leader(topic, partition)                    the broker to ask

The caller keeps the offsets, and finds the new leader when this broker is not the leader any more: an error says so. It
speaks today's protocol. The first partition of a fetch that has messages returns at least one batch, however long it
is, so that `max_bytes` need not grow as it did in 0.7. Source: Kafka 0.8's `SimpleConsumer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.client.consumer.fetched_batches import ChunkRecords, ConsumerRecord
from headrace.client.consumer.fetching import (
    READ_UNCOMMITTED,
    Fetched,
    FetchSizes,
    Position,
    answers_by_partition,
    fetch_request,
    fetched,
    following_offset,
)
from headrace.client.core.cluster import Cluster
from headrace.client.core.connection import Connection
from headrace.client.core.failures import error_for
from headrace.client.core.settings import Address, ClientSettings
from headrace.client.core.timing import Deadline
from headrace.client.operations.admin import EARLIEST, LATEST
from headrace.errors import KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.types import NO_EPOCH, Offset, TopicPartition

_RECORDS_AT_ONCE = 1_000
_SEGMENTS_VERSION = 0
"""The version of ListOffsets that asks for the offsets of segments. Apache Kafka 4 does not serve it any more."""


class FetchRequest(NamedTuple):
    """What to fetch of one partition. `max_bytes` limits the messages as they are stored."""

    topic: str
    partition: int
    offset: int
    max_bytes: int = 1 << 20


class MessageSet:
    """The messages of one partition from `offset` on; `for record in messages`."""

    __slots__ = ("_answer", "_offset", "_partition", "error", "next_offset")

    def __init__(self, request: FetchRequest, part: m.FetchResponse.PartitionData | None) -> None:
        self._partition = TopicPartition(request.topic, request.partition)
        self._offset = Offset(request.offset)
        self._answer: Fetched | None = None
        self.error: KafkaError | None = None
        """Why this partition was not read; there are no messages then."""
        self.next_offset: Offset = self._offset
        """What to fetch next."""
        try:
            if part is None:
                raise KafkaError(f"{self._partition} is missing from the broker's response")
            self._answer = fetched(self._partition, self._offset, part)
            self.next_offset = following_offset(self._answer.records, self._offset)
        except KafkaError as cause:
            self.error = cause

    @property
    def high_watermark(self) -> int:
        """The end of what consumers may read; -1 if there was an error."""
        return self._answer.high_watermark if self._answer is not None else -1

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Raises `error`, or CorruptMessage."""
        if self._answer is None:
            assert self.error is not None
            raise self.error
        records = ChunkRecords(self._partition, self._answer, self._offset, READ_UNCOMMITTED)
        while not records.is_done:
            yield from records.take(_RECORDS_AT_ONCE)


class SimpleConsumer:
    """One broker's messages and offsets. One thread uses it."""

    def __init__(self, broker: str, client: ClientSettings | None = None) -> None:
        """`broker` is HOST:PORT. Connects at the first call."""
        self._cluster = Cluster(broker, client)
        self._connection: Connection | None = None

    def __enter__(self) -> SimpleConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._cluster.close()

    def fetch(self, request: FetchRequest, max_wait_ms: int = 0) -> MessageSet:
        """The messages from an offset on; waits up to `max_wait_ms` for the first. Raises KafkaError, such as
        OffsetOutOfRange, or NOT_LEADER_OR_FOLLOWER from a broker that does not lead the partition."""
        (messages,) = self.multifetch([request], max_wait_ms)
        if messages.error is not None:
            raise messages.error
        return messages

    def multifetch(self, requests: Sequence[FetchRequest], max_wait_ms: int = 0) -> list[MessageSet]:
        """A message set for each request, in their order; look at `error` of each. A partition may occur repeatedly."""
        found: list[MessageSet | None] = [None] * len(requests)
        left = list(enumerate(requests))
        while left:
            now: dict[TopicPartition, tuple[int, FetchRequest]] = {}
            for place, request in left:  # a Fetch has each partition once
                now.setdefault(TopicPartition(request.topic, request.partition), (place, request))
            parts = self._fetch([request for _, request in now.values()], max_wait_ms)
            for partition, (place, request) in now.items():
                found[place] = MessageSet(request, parts.get(partition))
            left = [(place, request) for place, request in left if found[place] is None]
        return [each for each in found if each is not None]

    def get_offsets_before(self, topic: str, partition: int, time: int, max_offsets: int = 1) -> list[int]:
        """Up to `max_offsets` valid offsets, newest first: of segments last written before `time`.

        `time` is in ms since 1970, or LATEST (-1: the end, then the segments), or EARLIEST (-2). A broker that has
        no such request any more (Apache Kafka 4) answers with the first offset at or after the time and with the start.
        """
        place = TopicPartition(topic, partition)
        connection, _ = self._connected()
        first, _ = connection.versions.ranges.get(ApiKey.LIST_OFFSETS, (_SEGMENTS_VERSION, 0))
        if first == _SEGMENTS_VERSION:
            return self._list_offsets(place, time, max_offsets).old_style_offsets[:max_offsets]
        offsets = [self._list_offsets(place, time).offset]
        if offsets[0] < 0:
            offsets = [self._list_offsets(place, LATEST).offset]  # all was written before
        if time != EARLIEST:
            offsets.append(self._list_offsets(place, EARLIEST).offset)
        return sorted(set(offsets), reverse=True)[:max_offsets]

    def find_leader(self, topic: str, partition: int) -> Address:
        """The address of the partition's leader. Raises KafkaError."""
        place = TopicPartition(topic, partition)
        self._cluster.forget(topic)
        leader = self._cluster.leader(place)
        address = self._cluster.view.brokers.get(leader)
        if address is None:
            raise KafkaError(f"the leader of {place}, broker {leader}, is not in the metadata of the cluster")
        return address

    def _connected(self) -> tuple[Connection, Deadline]:
        deadline = Deadline.after_ms(self._cluster.settings.request_timeout_ms)
        if self._connection is None or not self._connection.usable:
            self._connection = self._cluster.dial(self._cluster.bootstrap[0], deadline)
        return self._connection, deadline

    def _fetch(
        self, requests: Sequence[FetchRequest], max_wait_ms: int
    ) -> dict[TopicPartition, m.FetchResponse.PartitionData]:
        connection, deadline = self._connected()
        sizes = FetchSizes(max_wait_ms, 1, sum(each.max_bytes for each in requests), 0)
        asked = {
            TopicPartition(each.topic, each.partition): Position(Offset(each.offset), NO_EPOCH) for each in requests
        }
        request = fetch_request(asked, sizes, READ_UNCOMMITTED)
        limits = {TopicPartition(each.topic, each.partition): each.max_bytes for each in requests}
        for topic in request.topics:
            for part in topic.partitions:
                part.partition_max_bytes = limits[TopicPartition(topic.topic, part.partition)]
        return answers_by_partition(connection.call(request, m.FetchResponse, deadline))

    def _list_offsets(
        self, partition: TopicPartition, time: int, count: int | None = None
    ) -> m.ListOffsetsResponse.ListOffsetsPartitionResponse:
        """`count`: ask for the offsets of so many segments."""
        connection, deadline = self._connected()
        part = m.ListOffsetsRequest.ListOffsetsPartition(
            partition_index=partition.partition, timestamp=time, max_num_offsets=count or 1
        )
        topic = m.ListOffsetsRequest.ListOffsetsTopic(name=partition.topic, partitions=[part])
        request = m.ListOffsetsRequest(replica_id=-1, topics=[topic])
        version = None if count is None else _SEGMENTS_VERSION
        answer = connection.call(request, m.ListOffsetsResponse, deadline, version).topics[0].partitions[0]
        if answer.error_code:
            raise error_for(answer.error_code, f"offsets of {partition}")
        return answer
