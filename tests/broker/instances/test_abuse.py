"""A client of an instance cannot take from the operator, pass its limits by, or cost the broker more than it sends."""

import gc
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from headrace.broker.instances import consumer_protocol
from headrace.broker.instances.dispatch import InstanceDispatcher
from headrace.broker.instances.names import InstanceNames
from headrace.errors import ErrorCode
from headrace.instances.definition import Instance
from headrace.instances.names import Namespace
from headrace.limits import (
    ADMITTED_NAME_CHARS_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    REGULAR_EXPRESSION_CHARS_MAX,
    TOPIC_NAME_CHARS_MAX,
)
from headrace.protocol import messages as m
from headrace.security.access import Decisions
from tests.asker import Asker
from tests.broker.instances.houses import Houses
from tests.eventually import eventually

PARTITIONS_MAX = 3
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Houses]:
    instances = (
        Instance("acme", "AAAAAAAAQACAAAAAAAAAAA", partitions_max=PARTITIONS_MAX),
        Instance("beta", "BBBBBBBBQBCBBBBBBBBBBA", brokers=(0,)),
        Instance("coda", "CCCCCCCCQCCCCCCCCCCCCA", topics_max=2, partitions_max=6),
    )
    with Houses(tmp_path_factory.mktemp("abuse") / "data", instances) as found:
        yield found


def create(wire: Asker, *topics: tuple[str, int], configs: Mapping[str, str] | None = None) -> list[Any]:
    """Asks for topics; returns the error of each."""
    kind = m.CreateTopicsRequest
    given = [kind.CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()]
    wanted = [
        kind.CreatableTopic(name=name, num_partitions=count, replication_factor=1, configs=given)
        for name, count in topics
    ]
    answer = wire.ask(kind(topics=wanted, timeout_ms=10_000), 7)
    return [each.error_code for each in answer.topics]


def offsets_of_nobody(wire: Asker) -> list[str]:
    return [each.name for each in wire.ask(m.OffsetFetchRequest(group_id="", topics=None), 5).topics]


def test_the_group_without_a_name_is_the_operators(houses: Houses) -> None:
    """Every instance has one of its own, as the operator does."""
    commit = m.OffsetCommitRequest
    part = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topic = commit.OffsetCommitRequestTopic(name="kept", partitions=[part])
    request = commit(group_id="", generation_id_or_member_epoch=-1, member_id="", topics=[topic])
    delete = m.DeleteGroupsRequest(groups_names=[""])
    with Asker(houses.bootstrap) as wire, houses.ask("acme") as tenant:
        assert create(wire, ("kept", 1)) == [0]
        find = m.FindCoordinatorRequest(key_type=0, coordinator_keys=["any"])
        eventually(lambda: not wire.ask(find, 4).coordinators[0].error_code, "a coordinator")
        eventually(lambda: not wire.ask(request, 8).topics[0].partitions[0].error_code, "a commit")
        assert offsets_of_nobody(wire) == ["kept"]
        for version in range(3):
            assert tenant.ask(delete, version).results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert offsets_of_nobody(wire) == ["kept"]
        assert wire.ask(delete, 2).results[0].error_code == 0, "the operator may"


def test_a_negative_number_of_partitions_makes_no_room(houses: Houses) -> None:
    with houses.ask("acme") as wire:
        assert create(wire, ("less", -1000), ("more", PARTITIONS_MAX + 1)) == [
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.POLICY_VIOLATION,
        ]
        assert create(wire, ("enough", PARTITIONS_MAX)) == [0]


