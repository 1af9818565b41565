"""Streams groups (KIP-1071): members, topologies, statuses and descriptions, asked of both."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.coordinators.groups.streams.samples import requested, subtopology
from tests.differential.conversation import Conversation
from tests.differential.scenario import scenario

pytestmark = pytest.mark.slow  # asks Apache Kafka

BEAT, DESCRIBE = ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE
Request = m.StreamsGroupHeartbeatRequest
Response = m.StreamsGroupHeartbeatResponse


def _ids(tasks: dict[str, list[int]]) -> list[Request.TaskIds]:
    return [Request.TaskIds(subtopology_id=name, partitions=numbers) for name, numbers in tasks.items()]


def _heartbeat(group: str, member: str, epoch: int, **fields: Any) -> Request:
    fields = {"endpoint_information_epoch": -1, **fields}
    return Request(group_id=group, member_id=member, member_epoch=epoch, **fields)


def _owning(
    group: str, member: str, epoch: int, active: dict[str, list[int]], standby: dict[str, list[int]] | None = None
) -> Request:
    """A heartbeat that names the member's tasks."""
    return _heartbeat(
        group, member, epoch, active_tasks=_ids(active), standby_tasks=_ids(standby or {}), warmup_tasks=[]
    )


def _joining(group: str, member: str, topology: Request.Topology | None, **fields: Any) -> Request:
    joining: dict[str, Any] = {
        "rebalance_timeout_ms": 60_000,
        "topology": topology,
        "process_id": f"process-{member}",
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
    }
    return _heartbeat(group, member, 0, **{**joining, **fields})


def _has_no_status(answer: Response) -> bool:
    return answer.error_code != ErrorCode.NONE or not answer.status


def _is_known(*names: str) -> Callable[[Any], bool]:
    return lambda answer: {each.name for each in answer.topics if not each.error_code} >= set(names)


def _joined(ask: Conversation, group: str, member: str, topology: Request.Topology, **fields: Any) -> Response:
    """A member that has joined, once the coordinator knows the topics: another group shows that. Not recorded."""
    _seen(ask, topology)
    answer: Response = ask.quietly(_joining(group, member, topology, **fields), 0)
    return answer


def _seen(ask: Conversation, topology: Request.Topology) -> None:
    probe = ask.name("probe")
    ask.settle(_has_no_status, _joining(probe, "probe", topology), 0)
    ask.quietly(_heartbeat(probe, "probe", -1), 0)


def _simple(ask: Conversation, partitions: int = 2) -> Request.Topology:
    """A topology of one subtopology, which reads a topic that exists."""
    return requested(subtopology("0", [ask.topic(partitions=partitions)]))


@scenario(BEAT)
def test_joins_alone_and_leaves(ask: Conversation) -> None:
    group, topology = ask.name(), _simple(ask)
    answer = _joined(ask, group, "one", topology)
    ask.note("tasks", sorted(answer.active_tasks[0].partitions) if answer.active_tasks else None)
    epoch = answer.member_epoch
    ask(_heartbeat(group, "one", epoch))
    ask(_owning(group, "one", epoch, {"0": [0, 1]}))
    ask(_heartbeat(group, "one", -1))
    ask(_heartbeat(group, "one", epoch))
    ask(_heartbeat(group, "one", -1))
    ask(m.DescribeGroupsRequest(groups=[group]), 6)
    ask(_joining(group, "two", topology))


@scenario(BEAT)
def test_moves_tasks_to_a_second_member(ask: Conversation) -> None:
    group, topology = ask.name(), _simple(ask, 4)
    first = _joined(ask, group, "one", topology).member_epoch
    second = ask(_joining(group, "two", topology)).member_epoch
    kept = ask(_heartbeat(group, "one", first))
    ask(_heartbeat(group, "two", second))
    owned = {each.subtopology_id: list(each.partitions) for each in kept.active_tasks or ()}
    done = ask(_owning(group, "one", kept.member_epoch, owned))
    ask(_heartbeat(group, "two", second))
    ask(_heartbeat(group, "two", second))
    ask(_heartbeat(group, "one", done.member_epoch))
    ask(_heartbeat(group, "one", -1))
    ask(_owning(group, "two", second, {"0": [0, 1, 2, 3]}))
    ask(_heartbeat(group, "two", second))


