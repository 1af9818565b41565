"""The members of groups, from FindCoordinator to LeaveGroup, and descriptions of groups, asked of both."""

from typing import Any

import pytest

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.differential.conversation import Conversation
from tests.differential.requests import commit_request, join_request, sync_request
from tests.differential.scenario import scenario

pytestmark = pytest.mark.slow  # asks Apache Kafka

JOIN, SYNC, BEAT, LEAVE = ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP
Protocol = m.JoinGroupRequest.JoinGroupRequestProtocol


def _joined(ask: Conversation, group: str, **more: Any) -> tuple[str, int]:
    """A member of a new group, alone and synced; not recorded."""
    answer = ask.quietly(join_request(group, **more), 5 if "group_instance_id" in more else 3)
    assert answer.error_code == 0, answer
    synced = ask.quietly(sync_request(group, answer.member_id, answer.generation_id), 3)
    assert synced.error_code == 0, synced
    return answer.member_id, answer.generation_id


@scenario(ApiKey.FIND_COORDINATOR, range(4))
def test_finds_the_coordinator_of_a_group(ask: Conversation) -> None:
    for key in (ask.name(), ""):
        ask(m.FindCoordinatorRequest(key=key))
    if ask.version >= 1:
        for kind in (2, 7, -1):
            ask(m.FindCoordinatorRequest(key="x", key_type=kind))


