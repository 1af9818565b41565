"""Groups seen and changed from outside, in every version, and the same questions to Apache Kafka: the same answers."""

import uuid
from collections.abc import Iterator, Sequence

import pytest

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.broker.test_group_apis import SETTINGS, a_topic, commit, fetch, fetched, heartbeat, join, leave, sync
from tests.conftest import StartHeadrace

pytestmark = pytest.mark.slow  # processes of its own


def list_groups(states: Sequence[str] = (), types: Sequence[str] = ()) -> m.ListGroupsRequest:
    return m.ListGroupsRequest(states_filter=list(states), types_filter=list(types))


def describe(*groups: str, operations: bool = False) -> m.DescribeGroupsRequest:
    return m.DescribeGroupsRequest(groups=list(groups), include_authorized_operations=operations)


def delete(*groups: str) -> m.DeleteGroupsRequest:
    return m.DeleteGroupsRequest(groups_names=list(groups))


def delete_offsets(group: str, **partitions: list[int]) -> m.OffsetDeleteRequest:
    part = m.OffsetDeleteRequest.OffsetDeleteRequestPartition
    topics = [
        m.OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name, partitions=[part(partition_index=n) for n in numbers])
        for name, numbers in partitions.items()
    ]
    return m.OffsetDeleteRequest(group_id=group, topics=topics)


class Groups:
    """A conversation about groups; names that differ from run to run are taken out of what it is told."""

    def __init__(self, bootstrap: str) -> None:
        self.asker = Asker(bootstrap)
        self.topic = a_topic(bootstrap)
        self.prefix = f"administered-{uuid.uuid4().hex[:8]}"
        self.member_id = ""

    def plain(self, text: str | None) -> str | None:
        if text is None:
            return None
        text = text.replace(self.prefix, "GROUP").replace(self.topic, "TOPIC")
        return text.replace(self.member_id, "MEMBER") if self.member_id else text

    def listed(self, version: int, states: Sequence[str] = (), types: Sequence[str] = ()) -> object:
        answer = self.asker.ask(list_groups(states, types), version)
        rows = sorted(
            (self.plain(each.group_id), each.protocol_type, each.group_state, each.group_type)
            for each in answer.groups
            if each.group_id.startswith(self.prefix)
        )
        return "listed", ErrorCode(answer.error_code).name, rows

    def described(self, version: int, *groups: str, operations: bool = False) -> object:
        answer = self.asker.ask(describe(*groups, operations=operations), version)
        return "described", [
            (
                ErrorCode(each.error_code).name,
                self.plain(each.error_message),
                self.plain(each.group_id),
                each.group_state,
                each.protocol_type,
                each.protocol_data,
                each.authorized_operations,
                [
                    (self.plain(one.member_id), one.group_instance_id, one.client_id, one.client_host,
                     bytes(one.member_metadata).replace(self.topic.encode(), b"TOPIC"), bytes(one.member_assignment))
                    for one in each.members
                ],
            )
            for each in answer.groups
        ]  # fmt: skip

    def deleted(self, version: int, *groups: str) -> object:
        answer = self.asker.ask(delete(*groups), version)
        return "deleted", sorted(
            (self.plain(each.group_id), ErrorCode(each.error_code).name) for each in answer.results
        )

    def forgotten(self, group: str, **partitions: list[int]) -> object:
        answer = self.asker.ask(delete_offsets(group, **partitions), 0)
        return "forgotten", ErrorCode(answer.error_code).name, sorted(
            (self.plain(topic.name), each.partition_index, ErrorCode(each.error_code).name)
            for topic in answer.topics
            for each in topic.partitions
        )  # fmt: skip

    def kept(self, group: str) -> object:
        return "kept", [
            (partition, offset)
            for partition, offset, _, _ in fetched(self.asker.ask(fetch(group, self.topic, 8), 8))
            if offset >= 0
        ]

    def joined(self, group: str, protocol_type: str = "consumer", metadata: bytes | None = None) -> None:
        request = join(group)
        request.protocol_type = protocol_type
        if metadata is not None:
            request.protocols[0].metadata = metadata
        self.member_id = self.asker.ask(request, 3).member_id

    def subscription(self, *topics: str) -> bytes:
        body = m.ConsumerProtocolSubscription(topics=list(topics)).encode(0)
        return b"\0\0" + body


