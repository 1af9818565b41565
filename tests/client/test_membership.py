"""A member's way through a group, without a coordinator: what it asks, and what answers make of it."""

import pytest

from headrace.client.consumer.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from headrace.client.consumer.membership import ClassicMemberState, Membership
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.types import TopicPartition

# version 3 | 1 assignment: "t", partitions 0 and 1 | no user data: as kafka-clients writes it
GOLDEN_ASSIGNMENT = bytes.fromhex("0003 00000001 000174 00000002 00000000 00000001 ffffffff")
# version 3 | topics "a" and "b" | no user data | no owned partitions | no generation | no rack
GOLDEN_SUBSCRIPTION = bytes.fromhex("0003 00000002 000161 000162 ffffffff 00000000 ffffffff ffff")


def membership(instance: str | None = None) -> Membership:
    return Membership("g", ["range"], 10_000, 60_000, instance)


def joined_as(member: Membership, leader: str, members: dict[str, list[str]]) -> bool:
    member.join_request(["t"])
    listed = [
        m.JoinGroupResponse.JoinGroupResponseMember(
            member_id=name, metadata=encode_subscription(Subscription(topics), "range")
        )
        for name, topics in members.items()
    ]
    answer = m.JoinGroupResponse(generation_id=7, protocol_name="range", leader=leader, member_id="me", members=listed)
    return member.joined(answer)


def test_assignment_bytes_are_those_of_java() -> None:
    assert encode_assignment([TopicPartition("t", 0), TopicPartition("t", 1)]) == GOLDEN_ASSIGNMENT
    assert decode_assignment(GOLDEN_ASSIGNMENT) == [TopicPartition("t", 0), TopicPartition("t", 1)]


def test_subscription_bytes_are_those_of_java() -> None:
    assert encode_subscription(Subscription(["b", "a"]), "range") == GOLDEN_SUBSCRIPTION


def test_an_empty_assignment_is_no_partitions() -> None:
    assert decode_assignment(b"") == []


def test_an_assignment_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert decode_assignment(b"\x00\x09" + GOLDEN_ASSIGNMENT[2:] + b"more") == decode_assignment(GOLDEN_ASSIGNMENT)


def test_comes_back_with_the_member_id_that_it_was_given() -> None:
    member = membership()
    member.join_request(["t"])
    refused = m.JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me")
    assert not member.joined(refused)
    assert member.state is ClassicMemberState.UNJOINED
    assert member.join_request(["t"]).member_id == "me"


def test_the_leader_hands_out_everybodys_partitions() -> None:
    member = membership()
    assert joined_as(member, "me", {"me": ["t"], "other": ["t"]})
    assert member.led_topics == {"t"}
    shares = {one.member_id: decode_assignment(one.assignment) for one in member.sync_request({"t": 3}).assignments}
    assert shares == {"me": [TopicPartition("t", 0), TopicPartition("t", 1)], "other": [TopicPartition("t", 2)]}


def test_a_follower_hands_out_nothing_and_takes_what_it_gets() -> None:
    member = membership()
    assert joined_as(member, "other", {})
    assert member.led_topics == set()
    assert member.sync_request({}).assignments == []
    assert member.synced(m.SyncGroupResponse(assignment=GOLDEN_ASSIGNMENT)) == decode_assignment(GOLDEN_ASSIGNMENT)
    assert member.state is ClassicMemberState.STABLE


@pytest.mark.parametrize(
    ("code", "member_id", "generation"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, "me", 7),
        (ErrorCode.ILLEGAL_GENERATION, "me", -1),
        (ErrorCode.UNKNOWN_MEMBER_ID, "", -1),
    ],
)
def test_a_heartbeat_sends_it_back_to_join(code: ErrorCode, member_id: str, generation: int) -> None:
    member = membership()
    joined_as(member, "other", {})
    member.synced(m.SyncGroupResponse(assignment=b""))
    member.heard(code)
    assert (member.state, member.member_id, member.generation) == (ClassicMemberState.UNJOINED, member_id, generation)


def test_a_refusal_names_the_group() -> None:
    member = membership()
    member.join_request(["t"])
    with pytest.raises(KafkaError, match="group g") as refused:
        member.joined(m.JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED))
    assert refused.value.code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_commit_that_a_rebalance_refuses_says_what_to_do() -> None:
    said = membership().error(ErrorCode.REBALANCE_IN_PROGRESS, "commit of group g for t-0").message
    assert said.startswith("commit of group g for t-0: ") and "poll, which joins it, before you commit again" in said


def test_leaves_by_itself_in_old_versions_and_by_list_in_new_ones() -> None:
    member = membership()
    joined_as(member, "other", {})
    assert member.leave_request(1).encode(1)
    assert member.leave_request(5).members[0].member_id == "me"
