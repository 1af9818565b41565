"""Members of the classic protocol and of KIP-848 in one group, and requests of one protocol to groups of the other."""

import pytest

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.differential.conversation import Conversation
from tests.differential.requests import commit_request, join_request, sync_request
from tests.differential.scenario import scenario
from tests.differential.test_consumer_groups import (
    LEAVING,
    MEMBER,
    OTHER,
    beat,
    describe,
    joined,
    joining,
    known_topic,
    owned,
)

pytestmark = pytest.mark.slow  # asks Apache Kafka

BEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT
VERSION_0, NO_USER_DATA = bytes(2), b"\xff\xff\xff\xff"


def subscription(*topics: str) -> m.JoinGroupRequest.JoinGroupRequestProtocol:
    """The assignor and the subscription of a classic member: ConsumerProtocolSubscription, version 0."""
    names = b"".join(len(each).to_bytes(2, "big") + each.encode() for each in topics)
    metadata = VERSION_0 + len(topics).to_bytes(4, "big") + names + NO_USER_DATA
    return m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)


def assignment(member: str, topic: str, *partitions: int) -> m.SyncGroupRequest.SyncGroupRequestAssignment:
    """What a leader assigns to a classic member: ConsumerProtocolAssignment, version 0."""
    numbers = b"".join(each.to_bytes(4, "big") for each in (len(partitions), *partitions))
    assigned = VERSION_0 + (1).to_bytes(4, "big") + len(topic).to_bytes(2, "big") + topic.encode() + numbers
    return m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=assigned + NO_USER_DATA)


@scenario(BEAT, range(1, 2))
def test_classic_requests_to_a_consumer_group(ask: Conversation) -> None:
    topic, group = known_topic(ask), ask.name("g")
    epoch = joined(ask, group, MEMBER, topic)
    ask(join_request(group, protocol_type="connect"), 9)
    ask(join_request(group, MEMBER, protocols=[subscription(topic)]), 9)
    ask(sync_request(group, MEMBER, epoch), 5)
    ask(m.HeartbeatRequest(group_id=group, generation_id=epoch, member_id=MEMBER), 4)
    Member = m.LeaveGroupRequest.MemberIdentity
    ask(m.LeaveGroupRequest(group_id=group, members=[Member(member_id=MEMBER), Member(member_id=OTHER)]), 5)
    ask(describe(group), 1)


@scenario(BEAT, range(1, 2))
def test_members_of_both_protocols_share_a_group(ask: Conversation) -> None:
    topic, group = known_topic(ask, partitions=2), ask.name("g")
    topic_id = ask.topic_id(topic)
    join = join_request(group, protocols=[subscription(topic)])
    join.member_id = classic = ask.quietly(join, 9).member_id
    generation = ask.quietly(join, 9).generation_id
    ask.quietly(sync_request(group, classic, generation, assignments=[assignment(classic, topic, 0, 1)]), 3)
    epoch = ask(joining(group, MEMBER, topic)).member_epoch
    ask(describe(group), 1)
    ask(m.HeartbeatRequest(group_id=group, generation_id=generation, member_id=classic), 4)
    epoch = ask(beat(group, MEMBER, epoch, topic_partitions=[])).member_epoch
    rejoined = ask(join, 9)
    named = {"protocol_type": "consumer", "protocol_name": "range"}
    ask(sync_request(group, classic, rejoined.generation_id, assignments=[], **named), 5)
    epoch = ask(beat(group, MEMBER, epoch, topic_partitions=[])).member_epoch
    ask(beat(group, MEMBER, epoch, topic_partitions=owned({topic_id: [0]})))
    ask(m.HeartbeatRequest(group_id=group, generation_id=rejoined.generation_id, member_id=classic), 4)
    ask(commit_request(group, topic, (0, 5), member=classic, generation=rejoined.generation_id), 8)
    ask(describe(group), 1)
    ask(beat(group, MEMBER, LEAVING))
    ask(describe(group), 1)
    ask(m.DescribeGroupsRequest(groups=[group]), 5)
    ask(m.HeartbeatRequest(group_id=group, generation_id=rejoined.generation_id, member_id=classic), 4)
