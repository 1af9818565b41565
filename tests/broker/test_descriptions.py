"""The cluster, topics, disks and epochs are described as Apache Kafka does it: each test is asked of both."""

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.broker.admin_requests import broker_id, create_topic, new_name
from tests.conftest import StartHeadrace
from tests.wire import Wire, batch

ALL_TOPIC_OPERATIONS, ALL_CLUSTER_OPERATIONS, NOT_ASKED = 3576, 8096, -(1 << 31)
NO_ID = bytes(16)


# DescribeCluster


@pytest.mark.parametrize("version", range(3))
def test_a_cluster_is_its_brokers(either_broker: str, asker: Asker, version: int) -> None:
    answer = asker.ask(m.DescribeClusterRequest(), version)
    (broker,) = answer.brokers
    host, _, port = either_broker.rpartition(":")
    assert (broker.broker_id, broker.host, broker.port) == (broker_id(asker), host, int(port))
    assert (broker.rack, broker.is_fenced, answer.controller_id) == (None, False, broker.broker_id)
    assert (answer.error_code, answer.error_message, answer.endpoint_type) == (0, None, 1)
    assert (len(answer.cluster_id), answer.cluster_authorized_operations) == (22, NOT_ASKED)
    answer = asker.ask(m.DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    assert answer.cluster_authorized_operations == ALL_CLUSTER_OPERATIONS


def test_a_broker_is_no_controller(asker: Asker) -> None:
    wanted = "but we wanted an endpoint of type CONTROLLER"
    for kind, code, message in (
        (2, 114, f"The request was sent to an endpoint of type BROKER, {wanted}"),
        (3, 115, "Unsupported endpoint type 3"),
    ):
        answer = asker.ask(m.DescribeClusterRequest(endpoint_type=kind), 2)
        assert (answer.error_code, answer.error_message) == (code, message)
        assert (answer.cluster_id, answer.controller_id, answer.brokers) == ("", -1, [])


# DescribeTopicPartitions

Page = tuple[list[tuple[str, str, list[int]]], tuple[str, int] | None]


def page(asker: Asker, names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None) -> Page:
    """([(name, code's name, partitions)], where the next page begins)."""
    request = m.DescribeTopicPartitionsRequest(
        topics=[m.DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor and m.DescribeTopicPartitionsRequest.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    answer = asker.ask(request, 0)
    topics = [
        (each.name, ErrorCode(each.error_code).name, [part.partition_index for part in each.partitions])
        for each in answer.topics
    ]
    return topics, answer.next_cursor and (answer.next_cursor.topic_name, answer.next_cursor.partition_index)


def test_a_topic_tells_its_partitions_and_who_leads_them(asker: Asker) -> None:
    name, leader = create_topic(asker, 2), broker_id(asker)
    missing = new_name("zz")
    request = m.DescribeTopicPartitionsRequest(
        topics=[m.DescribeTopicPartitionsRequest.TopicRequest(name=each) for each in (missing, name, "zz/bad", name)]
    )
    found, bad, none = asker.ask(request, 0).topics if missing > "zz/bad" else _swap(asker.ask(request, 0).topics)
    assert (found.name, found.error_code, found.is_internal) == (name, 0, False)
    metadata = asker.ask(m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=name)]), 10)
    assert found.topic_id == metadata.topics[0].topic_id != NO_ID
    for number, part in enumerate(found.partitions):
        assert (part.partition_index, part.error_code, part.leader_id, part.leader_epoch) == (number, 0, leader, 0)
        assert part.replica_nodes == part.isr_nodes == [leader]
        assert part.eligible_leader_replicas == part.last_known_elr == part.offline_replicas == []
    assert (none.name, none.error_code, none.topic_id) == (missing, 3, NO_ID)
    assert (bad.error_code, bad.topic_id) == (17, NO_ID)
    for each in (found, none, bad):
        assert each.topic_authorized_operations == ALL_TOPIC_OPERATIONS


def _swap(topics: list[Any]) -> list[Any]:
    return [topics[0], topics[2], topics[1]]


def test_pages_follow_names_and_numbers(asker: Asker) -> None:
    a, b = sorted((create_topic(asker, 3), create_topic(asker, 2)))
    counts = {name: len(page(asker, [name])[0][0][2]) for name in (a, b)}
    all_a, all_b = list(range(counts[a])), list(range(counts[b]))
    assert page(asker, [b, a, b]) == ([(a, "NONE", all_a), (b, "NONE", all_b)], None)
    assert page(asker, [a, b], counts[a]) == ([(a, "NONE", all_a)], (b, 0))
    assert page(asker, [a, b], counts[a] + 1) == ([(a, "NONE", all_a), (b, "NONE", [0])], (b, 1))
    for limit in (1, 0, -1):
        assert page(asker, [a, b], limit) == ([(a, "NONE", [0])], (a, 1))
    assert page(asker, [a, b], 1, (a, 1))[0] == [(a, "NONE", [1])]
    for number in (counts[a], 99):
        assert page(asker, [a, b], 2, (a, number)) == (
            [(a, "NONE", []), (b, "NONE", [0, 1])],
            (b, 2) if counts[b] > 2 else None,
        )
    assert page(asker, [a, b], 9, (b, 1)) == ([(b, "NONE", all_b[1:])], None)