def test_requests_at_the_same_moment_do_not_pass_the_limits_by(houses: Houses) -> None:
    kind = m.CreateTopicsRequest
    wires = [houses.ask("coda") for _ in range(8)]
    for number, wire in enumerate(wires):
        wanted = kind.CreatableTopic(name=f"at-once-{number}", num_partitions=2, replication_factor=1)
        wire.send(kind(topics=[wanted], timeout_ms=10_000), 7)
    codes = [wire.receive(kind(), 7).topics[0].error_code for wire in wires]
    assert sorted(codes) == [0, 0, *[ErrorCode.POLICY_VIOLATION] * 6]
    made = codes.index(0)
    grow = m.CreatePartitionsRequest
    for wire in wires:
        grown = grow.CreatePartitionsTopic(name=f"at-once-{made}", count=4, assignments=None)
        wire.send(grow(topics=[grown], timeout_ms=10_000), 3)
    assert [wire.receive(grow(), 3).results[0].error_code for wire in wires].count(0) == 1
    drop = m.DeleteTopicsRequest(
        topics=[m.DeleteTopicsRequest.DeleteTopicState(name=f"at-once-{made}")], timeout_ms=10_000
    )
    assert wires[0].ask(drop, 6).responses[0].error_code == 0
    eventually(lambda: create(wires[0], ("later", 4)) == [0], "room for another topic")
    for wire in wires:
        wire.socket.close()


def test_a_name_of_the_operators_is_not_told_by_a_collision(houses: Houses) -> None:
    """`beta.or.ders` and `beta_or_ders` are alike for metrics that know no dots; within one owner they collide."""
    with Asker(houses.bootstrap) as operator, houses.ask("beta") as wire:
        assert create(operator, ("beta_or_ders", 1)) == [0]
        assert create(wire, ("or.ders", 1)) == [0]
        assert create(wire, ("or_ders", 1)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert create(operator, ("beta.or_ders", 1)) == [ErrorCode.INVALID_TOPIC_EXCEPTION], (
            "the operator makes one of it"
        )
        assert create(operator, ("beta_or.ders", 1)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert create(wire, ("first.one", 1)) == [0]
        assert create(operator, ("beta_first_one", 1), ("no-instance.a", 1)) == [0, 0]
        assert create(operator, ("no-instance_a", 1)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_partitions_above_any_limit_are_not_placed(houses: Houses) -> None:
    """To place two milliards of them on brokers would take the event loop for half an hour."""
    most = (1 << 31) - 1
    with houses.ask("beta") as wire:
        assert create(wire, ("huge", most)) == [ErrorCode.INVALID_PARTITIONS]
        assert create(wire, ("above", PARTITIONS_PER_TOPIC_MAX + 1)) == [ErrorCode.INVALID_PARTITIONS]
        assert create(wire, ("grows", 1)) == [0]
        grown = m.CreatePartitionsRequest.CreatePartitionsTopic(name="grows", count=most, assignments=None)
        answer = wire.ask(m.CreatePartitionsRequest(topics=[grown], timeout_ms=10_000), 3)
        assert answer.results[0].error_code == ErrorCode.INVALID_PARTITIONS


def test_deleted_files_do_not_stay_longer_than_the_operator_wants(houses: Houses) -> None:
    """They are on the disk, and in nobody's capacity."""
    name, longer = "file.delete.delay.ms", str(DAY_MS)
    alter = m.IncrementalAlterConfigsRequest
    with houses.ask("beta") as wire:
        assert create(wire, ("slow", 1), configs={name: longer}) == [ErrorCode.POLICY_VIOLATION]
        assert create(wire, ("fast", 1), configs={name: "1000"}) == [0]
        for value, code in ((longer, ErrorCode.POLICY_VIOLATION), ("2000", ErrorCode.NONE)):
            config = alter.AlterableConfig(name=name, config_operation=0, value=value)
            resource = alter.AlterConfigsResource(resource_type=2, resource_name="fast", configs=[config])
            assert wire.ask(alter(resources=[resource]), 1).responses[0].error_code == code, value


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("segment.bytes", "100", 1 << 20),
        ("segment.ms", "1", 60_000),
        ("segment.index.bytes", "12", 16 << 10),
        ("index.interval.bytes", "0", 1024),
        ("max.compaction.lag.ms", "1", 60_000),
    ],
)
def test_a_few_bytes_do_not_make_a_segment(houses: Houses, name: str, value: str, allowed: int) -> None:
    """Each is several open files of the broker, which are everybody's."""
    with houses.ask("beta") as wire:
        assert create(wire, (f"small-{name}", 1), configs={name: value}) == [ErrorCode.POLICY_VIOLATION]
        assert create(wire, (f"large-{name}", 1), configs={name: str(allowed)}) == [0]


def test_names_that_no_topic_can_have_are_not_kept(houses: Houses) -> None:
    """Neither by the connection nor by the instance, on the plain path and on the general one."""
    produce = m.ProduceRequest
    long = "x" * (1 << 16)
    with houses.ask("beta") as wire:
        for name in ("y" * TOPIC_NAME_CHARS_MAX, long):
            part = produce.PartitionProduceData(index=0, records=b"x" * 100)
            topic = produce.TopicProduceData(name=name, partition_data=[part])
            answer = wire.ask(produce(acks=1, timeout_ms=1000, topic_data=[topic]), 9)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        wire.ask(m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=long)]), 9)
        kept = kept_names()
    assert TOPIC_NAME_CHARS_MAX <= max(map(len, kept)) <= ADMITTED_NAME_CHARS_MAX


