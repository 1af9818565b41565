"""Share groups (KIP-932), asked of both: heartbeats, descriptions, and the administration of offsets."""

from typing import Any

import pytest

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.differential.conversation import Conversation
from tests.differential.deliberate import Differs
from tests.differential.requests import commit_request, fetch_offsets_request, join_request
from tests.differential.scenario import scenario

pytestmark = pytest.mark.slow  # asks Apache Kafka

BEAT, DESCRIBE = ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_DESCRIBE
OFFSETS, ALTER, DELETE = (
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
)
JOINING, LEAVING = 0, -1
MEMBER, OTHER = "AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB"


def beat(group: str, member: str, epoch: int, **more: Any) -> m.ShareGroupHeartbeatRequest:
    """A heartbeat that only says that the member is there; keywords set fields."""
    return m.ShareGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **more)


def joining(group: str, member: str, *topics: str, **more: Any) -> m.ShareGroupHeartbeatRequest:
    """The first heartbeat of a member that subscribes to these topics."""
    return beat(group, member, JOINING, subscribed_topic_names=[*topics], **more)


def joined(ask: Conversation, group: str, member: str, *topics: str) -> int:
    """The epoch of a member that has joined and has partitions; not recorded."""
    epoch, has_partitions = JOINING, False

    def is_assigned(answer: Any) -> bool:
        nonlocal epoch, has_partitions
        assert answer.error_code == 0, answer
        epoch = answer.member_epoch
        if answer.assignment is not None:
            has_partitions = bool(answer.assignment.topic_partitions)
        return has_partitions

    ask.settle(is_assigned, joining(group, member, *topics), 1)
    return epoch


def describe(*groups: str, **more: Any) -> m.ShareGroupDescribeRequest:
    """ShareGroupDescribe of these groups."""
    return m.ShareGroupDescribeRequest(group_ids=[*groups], **more)


def offsets(group: str, *topics: str, partitions: int = 1) -> m.DescribeShareGroupOffsetsRequest:
    """DescribeShareGroupOffsets of the first partitions of these topics, or of all partitions of a group."""
    kind = m.DescribeShareGroupOffsetsRequest
    wanted = [
        kind.DescribeShareGroupOffsetsRequestTopic(topic_name=each, partitions=list(range(partitions)))
        for each in topics
    ]
    asked = kind.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=wanted or None)
    return kind(groups=[asked])


def alter(group: str, topic: str, *starts: int) -> m.AlterShareGroupOffsetsRequest:
    """AlterShareGroupOffsets of the first partitions of a topic."""
    kind = m.AlterShareGroupOffsetsRequest
    partitions = [
        kind.AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=start)
        for number, start in enumerate(starts)
    ]
    topics = [kind.AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)]
    return kind(group_id=group, topics=topics)


def delete_offsets(group: str, *topics: str) -> m.DeleteShareGroupOffsetsRequest:
    """DeleteShareGroupOffsets of these topics."""
    kind = m.DeleteShareGroupOffsetsRequest
    named = [kind.DeleteShareGroupOffsetsRequestTopic(topic_name=each) for each in topics]
    return kind(group_id=group, topics=named)


@scenario(BEAT)
def test_a_member_joins_beats_and_leaves(ask: Conversation) -> None:
    group, topic = ask.name("g"), ask.topic(partitions=3)
    epoch = joined(ask, group, MEMBER, topic)
    ask(beat(group, MEMBER, epoch))
    ask(beat(group, MEMBER, epoch, subscribed_topic_names=[topic]))
    ask(beat(group, MEMBER, LEAVING))
    ask(beat(group, MEMBER, epoch))
    ask(beat(group, MEMBER, LEAVING))
    ask(describe(group), 1)


@scenario(BEAT)
def test_first_heartbeats_without_what_they_need(ask: Conversation) -> None:
    group, topic = ask.name("g"), ask.topic()
    ask(joining("", MEMBER, topic))
    ask(joining(group, "", topic))
    ask(joining(group, " ", topic))
    ask(joining(group, MEMBER))
    ask(beat(group, MEMBER, JOINING))
    ask(joining(group, MEMBER, topic, rack_id=""))
    ask(beat(group, MEMBER, -2))
    ask(joining(group, "x" * 37, topic))
    ask(beat(group, MEMBER, 1))
    ask(beat(group, MEMBER, LEAVING))
    ask(describe(group), 1)


@scenario(BEAT)
def test_epochs_that_do_not_fit(ask: Conversation) -> None:
    group, topic = ask.name("g"), ask.topic()
    epoch = joined(ask, group, MEMBER, topic)
    ask(beat(group, MEMBER, epoch + 1))
    ask(beat(group, MEMBER, epoch + 100))
    ask(beat(group, OTHER, 1))
    ask(beat(group, OTHER, LEAVING))
    ask(beat(ask.name("other"), MEMBER, 1))