def test_a_cursor_must_be_of_a_topic_that_is_asked_for(asker: Asker) -> None:
    name = create_topic(asker)
    refused: Page = ([(name, "INVALID_REQUEST", [])], None)
    assert page(asker, [name], 2, (name + "a", 0)) == refused
    assert page(asker, [name], 2, ("zz", 0)) == refused
    assert page(asker, [name], 2, (name, -1)) == refused
    gone = name[:-1]
    expected = [(gone, "UNKNOWN_TOPIC_OR_PARTITION", []), (name, "NONE", [0])]
    assert page(asker, [name, gone], 2, (gone, 0)) == (expected, None)


def test_every_topic_comes_in_pages(asker: Asker) -> None:
    mine = {create_topic(asker, count): count for count in (1, 5, 2)}
    seen: dict[str, list[int]] = {}
    cursor: tuple[str, int] | None = ("", 0)
    while cursor is not None:
        topics, following = page(asker, [], 3, cursor)
        assert sum(len(numbers) for _, _, numbers in topics) <= 3
        for name, code, numbers in topics:
            assert code == "NONE"
            seen.setdefault(name, []).extend(numbers)
        assert following is None or following > cursor
        cursor = following
    assert {name: len(seen[name]) for name in mine} == mine
    assert list(seen) == sorted(seen)
    assert all(numbers == list(range(len(numbers))) for numbers in seen.values())


def test_the_brokers_own_limit_holds_too(headrace_server: StartHeadrace) -> None:
    server = headrace_server(settings={"max.request.partition.size.limit": "2"})
    with Asker(server.bootstrap) as asker:
        name = create_topic(asker, 3)
        assert page(asker, [name]) == ([(name, "NONE", [0, 1])], (name, 2))


# DescribeLogDirs


@pytest.mark.parametrize("version", range(1, 6))
def test_a_data_directory_tells_its_partitions_and_their_bytes(either_broker: str, asker: Asker, version: int) -> None:
    name = create_topic(asker, 2)
    records = batch([b"v" * 100] * 10)
    with Wire(either_broker) as wire:
        for _ in range(3):
            wire.produce(name, records)
    wanted = m.DescribeLogDirsRequest.DescribableLogDirTopic
    asked = [wanted(topic=name, partitions=[0, 1, 9]), wanted(topic="no-such-topic", partitions=[0])]
    answer = asker.ask(m.DescribeLogDirsRequest(topics=asked), version)
    (directory,) = answer.results
    assert (answer.error_code, directory.error_code, directory.log_dir[0]) == (0, 0, "/")
    (topic,) = directory.topics
    parts = sorted(
        (each.partition_index, each.partition_size, each.offset_lag, each.is_future_key) for each in topic.partitions
    )
    assert (topic.name, parts) == (name, [(0, 3 * len(records), 0, False), (1, 0, 0, False)])
    if version >= 4:
        assert 0 < directory.usable_bytes < directory.total_bytes
    else:
        assert directory.usable_bytes == directory.total_bytes == -1
    assert not directory.is_cordoned
    everything = asker.ask(m.DescribeLogDirsRequest(topics=None), version).results[0].topics
    assert name in [each.name for each in everything]
    assert asker.ask(m.DescribeLogDirsRequest(topics=[]), version).results[0].topics == []


def test_each_data_directory_has_its_own_entry(headrace_server: StartHeadrace, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    server = headrace_server(arguments=("--data", f"{first},{second}"))
    with Asker(server.bootstrap) as asker:
        create_topic(asker, 4)
        results = asker.ask(m.DescribeLogDirsRequest(topics=None), 4).results
    assert {each.log_dir: len(each.topics[0].partitions) for each in results} == {str(first): 2, str(second): 2}


# OffsetForLeaderEpoch


def end_of(asker: Asker, topic: str, partition: int, epoch: int, current: int = -1, version: int = 4) -> object:
    """(code's name, epoch, end offset)."""
    part = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=epoch
    )
    asked = m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[part])
    answer = asker.ask(m.OffsetForLeaderEpochRequest(replica_id=-1, topics=[asked]), version).topics[0].partitions[0]
    assert answer.partition == partition
    return ErrorCode(answer.error_code).name, answer.leader_epoch, answer.end_offset