@scenario(BEAT)
def test_refuses_wrong_heartbeats(ask: Conversation) -> None:
    group, topology = ask.name(), _simple(ask)
    wrong_fields: tuple[dict[str, Any], ...] = (
        {"instance_id": "i"}, {"rebalance_timeout_ms": -1}, {"rack_id": ""},
        {"active_tasks": _ids({"0": [0]})}, {"standby_tasks": _ids({"0": [0]})}, {"warmup_tasks": _ids({"0": [0]})},
        {"active_tasks": None}, {"task_offsets": []}, {"task_end_offsets": []},
    )  # fmt: skip
    for fields in wrong_fields:
        ask(_joining(group, "one", topology, **fields))
    for wrong in (
        _joining("", "one", topology), _joining(group, "", topology), _heartbeat(group, "one", -2),
        _joining(group, "one", None),
        _heartbeat(group, "one", -3), _heartbeat(group, "one", 5), _heartbeat(group, "one", -1),
        _heartbeat(group, "one", 5, topology=topology),
    ):  # fmt: skip
        ask(wrong)
    epoch = _joined(ask, group, "one", topology).member_epoch
    for wrong in (
        _heartbeat(group, "one", epoch + 1), _heartbeat(group, "one", epoch - 1), _heartbeat(group, "stranger", epoch),
        _owning(group, "one", epoch, {"9": [0]}), _owning(group, "one", epoch, {"0": [2]}),
        _owning(group, "one", epoch, {"0": [-1]}), _heartbeat(group, "one", epoch, active_tasks=[]),
        _joining(group, "two", requested(subtopology("0", ["other"]))), _heartbeat(ask.name("missing"), "one", 1),
    ):  # fmt: skip
        ask(wrong)


@scenario(BEAT)
def test_refuses_wrong_topologies(ask: Conversation) -> None:
    source = ask.topic(partitions=2)
    for number, topology in enumerate(
        (
            requested(subtopology("0", ["__consumer_offsets"])),
            requested(subtopology("0", ["not legal"])),
            requested(subtopology("0", [source]), subtopology("1", repartitions=["never-written"])),
            requested(subtopology("0", repartitions=["loop"], sinks=["loop"])),
            requested(subtopology("0")),
        )
    ):
        ask(_joining(ask.name(f"g{number}"), "one", topology))
    counted = requested(subtopology("0", [source], changelogs=["log"]))
    counted.subtopologies[0].state_changelog_topics[0].partitions = 3
    ask(_joining(ask.name("counted"), "one", counted))
    pattern = requested(subtopology("0", [source]))
    pattern.subtopologies[0].source_topic_regex = ["a.*"]
    ask(_joining(ask.name("pattern"), "one", pattern))


@scenario(BEAT)
def test_tells_which_topics_are_missing(ask: Conversation) -> None:
    missing = [ask.name(each) for each in "dbcae"]
    ask(_joining(ask.name("sources"), "one", requested(subtopology("0", missing))))
    two, three = ask.topic("two", partitions=2), ask.topic("three", partitions=3)
    _seen(ask, requested(subtopology("0", [two, three])))
    ask(_joining(ask.name("counts"), "one", requested(subtopology("0", [two, three], copartitioned=[([0, 1], [])]))))


@scenario(BEAT)
def test_creates_internal_topics(ask: Conversation) -> None:
    group, source = ask.name(), ask.topic("source", partitions=3)
    repartition, changelog = ask.name("repartition"), ask.name("changelog")
    topology = requested(
        subtopology("0", [source], sinks=[repartition]),
        subtopology("1", repartitions=[repartition], changelogs=[changelog]),
    )
    ask.settle(
        lambda answer: bool(answer.status) and answer.status[0].status_code == 3, _joining(group, "one", topology)
    )
    names = (repartition, changelog)
    request = m.MetadataRequest(
        topics=[m.MetadataRequest.MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
    )
    found = ask.settle(_is_known(*names), request, 12)
    ask.note("partitions", {each.name: len(each.partitions) for each in found.topics if each.name in names})
    described = m.DescribeConfigsRequest(
        resources=[
            m.DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=2, resource_name=changelog, configuration_keys=["cleanup.policy"]
            )
        ]
    )
    ask(described, 4)
    answer = _joined(ask, group, "two", topology)
    ask.note("error", answer.error_code)