def test_a_fetch_session_does_not_keep_names_that_no_topic_can_have(houses: Houses) -> None:
    fetch = m.FetchRequest
    part = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1024)
    short, long = (fetch.FetchTopic(topic=name, partitions=[part]) for name in ("short", "z" * (1 << 16)))
    with houses.ask("beta") as wire:
        assert wire.ask(fetch(max_wait_ms=0, topics=[long], session_epoch=0), 12).session_id == 0
        session_id = wire.ask(fetch(max_wait_ms=0, topics=[short], session_epoch=0), 12).session_id
        assert session_id
        grown = fetch(max_wait_ms=0, topics=[long], session_id=session_id, session_epoch=1)
        assert wire.ask(grown, 12).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def kept_names() -> list[str]:
    """The names in all that connections and dispatchers of this process keep."""
    found = gc.get_objects()
    decisions = [each for each in found if isinstance(each, Decisions)]
    names = [str(name) for each in decisions for name in (*(made[-1] for made in each.made), *each.plain)]
    dispatchers = [each for each in found if isinstance(each, InstanceDispatcher)]
    return [*names, *(name for each in dispatchers for name in each._plain_names.values())]


@pytest.mark.parametrize("expression", [".*\\Q", "(?:.*\\Q", "a|.*\\Qb", "\\pL{1000}", "a" * 9000])
def test_an_expression_that_is_valid_only_by_itself_matches_nothing(expression: str) -> None:
    import re2

    options = re2.Options()
    options.log_errors = False
    assert len("a" * 9000) > REGULAR_EXPRESSION_CHARS_MAX
    with pytest.raises(re2.error):
        re2.compile(InstanceNames(Namespace("acme")).regex(expression), options)


@pytest.mark.slow
def test_many_empty_names_take_no_more_memory_than_they_have_bytes() -> None:
    import tracemalloc

    count = 50_000
    subscription = bytes(2) + count.to_bytes(4, "big") + b"\0\1t" * count + (-1).to_bytes(4, "big", signed=True)
    renaming = consumer_protocol.subscription(subscription, InstanceNames(Namespace("acme")).qualified)
    renamed, peak = b"", 0
    tracemalloc.start()
    try:
        while True:
            next(renaming)
    except StopIteration as done:
        renamed, peak = done.value, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(renamed) == len(subscription) + count * len("acme.")
    assert peak < 4 * len(renamed)


def test_a_user_called_star_is_not_everybody() -> None:
    names = Namespace("acme")
    assert names.qualified_client("User:*") == "User:acme.*"
    assert names.qualified_principal("User:*") == "User:*", "as the rules have it"