@scenario(BEAT)
def test_a_subscription_to_a_topic_that_is_not_there(ask: Conversation) -> None:
    group = ask.name("g")
    answer = ask(joining(group, MEMBER, ask.name("missing")))
    ask(beat(group, MEMBER, answer.member_epoch))
    ask(describe(group), 1)


@scenario(DESCRIBE)
def test_describes_groups(ask: Conversation) -> None:
    group, topic = ask.name("g"), ask.topic(partitions=2)
    joined(ask, group, MEMBER, topic)
    answer = ask.quietly(describe(group))
    (member,) = answer.groups[0].members
    ask.note("members", (answer.groups[0].group_state, answer.groups[0].assignor_name, member.client_id))
    ask.note("assignment", [each.partitions for each in member.assignment.topic_partitions])
    ask(describe(ask.name("missing"), ""))
    ask(describe(ask.name("missing"), include_authorized_operations=True))
    ask(describe())


@scenario(BEAT)
def test_other_apis_about_a_share_group(ask: Conversation) -> None:
    group, topic = ask.name("g"), ask.topic()
    joined(ask, group, MEMBER, topic)
    ask(commit_request(group, topic, (0, 1)), 9)
    ask(commit_request(group, topic, (0, 1), member=MEMBER, generation=1), 9)
    ask(fetch_offsets_request(9, group, {topic: [0]}), 9)
    ask(fetch_offsets_request(9, group, {topic: [0]}, member=MEMBER, epoch=1), 9)
    ask(join_request(group), 9)
    ask(m.DescribeGroupsRequest(groups=[group]), 6)
    ask(m.ConsumerGroupDescribeRequest(group_ids=[group]), 1)
    ask(m.DeleteGroupsRequest(groups_names=[group]), 2)
    listed = ask.quietly(m.ListGroupsRequest(types_filter=["share"], states_filter=["stable"]), 5)
    ask.note("listed", [(each.protocol_type, each.group_state) for each in listed.groups if each.group_id == group])


@scenario(
    OFFSETS,
    differs=[
        Differs(
            f"DescribeShareGroupOffsets.groups[].{field}",
            "a group without a name has no offsets; Apache Kafka's own request for its state fails",
            at="(groups=[(topics=[(topic_name='t', partitions=[0])])])",
        )
        for field in ("topics", "error_code", "error_message")
    ],
)
def test_describes_offsets(ask: Conversation) -> None:
    group, topic = ask.name("g"), ask.topic(partitions=2)
    ask(offsets(group))
    ask(offsets(group, topic, partitions=2))
    ask(offsets(group, ask.name("missing")))
    ask(offsets("", topic))
    ask.produce(topic)
    ask.settle(lambda answer: answer.responses[0].partitions[0].error_code == 0, alter(group, topic, 1), 0)
    ask(offsets(group))
    ask(offsets(group, topic, partitions=3))
    empty = m.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=[])
    ask(m.DescribeShareGroupOffsetsRequest(groups=[empty]))
    ask(m.DescribeShareGroupOffsetsRequest())


@scenario(
    ALTER,
    differs=(
        Differs(
            "ShareGroupDescribe.groups[].group_epoch",
            "each alteration has an epoch of its own, so that share coordinators know a late duplicate",
            ours="2",
            theirs="1",
        ),
    ),
)
def test_alters_offsets(ask: Conversation) -> None:
    group, topic = ask.name("g"), ask.topic(partitions=2)
    ask.until(lambda answer: answer.responses[0].partitions[0].error_code == 0, alter(group, topic, 1, 2))
    ask(alter(group, topic, 5, 6, 7))
    ask(offsets(group), 1)
    ask(alter(group, ask.name("missing"), 1))
    ask(alter("", topic, 1))
    ask(m.AlterShareGroupOffsetsRequest(group_id=group))
    ask(describe(group), 1)
    busy = ask.name("busy")
    joined(ask, busy, MEMBER, topic)
    ask(alter(busy, topic, 1))


@scenario(DELETE)
def test_deletes_offsets_and_groups(ask: Conversation) -> None:
    group, topic, other = ask.name("g"), ask.topic(), ask.topic("u")
    ask(delete_offsets(group, topic))
    for each in (topic, other):
        ask.settle(lambda answer: answer.responses[0].partitions[0].error_code == 0, alter(group, each, 0), 0)
    ask(delete_offsets(group, topic))
    ask(delete_offsets(group, topic))
    ask(delete_offsets(group, ask.name("missing")))
    ask(delete_offsets("", topic))
    ask(m.DeleteShareGroupOffsetsRequest(group_id=group))
    ask(offsets(group), 1)
    ask(m.DeleteGroupsRequest(groups_names=[group, ask.name("missing")]), 2)
    ask(describe(group), 1)
    busy = ask.name("busy")
    joined(ask, busy, MEMBER, topic)
    ask(delete_offsets(busy, topic))