@pytest.mark.parametrize("version", [2, 3, 4])
def test_an_epoch_ends_where_its_leader_stopped(either_broker: str, asker: Asker, version: int) -> None:
    topic = create_topic(asker, 2)
    with Wire(either_broker) as wire:
        assert wire.produce(topic, batch([b"v"] * 10)).error_code == 0
    for partition, epoch, current, told in (
        (0, 0, -1, ("NONE", 0, 10)),
        (0, 0, 0, ("NONE", 0, 10)),
        (1, 0, -1, ("NONE", 0, 0)),
        (0, 1, -1, ("NONE", -1, -1)),
        (0, -1, -1, ("NONE", -1, -1)),
        (0, 5, 0, ("NONE", -1, -1)),
        (0, 0, 1, ("UNKNOWN_LEADER_EPOCH", -1, -1)),
        (0, 0, -5, ("FENCED_LEADER_EPOCH", -1, -1)),
        (9, 0, -1, ("UNKNOWN_TOPIC_OR_PARTITION", -1, -1)),
    ):
        assert end_of(asker, topic, partition, epoch, current, version) == told
    assert end_of(asker, "no-such-topic", 0, 0) == ("UNKNOWN_TOPIC_OR_PARTITION", -1, -1)


def test_each_start_is_an_epoch_of_its_own(headrace_server: StartHeadrace) -> None:
    server = headrace_server()
    with Asker(server.bootstrap) as asker:
        topic = create_topic(asker)
    for number in range(3):
        with Wire(server.bootstrap) as wire:
            assert wire.produce(topic, batch([b"v"] * 10)) == (0, 10 * number)
        server.stop()
        server.restart()
    with Asker(server.bootstrap) as asker:
        for version in range(5):
            ends = [end_of(asker, topic, 0, epoch, version=version) for epoch in range(5)]
            epochs = [0, 1, 2, 3, -1] if version else [-1] * 5
            assert ends == [("NONE", epoch, end) for epoch, end in zip(epochs, (10, 20, 30, 30, -1), strict=True)]
        assert end_of(asker, topic, 0, 0, current=1) == ("FENCED_LEADER_EPOCH", -1, -1)


# DescribeConfigs


def test_what_has_no_settings_is_told_why(asker: Asker) -> None:
    own = broker_id(asker)
    for kind, name, code, message in (
        (2, "no-such-topic", "UNKNOWN_TOPIC_OR_PARTITION", ""),
        (2, "", "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: the empty string is not allowed"),
        (2, "a/b", "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: 'a/b' contains one or more characters"),
        (4, "99", "INVALID_REQUEST", f"Unexpected broker id, expected {own} or empty string, but received 99"),
        (4, "x", "INVALID_REQUEST", "Broker id must be an integer, but it is: x"),
        (3, "x", "INVALID_REQUEST", ""),
        (77, "x", "INVALID_REQUEST", ""),
    ):
        answer = configs_of(asker, kind, name, None)
        assert (ErrorCode(answer.error_code).name, answer.configs) == (code, []), name
        assert (answer.error_message or "").startswith(message)


def test_settings_are_told_by_name_or_all(asker: Asker) -> None:
    topic = create_topic(asker)
    some = ["retention.ms", "no.such", "segment.ms"]
    assert sorted(each.name for each in configs_of(asker, 2, topic, some).configs) == ["retention.ms", "segment.ms"]
    everything: tuple[list[str] | None, ...] = (None, [])
    for keys in everything:
        assert len(configs_of(asker, 2, topic, keys).configs) > 15
    own = str(broker_id(asker))
    (entry,) = configs_of(asker, 4, own, ["num.partitions"]).configs
    assert (entry.value, entry.read_only) == ("1", True)


def configs_of(
    asker: Asker, kind: int, name: str, keys: list[str] | None
) -> m.DescribeConfigsResponse.DescribeConfigsResult:
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    (answer,) = asker.ask(m.DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4).results
    return answer  # type: ignore[no-any-return]


def test_topic_settings_that_both_know_are_the_same(headrace_server: StartHeadrace, apache_kafka: str) -> None:
    described = []
    for bootstrap in (headrace_server().bootstrap, apache_kafka):
        with Asker(bootstrap) as asker:
            name = create_topic(asker, settings={"retention.ms": "1000", "cleanup.policy": "compact,delete"})
            described.append({each.name: each for each in configs_of(asker, 2, name, None).configs})
    ours, theirs = described
    of_old_releases = {"message.format.version", "message.timestamp.difference.max.ms"}  # Apache Kafka 4 dropped them
    our_own = {name for name in ours if name.startswith("headrace.")}
    assert our_own == {
        "headrace.flush.acks", "headrace.kafka07.enable", "headrace.lake", "headrace.preallocate.room",
        "headrace.reliable",
    }  # fmt: skip
    assert set(ours) - set(theirs) == of_old_releases | our_own
    started_with = {"min.insync.replicas"}  # KRaft writes this one down for the whole cluster
    for name in set(ours) & set(theirs):
        our, their = ours[name], theirs[name]
        assert (our.value, our.config_type) == (their.value, their.config_type), name
        assert (our.read_only, our.is_sensitive) == (their.read_only, their.is_sensitive), name
        if name not in started_with:
            assert our.config_source == their.config_source, name
            told = [(each.name, each.value, each.source) for each in their.synonyms]
            assert told == [(each.name, each.value, each.source) for each in our.synonyms][: len(told)], name