@scenario(ApiKey.FIND_COORDINATOR, range(4, 7))
def test_finds_the_coordinators_of_groups(ask: Conversation) -> None:
    for keys in ([ask.name()], [ask.name("a"), ask.name("b")], [""], []):
        ask(m.FindCoordinatorRequest(key_type=0, coordinator_keys=keys))
    for kind in (7, -1):
        ask(m.FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"]))


@scenario(JOIN)
def test_joins_alone(ask: Conversation) -> None:
    group = ask.name()
    answer = ask(join_request(group))
    if answer.error_code:
        answer = ask(join_request(group, answer.member_id))
    ask(sync_request(group, answer.member_id, answer.generation_id), 5)
    ask(join_request(group, answer.member_id))
    ask(m.DescribeGroupsRequest(groups=[group]), 5)


@scenario(JOIN, range(5, 10))
def test_joins_as_a_static_member(ask: Conversation) -> None:
    group = ask.name()
    answer = ask(join_request(group, group_instance_id="one"))
    member, generation = answer.member_id, answer.generation_id
    ask(sync_request(group, member, generation, group_instance_id="one"), 5)
    for who, instance in ((member, "one"), ("stranger", "one"), (member, "two"), (member, None)):
        beat = m.HeartbeatRequest(group_id=group, generation_id=generation, member_id=who, group_instance_id=instance)
        ask(beat, 4)
    ask(join_request(group, "stranger", group_instance_id="one"))
    for number, instance in enumerate(("", "x" * 250, "not legal", ".")):
        ask(join_request(ask.name(f"g{number}"), group_instance_id=instance))


@scenario(JOIN)
def test_refuses_wrong_joins(ask: Conversation) -> None:
    wrong: list[dict[str, Any]] = [
        {"session_timeout_ms": 5_999}, {"session_timeout_ms": 1_800_001}, {"session_timeout_ms": -1}, {"protocols": []},
        {"protocol_type": ""}, {"member_id": "stranger"}, {"session_timeout_ms": 0},
    ]  # fmt: skip
    for more in wrong:
        ask(join_request(ask.name(str(more)), **more))
    ask(join_request(""))


@scenario(JOIN)
def test_refuses_other_protocols_than_the_groups(ask: Conversation) -> None:
    group = ask.name()
    _joined(ask, group)
    ask(join_request(group, protocols=[Protocol(name="other", metadata=b"")]))
    ask(join_request(group, protocol_type="connect"))
    ask(join_request(group, "stranger"))


@scenario(SYNC)
def test_syncs(ask: Conversation) -> None:
    group = ask.name()
    answer = ask.quietly(join_request(group), 3)
    member, generation = answer.member_id, answer.generation_id
    ask(sync_request(group, member, generation + 1))
    ask(sync_request(group, "stranger", generation))
    ask(sync_request(group, "", generation))
    ask(sync_request(ask.name("missing"), member, generation))
    ask(sync_request("", member, generation))
    ask(sync_request(group, member, generation))
    ask(sync_request(group, member, generation, assignments=[]))


@scenario(SYNC, range(5, 6))
def test_checks_the_protocol_of_a_sync(ask: Conversation) -> None:
    group = ask.name()
    answer = ask.quietly(join_request(group), 3)
    for kind, name in (("connect", "range"), ("consumer", "other"), ("consumer", "range")):
        ask(sync_request(group, answer.member_id, answer.generation_id, protocol_type=kind, protocol_name=name))


@scenario(BEAT)
def test_beats(ask: Conversation) -> None:
    group = ask.name()
    member, generation = _joined(ask, group)
    for wanted in (
        (group, generation, member), (group, generation + 1, member), (group, generation - 1, member),
        (group, -1, member),
        (group, generation, "stranger"), (group, generation, ""), (ask.name("missing"), 1, member), ("", 1, member),
    ):  # fmt: skip
        name, number, who = wanted
        ask(m.HeartbeatRequest(group_id=name, generation_id=number, member_id=who))


@scenario(LEAVE)
def test_leaves(ask: Conversation) -> None:
    group = ask.name()
    member, _ = _joined(ask, group)
    for name, who in (
        (group, "stranger"),
        (group, ""),
        (ask.name("missing"), member),
        ("", member),
        (group, member),
        (group, member),
    ):
        if ask.version < 3:
            ask(m.LeaveGroupRequest(group_id=name, member_id=who))
        else:
            ask(m.LeaveGroupRequest(group_id=name, members=[m.LeaveGroupRequest.MemberIdentity(member_id=who)]))


@scenario(LEAVE, range(3, 6))
def test_leaves_by_instance(ask: Conversation) -> None:
    group = ask.name()
    _joined(ask, group, group_instance_id="one")
    Member = m.LeaveGroupRequest.MemberIdentity
    for members in (
        [Member(member_id="stranger", group_instance_id="one")], [Member(member_id="", group_instance_id="nobody")], [],
        [Member(member_id="", group_instance_id="one"), Member(member_id="stranger")],
        [Member(member_id="", group_instance_id="one")],
    ):  # fmt: skip
        ask(m.LeaveGroupRequest(group_id=group, members=members))
    ask(m.DescribeGroupsRequest(groups=[group]), 5)


@scenario(ApiKey.DESCRIBE_GROUPS)
def test_describes_groups(ask: Conversation) -> None:
    group, offsets = ask.name("g"), ask.name("o")
    _joined(ask, group)
    ask.quietly(commit_request(offsets, ask.topic(), (0, 5)), 7)
    ask(m.DescribeGroupsRequest(groups=[group]))
    ask(m.DescribeGroupsRequest(groups=[offsets]))
    ask(m.DescribeGroupsRequest(groups=[ask.name("missing")]))
    ask(m.DescribeGroupsRequest(groups=[]))
    if ask.version >= 3:
        ask(m.DescribeGroupsRequest(groups=[group], include_authorized_operations=True))


@scenario(ApiKey.LIST_GROUPS)
def test_lists_groups(ask: Conversation) -> None:
    group, offsets = ask.name("g"), ask.name("o")
    _joined(ask, group)
    ask.quietly(commit_request(offsets, ask.topic(), (0, 5)), 7)
    filters: list[dict[str, list[str]]] = [{}]
    if ask.version >= 4:
        filters += [{"states_filter": [each]} for each in ("Stable", "Empty", "stable", "Unheard", "")]
    if ask.version >= 5:
        filters += [{"types_filter": [each]} for each in ("classic", "Classic", "consumer", "Unheard", "")]
    for more in filters:
        request = m.ListGroupsRequest(**more)
        answer = ask.quietly(request)
        answer.groups = [each for each in answer.groups if ask.run in each.group_id]
        ask.record(request, ask.version, answer)


@scenario(ApiKey.DELETE_GROUPS)
def test_deletes_groups(ask: Conversation) -> None:
    group, offsets = ask.name("g"), ask.name("o")
    _joined(ask, group)
    ask.quietly(commit_request(offsets, ask.topic(), (0, 5)), 7)
    ask(m.DeleteGroupsRequest(groups_names=[group, offsets, ask.name("missing")]))
    ask(m.DeleteGroupsRequest(groups_names=[offsets]))
    ask(m.DeleteGroupsRequest(groups_names=[]))
