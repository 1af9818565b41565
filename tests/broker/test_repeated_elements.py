"""Requests that name the same thing again: answered once, or refused, so that no answer grows with repetition."""

from collections.abc import Iterator

import pytest

from headrace.errors import ErrorCode, InvalidRequest
from headrace.limits import ELEMENTS_PER_REQUEST_MAX, PARTITIONS_PER_PRODUCE_MAX, TAGGED_FIELDS_MAX
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.conftest import StartHeadrace
from tests.wire import Wire, batch

Group = m.OffsetFetchRequest.OffsetFetchRequestGroup
Asked = m.OffsetFetchRequest.OffsetFetchRequestTopics


@pytest.fixture
def asker(headrace_server: StartHeadrace) -> Iterator[Asker]:
    server = headrace_server(settings={"offsets.topic.num.partitions": "1"})
    with Wire(server.bootstrap) as wire:
        wire.create_topic("t", 3)
        for partition in range(3):
            wire.produce("t", batch([b"x" * 100]), partition=partition)
    with Asker(server.bootstrap) as connection:
        yield connection


def commit(asker: Asker, group: str, partitions: int) -> None:
    asker.ask(m.FindCoordinatorRequest(coordinator_keys=[group]), 6)
    part = m.OffsetCommitRequest.OffsetCommitRequestPartition
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(
        name="t", partitions=[part(partition_index=each, committed_offset=each) for each in range(partitions)]
    )
    answer = asker.ask(
        m.OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[topic]), 8
    )
    assert {each.error_code for each in answer.topics[0].partitions} == {0}


def offsets_of(answer: m.OffsetFetchResponse) -> dict[str, list[tuple[int, int]]]:
    return {
        group.group_id: [
            (each.partition_index, each.committed_offset) for topic in group.topics for each in topic.partitions
        ]
        for group in answer.groups
    }


def test_a_group_that_is_named_again_is_answered_once(asker: Asker) -> None:
    commit(asker, "g", 3)
    groups = [Group(group_id="g", topics=None) for _ in range(100)]
    answer = asker.ask(m.OffsetFetchRequest(groups=groups), 8)
    assert len(answer.groups) == 1
    assert offsets_of(answer) == {"g": [(0, 0), (1, 1), (2, 2)]}


def test_a_group_that_is_named_again_is_answered_with_all_that_is_asked_of_it(asker: Asker) -> None:
    commit(asker, "g", 3)
    groups = [Group(group_id="g", topics=[Asked(name="t", partition_indexes=[each, 0])]) for each in (1, 2)]
    assert offsets_of(asker.ask(m.OffsetFetchRequest(groups=groups), 8)) == {"g": [(1, 1), (0, 0), (2, 2)]}


def test_many_partitions_are_answered_in_their_order(asker: Asker) -> None:
    """More than are looked up in one go, over group and topic borders."""
    commit(asker, "a", 1)
    numbers = list(range(2_500))
    groups = [
        Group(group_id=group, topics=[Asked(name=name, partition_indexes=numbers) for name in ("t", "u")])
        for group in ("a", "b")
    ]
    answer = asker.ask(m.OffsetFetchRequest(groups=groups), 8)
    assert [
        (group.group_id, topic.name, [each.partition_index for each in topic.partitions])
        for group in answer.groups
        for topic in group.topics
    ] == [(group, name, numbers) for group in ("a", "b") for name in ("t", "u")]


def test_a_partition_that_is_fetched_again_is_read_once_as_it_is_asked_for_last(asker: Asker) -> None:
    part = m.FetchRequest.FetchPartition
    asked = [part(partition=each % 2, fetch_offset=0, partition_max_bytes=1 << 20) for each in range(1_000)]
    asked.append(part(partition=0, fetch_offset=1, partition_max_bytes=1 << 20))
    request = m.FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[m.FetchRequest.FetchTopic(topic="t", partitions=asked)]
    )
    (topic,) = asker.ask(request, 12).responses
    assert [(each.partition_index, bool(each.records)) for each in topic.partitions] == [(0, False), (1, True)]