def the_life_of_groups(bootstrap: str) -> Iterator[object]:
    """Everything that administration is told of groups from their first commit to their deletion."""
    talk = Groups(bootstrap)
    simple, member = f"{talk.prefix}-simple", f"{talk.prefix}-member"
    missing = f"{talk.prefix}-missing"
    for version in range(6):
        yield talk.listed(version)
    for version in range(7):
        yield talk.described(version, missing)
        yield talk.described(version, "", missing, operations=version >= 3)
    for version in range(3):
        yield talk.deleted(version, missing)
        yield talk.deleted(version, "", missing, missing)
        yield talk.deleted(version)
    yield talk.forgotten(missing, **{talk.topic: [0]})

    talk.asker.ask(commit(simple, talk.topic, -1, ""), 8)
    yield from states(talk, simple, "a group of offsets alone")

    talk.joined(member, metadata=talk.subscription(talk.topic))
    yield from states(talk, member, "a rebalance that waits for its leader")
    talk.asker.ask(sync(member, 1, talk.member_id, 3), 3)
    yield from states(talk, member, "a stable group")
    answer = talk.asker.ask(commit(member, talk.topic, 1, talk.member_id), 8)
    yield talk.listed(5, ["stable"]), talk.listed(5, ["Empty", "STABLE"]), talk.listed(4, ["nonsense"])
    yield talk.listed(5, [], ["classic"]), talk.listed(5, ["stable"], ["Consumer"]), talk.listed(5, [], ["nonsense"])
    yield talk.listed(5, [" stable "]), talk.listed(5, [], ["CLASSIC", "consumer"]), talk.listed(5, [""])
    yield talk.deleted(2, member, missing, simple), talk.described(6, simple), talk.kept(simple)
    yield talk.forgotten(member, **{talk.topic: [0, 7], "no-such-topic": [0]}), talk.kept(member)
    assert answer.topics[0].partitions[0].error_code == 0

    talk.asker.ask(leave(member, talk.member_id, 3), 3)
    yield from states(talk, member, "a group whose member left")
    yield talk.forgotten(member, **{talk.topic: [0, 1, 7], "no-such-topic": [0]}), talk.kept(member)
    yield talk.listed(5), talk.described(6, member), talk.forgotten(member, **{talk.topic: [0]})
    yield talk.deleted(2, member), talk.listed(5), talk.described(6, member)


def states(talk: Groups, group: str, title: str) -> Iterator[object]:
    """What each version says of a group in its present state."""
    yield title
    for version in range(6):
        yield talk.listed(version)
    for version in range(7):
        yield talk.described(version, group, operations=version in (3, 6))


def groups_that_are_no_consumers(bootstrap: str) -> Iterator[object]:
    """Connect's groups, and members whose subscription cannot be read."""
    talk = Groups(bootstrap)
    connect, broken, other = (f"{talk.prefix}-{each}" for each in ("connect", "broken", "other"))
    for group, protocol_type, metadata in (
        (connect, "connect", b"\0\1"),
        (broken, "consumer", b"\0"),
        (other, "consumer", talk.subscription("another-topic")),
    ):
        talk.asker.ask(commit(group, talk.topic, -1, ""), 8)
        talk.joined(group, protocol_type, metadata)
        yield group.rpartition("-")[2], talk.forgotten(group, **{talk.topic: [0]}), talk.kept(group)
        request = sync(group, 1, talk.member_id, 3)
        yield talk.asker.ask(request, 3).error_code
        yield talk.forgotten(group, **{talk.topic: [0]}), talk.kept(group)
        yield talk.listed(5), talk.deleted(2, group)
        yield talk.asker.ask(heartbeat(group, 1, talk.member_id), 4).error_code
        talk.asker.ask(leave(group, talk.member_id, 3), 3)
        yield talk.forgotten(group, **{talk.topic: [0]}), talk.kept(group), talk.deleted(2, group)


def everything(bootstrap: str) -> list[object]:
    return [*the_life_of_groups(bootstrap), *groups_that_are_no_consumers(bootstrap)]


def test_groups_are_listed_described_and_deleted(headrace_server: StartHeadrace) -> None:
    told = everything(headrace_server(settings=SETTINGS).bootstrap)
    assert ("listed", "NONE", [("GROUP-simple", "", "Empty", "classic")]) in told
    assert ("deleted", [("", "GROUP_ID_NOT_FOUND"), ("GROUP-missing", "GROUP_ID_NOT_FOUND")]) in told
    assert told[-1] == (
        ("forgotten", "NONE", [("TOPIC", 0, "NONE")]), ("kept", []), ("deleted", [("GROUP-other", "NONE")])
    )  # fmt: skip


def test_apache_kafka_tells_administration_the_same(headrace_server: StartHeadrace, apache_kafka: str) -> None:
    ours, theirs = everything(headrace_server(settings=SETTINGS).bootstrap), everything(apache_kafka)
    for number, (told, expected) in enumerate(zip(ours, theirs, strict=True)):
        assert told == expected, number


def test_a_deleted_group_stays_deleted_after_a_kill(headrace_server: StartHeadrace) -> None:
    server = headrace_server(settings=SETTINGS)
    topic, asker = a_topic(server.bootstrap), Asker(server.bootstrap)
    for group in ("goes", "stays", "forgets"):
        assert asker.ask(commit(group, topic, -1, ""), 8).topics[0].partitions[0].error_code == 0
    assert asker.ask(delete("goes"), 2).results[0].error_code == 0
    assert asker.ask(delete_offsets("forgets", **{topic: [0]}), 0).error_code == 0
    server.kill()
    asker = Asker(server.restart().bootstrap)
    while (answer := asker.ask(list_groups(), 5)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        pass
    assert [each.group_id for each in answer.groups] == ["stays"]


def test_before_any_group_there_is_no_coordinator_to_describe_or_delete(headrace_server: StartHeadrace) -> None:
    asker = Asker(headrace_server(settings=SETTINGS).bootstrap)
    assert asker.ask(list_groups(), 5).groups == []
    assert asker.ask(describe("g"), 6).groups[0].error_code == ErrorCode.NOT_COORDINATOR
    assert asker.ask(delete("g"), 2).results[0].error_code == ErrorCode.NOT_COORDINATOR
    assert asker.ask(delete_offsets("g"), 0).error_code == ErrorCode.NOT_COORDINATOR
