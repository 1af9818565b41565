"""ListOffsets and OffsetForLeaderEpoch, asked of headrace and of Apache Kafka."""

import pytest

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.differential.conversation import TIMESTAMP_MS, Conversation, batch
from tests.differential.deliberate import Differs
from tests.differential.scenario import scenario

pytestmark = pytest.mark.slow  # asks Apache Kafka

API = ApiKey.LIST_OFFSETS
Partition = m.ListOffsetsRequest.ListOffsetsPartition
Topic = m.ListOffsetsRequest.ListOffsetsTopic


def _request(*wanted: tuple[str, int, int], replica: int = -1, isolation_level: int = 0) -> m.ListOffsetsRequest:
    """(topic, partition, timestamp) each in a topic of its own."""
    topics = [
        Topic(name=name, partitions=[Partition(partition_index=number, timestamp=timestamp)])
        for name, number, timestamp in wanted
    ]
    return m.ListOffsetsRequest(replica_id=replica, isolation_level=isolation_level, topics=topics)


@scenario(API)
def test_finds_offsets_by_time(ask: Conversation) -> None:
    topic = ask.topic()
    ask.produce(topic, batch(("a", "b")))
    ask.produce(topic, batch(("c",)))
    for timestamp in (-1, -2, 0, 1, TIMESTAMP_MS - 1, TIMESTAMP_MS, TIMESTAMP_MS + 1, 2**63 - 1):
        ask(_request((topic, 0, timestamp)))


@scenario(API)
def test_answers_for_special_times(ask: Conversation) -> None:
    topic = ask.topic()
    ask.produce(topic, batch(("a", "b")))
    for timestamp in (-3, -4, -5, -6, -7, -100, -(2**63)):
        ask(_request((topic, 0, timestamp)))


@scenario(API)
def test_finds_offsets_in_an_empty_log(ask: Conversation) -> None:
    topic = ask.topic()
    for timestamp in (-1, -2, -3, 0, TIMESTAMP_MS):
        ask(_request((topic, 0, timestamp)))


@scenario(API)
def test_lists_offsets_of_unknown_partitions(ask: Conversation) -> None:
    topic = ask.topic()
    ask(_request((topic, 1, -1), (ask.name("missing"), 0, -1), ("not legal", 0, -1), ("", 0, -1)))
    ask(_request((topic, -1, -1)))


@scenario(
    API,
    differs=[Differs("ListOffsets.topics[]", "headrace answers each element of a request that repeats one")],
)
def test_lists_offsets_of_repeated_partitions(ask: Conversation) -> None:
    topic = ask.topic()
    request = _request((topic, 0, -1))
    request.topics[0].partitions *= 2
    ask(request)
    ask(_request((topic, 0, -1), (topic, 0, -2)))


@scenario(API)
def test_lists_offsets_for_other_replica_ids(ask: Conversation) -> None:
    topic = ask.topic()
    ask.produce(topic)
    for replica in (-2, 1, 7, -3):
        ask(_request((topic, 0, -1), replica=replica))


@scenario(
    API,
    range(2, 12),
    differs=[
        Differs(
            "ListOffsets.topics[].partitions[]", "an unknown isolation level fails inside Apache Kafka", at=f"={level},"
        )
        for level in (2, -1)
    ],
)
def test_lists_offsets_for_other_isolation_levels(ask: Conversation) -> None:
    topic = ask.topic()
    ask.produce(topic)
    for level in (1, 2, -1):
        ask(_request((topic, 0, -1), isolation_level=level))


@scenario(API, range(4, 12))
def test_checks_the_leader_epoch_of_list_offsets(ask: Conversation) -> None:
    topic = ask.topic()
    ask.produce(topic)
    for epoch in (-1, 0, 1, -2):
        request = _request((topic, 0, -1))
        request.topics[0].partitions[0].current_leader_epoch = epoch
        ask(request)


@scenario(API, range(10, 12))
def test_lists_offsets_with_a_timeout(ask: Conversation) -> None:
    topic = ask.topic()
    for timeout in (0, -1, 2**31 - 1):
        request = _request((topic, 0, -1))
        request.timeout_ms = timeout
        ask(request)


@scenario(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def test_finds_the_ends_of_leader_epochs(ask: Conversation) -> None:
    topic = ask.topic()
    ask.produce(topic)
    Wanted = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition
    for name, number, current, epoch in (
        (topic, 0, -1, 0), (topic, 0, 0, 0), (topic, 0, 1, 0), (topic, 0, -1, 1), (topic, 0, -1, -1), (topic, 0, -1, 7),
        (topic, 1, -1, 0), (topic, -1, -1, 0), (ask.name("missing"), 0, -1, 0), ("", 0, -1, 0),
    ):  # fmt: skip
        wanted = Wanted(partition=number, current_leader_epoch=current, leader_epoch=epoch)
        whole = m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=name, partitions=[wanted])
        ask(m.OffsetForLeaderEpochRequest(replica_id=-1, topics=[whole]))