def test_a_fetch_does_not_wait_for_more_than_it_may_be_answered_with(asker: Asker) -> None:
    part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = m.FetchRequest(
        max_wait_ms=3_600_000,  # it would not be answered within the test's time
        min_bytes=1 << 20,
        max_bytes=100,
        topics=[m.FetchRequest.FetchTopic(topic="t", partitions=[part])],
    )
    (topic,) = asker.ask(request, 12).responses
    assert topic.partitions[0].records


def test_a_topic_that_is_to_be_deleted_twice_is_refused_and_stays(asker: Asker) -> None:
    state = m.DeleteTopicsRequest.DeleteTopicState
    answer = asker.ask(m.DeleteTopicsRequest(topics=[state(name="t"), state(name="t")], timeout_ms=1_000), 6)
    assert [(each.name, each.error_code) for each in answer.responses] == [("t", ErrorCode.INVALID_REQUEST)]
    (topic,) = asker.ask(m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="t")]), 9).topics
    assert topic.error_code == 0


def test_a_produce_for_more_partitions_than_a_producer_sends_is_refused(asker: Asker) -> None:
    part = m.ProduceRequest.PartitionProduceData
    parts = [part(index=0, records=b"") for _ in range(PARTITIONS_PER_PRODUCE_MAX + 1)]
    topic = m.ProduceRequest.TopicProduceData(name="t", partition_data=parts)
    answer = asker.ask(m.ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic]), 9)
    assert {each.error_code for each in answer.responses[0].partition_responses} == {ErrorCode.INVALID_REQUEST}


def test_tagged_fields_count_as_elements() -> None:
    """A structure may have some that nobody knows; a request not so many that skipping them takes seconds."""
    names = [m.MetadataRequest.MetadataRequestTopic(name="") for _ in range(ELEMENTS_PER_REQUEST_MAX // 100)]
    plain = m.MetadataRequest(topics=names).encode(9)
    empty, tagged = b"\x01\x00", b"\x01" + bytes([TAGGED_FIELDS_MAX]) + bytes(2 * TAGGED_FIELDS_MAX)
    assert plain.count(empty) >= len(names)
    with pytest.raises(InvalidRequest, match="tagged fields"):
        m.MetadataRequest.decode(9, memoryview(plain.replace(empty, tagged)))
    few = m.MetadataRequest(topics=names[:10]).encode(9)
    decoded, _ = m.MetadataRequest.decode(9, memoryview(few.replace(empty, tagged)))
    assert len(decoded.topics or []) == 10


@pytest.mark.parametrize("version", [0, 1, 11])
def test_offsets_of_a_partition_that_is_named_again_are_not_looked_up(asker: Asker, version: int) -> None:
    part = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    if version == 0:
        part.max_num_offsets = 100
    topic = m.ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[part] * 100)
    (answer,) = asker.ask(m.ListOffsetsRequest(replica_id=-1, topics=[topic]), version).topics
    assert {each.error_code for each in answer.partitions} == {ErrorCode.INVALID_REQUEST}
    assert not any(each.old_style_offsets for each in answer.partitions)


def test_each_batch_of_a_partition_that_is_named_again_is_written_and_answered(asker: Asker) -> None:
    """Apache Kafka writes one of them and answers once, so that its client could not tell which one is lost."""
    part = m.ProduceRequest.PartitionProduceData(index=0, records=bytes(batch([b"again"])))
    topic = m.ProduceRequest.TopicProduceData(name="t", partition_data=[part] * 3)
    (answer,) = asker.ask(m.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic]), 9).responses
    assert [(each.error_code, each.base_offset) for each in answer.partition_responses] == [(0, 1), (0, 2), (0, 3)]