@scenario(BEAT)
def test_tells_endpoints_when_they_changed(ask: Conversation) -> None:
    group, topology = ask.name(), _simple(ask)
    endpoint = Request.Endpoint(host="one.example", port=8080)
    _joined(ask, group, "none", topology)
    ask(_heartbeat(group, "none", -1))
    answer = ask(_joining(group, "one", topology, user_endpoint=endpoint))
    epoch = answer.member_epoch
    ask(_heartbeat(group, "one", epoch, endpoint_information_epoch=answer.endpoint_information_epoch))
    ask(_heartbeat(group, "one", epoch, endpoint_information_epoch=answer.endpoint_information_epoch + 1))
    ask(_joining(group, "two", topology, user_endpoint=Request.Endpoint(host="two.example", port=8081)))


@scenario(BEAT)
def test_passes_on_a_shutdown_request(ask: Conversation) -> None:
    group, topology = ask.name(), _simple(ask)
    _joined(ask, group, "one", topology)
    second = ask(_joining(group, "two", topology)).member_epoch
    ask(_heartbeat(group, "one", -1, shutdown_application=True))
    ask(_heartbeat(group, "two", second))
    ask(_heartbeat(group, "two", -1))
    ask(_joining(group, "three", topology))


@scenario(BEAT)
def test_tells_a_member_that_its_topology_is_old(ask: Conversation) -> None:
    group, source = ask.name(), ask.topic(partitions=1)
    _joined(ask, group, "one", requested(subtopology("0", [source]), epoch=3))
    ask(_joining(group, "two", requested(subtopology("0", [source]), epoch=2)))
    ask(_joining(group, "three", requested(subtopology("0", [source]), epoch=4)))


@scenario(BEAT)
def test_checks_epochs_of_commits_and_fetches(ask: Conversation) -> None:
    group, source = ask.name(), ask.topic(partitions=2)
    topology = requested(subtopology("0", [source]))
    epoch = _joined(ask, group, "one", topology).member_epoch

    def commit(member: str, number: int, topic: str, partition: int) -> m.OffsetCommitRequest:
        offset = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=partition, committed_offset=5)
        return m.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=number,
            member_id=member,
            topics=[m.OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[offset])],
        )

    for member, number in (("one", epoch), ("one", epoch + 1), ("one", epoch - 1), ("stranger", epoch), ("", -1)):
        ask(commit(member, number, source, 0), 9)
    ask(commit("one", epoch, source, 0), 8)
    other = m.OffsetFetchRequest.OffsetFetchRequestGroup
    for named, number in (("one", epoch), ("one", epoch - 1), ("stranger", epoch), (None, -1)):
        ask(m.OffsetFetchRequest(groups=[other(group_id=group, member_id=named, member_epoch=number)]), 9)
    delete = m.OffsetDeleteRequest.OffsetDeleteRequestTopic(
        name=source, partitions=[m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)]
    )
    ask(m.OffsetDeleteRequest(group_id=group, topics=[delete]), 0)
    ask(m.DeleteGroupsRequest(groups_names=[group]), 2)
    ask(_heartbeat(group, "one", -1))
    ask(m.OffsetDeleteRequest(group_id=group, topics=[delete]), 0)
    ask(m.DeleteGroupsRequest(groups_names=[group]), 2)
    ask(m.StreamsGroupDescribeRequest(group_ids=[group]), 0)


@scenario(DESCRIBE)
def test_describes_groups(ask: Conversation) -> None:
    group, source = ask.name(), ask.topic(partitions=2)
    topology = requested(subtopology("0", [source]))
    ask(m.StreamsGroupDescribeRequest(group_ids=[group, ""]))
    tags = [Request.KeyValue(key="zone", value="z")]

    def joining(member: str) -> Request:
        endpoint = Request.Endpoint(host="a.example", port=1)
        return _joining(group, member, topology, client_tags=tags, rack_id="rack", user_endpoint=endpoint)

    _seen(ask, topology)
    ask.quietly(joining("one"), 0)
    ask(m.StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=True))
    ask(m.DescribeGroupsRequest(groups=[group]), 6)
    missing = ask.name("missing")
    ask(_joining(missing, "one", requested(subtopology("0", [ask.name("no topic")[:3]]))), 0)
    ask(m.StreamsGroupDescribeRequest(group_ids=[missing]))
