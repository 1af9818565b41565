"""Consumer groups of KIP-848, asked of both: heartbeats, reconciliation, descriptions, offsets with member epochs."""

from collections.abc import Mapping
from typing import Any

import pytest

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.differential.conversation import Conversation
from tests.differential.requests import commit_request, fetch_offsets_request, join_request, sync_request
from tests.differential.scenario import scenario

pytestmark = pytest.mark.slow  # asks Apache Kafka

BEAT, DESCRIBE = ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE
JOINING, LEAVING, LEAVING_STATIC = 0, -1, -2
MEMBER, OTHER = "AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB"
"""Member ids, as clients make them."""


def beat(group: str, member: str, epoch: int, **more: Any) -> m.ConsumerGroupHeartbeatRequest:
    """A heartbeat that only says that the member is there; keywords set fields."""
    return m.ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **more)


def joining(group: str, member: str, *topics: str, **more: Any) -> m.ConsumerGroupHeartbeatRequest:
    """The first heartbeat of a member that subscribes to these topics; keywords replace fields."""
    fields = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [*topics], "topic_partitions": [], **more}
    return beat(group, member, JOINING, **fields)


def owned(partitions: Mapping[bytes, list[int]]) -> list[m.ConsumerGroupHeartbeatRequest.TopicPartitions]:
    """What a member says that it owns, by topic id."""
    Owned = m.ConsumerGroupHeartbeatRequest.TopicPartitions
    return [Owned(topic_id=topic, partitions=numbers) for topic, numbers in partitions.items()]


def describe(*groups: str, **more: Any) -> m.ConsumerGroupDescribeRequest:
    """ConsumerGroupDescribe of these groups."""
    return m.ConsumerGroupDescribeRequest(group_ids=[*groups], **more)


def known_topic(ask: Conversation, text: str = "t", partitions: int = 1) -> str:
    """A topic that the group coordinator knows: Apache Kafka's learns of it a little later than others do."""
    topic = ask.topic(text, partitions)
    ask.settle(
        lambda answer: answer.assignment is not None and answer.assignment.topic_partitions,
        joining(ask.name(f"{text}-probe"), MEMBER, topic),
        1,
    )
    return topic


def joined(ask: Conversation, group: str, member: str, *topics: str, **more: Any) -> int:
    """The epoch of a member that joined; not recorded."""
    answer = ask.quietly(joining(group, member, *topics, **more), 1)
    assert answer.error_code == 0, answer
    return int(answer.member_epoch)


@scenario(BEAT)
def test_a_member_joins_alone_beats_and_leaves(ask: Conversation) -> None:
    group, topic = ask.name("g"), known_topic(ask, partitions=3)
    answer = ask(joining(group, MEMBER, topic))
    epoch, assigned = answer.member_epoch, answer.assignment.topic_partitions
    ask(beat(group, MEMBER, epoch))
    ask(beat(group, MEMBER, epoch, topic_partitions=owned({each.topic_id: each.partitions for each in assigned})))
    ask(describe(group), 1)
    ask(beat(group, MEMBER, LEAVING))
    ask(beat(group, MEMBER, epoch))
    ask(describe(group), 1)


@scenario(BEAT, range(1))
def test_the_broker_names_a_member_of_version_0(ask: Conversation) -> None:
    group, topic = ask.name("g"), known_topic(ask)
    answer = ask.quietly(joining(group, "", topic))
    again = ask.quietly(beat(group, answer.member_id, answer.member_epoch))
    ask.note("its id, its epoch", (bool(answer.member_id), again.member_id == answer.member_id, again.member_epoch))


@scenario(BEAT)
def test_partitions_move_when_a_second_member_joins_and_one_leaves(ask: Conversation) -> None:
    group, topic = ask.name("g"), known_topic(ask, partitions=4)
    topic_id = ask.topic_id(topic)
    first = ask(joining(group, MEMBER, topic)).member_epoch
    ask(beat(group, MEMBER, first, topic_partitions=owned({topic_id: [0, 1, 2, 3]})))
    second = ask(joining(group, OTHER, topic)).member_epoch
    ask(describe(group), 1)
    ask(beat(group, OTHER, second))
    ask(beat(group, MEMBER, first))
    ask(describe(group), 1)
    ask(beat(group, OTHER, second))
    ask(beat(group, MEMBER, first, topic_partitions=owned({topic_id: [0, 1]})))
    ask(beat(group, OTHER, second))
    ask(beat(group, OTHER, second, topic_partitions=owned({topic_id: [2, 3]})))
    ask(describe(group), 1)
    ask(beat(group, MEMBER, LEAVING))
    ask(beat(group, OTHER, second))
    ask(describe(group), 1)


@scenario(BEAT)
def test_subscriptions_change(ask: Conversation) -> None:
    group, one, two = ask.name("g"), known_topic(ask, "one", partitions=2), known_topic(ask, "two")
    for topic in (one, two):
        ask.tokens.of("topic", ask.topic_id(topic))
    epoch = ask(joining(group, MEMBER, one)).member_epoch
    epoch = ask(beat(group, MEMBER, epoch, subscribed_topic_names=[one, ask.name("missing")])).member_epoch
    epoch = ask(beat(group, MEMBER, epoch, subscribed_topic_names=[two], topic_partitions=[])).member_epoch
    ask(beat(group, MEMBER, epoch, topic_partitions=[]))
    ask(beat(group, MEMBER, epoch, topic_partitions=owned({ask.topic_id(two): [0]})))
    ask(describe(group), 1)
    epoch = ask(beat(group, MEMBER, epoch, subscribed_topic_names=[])).member_epoch
    ask(beat(group, MEMBER, epoch, topic_partitions=[]))
    ask(describe(group), 1)


@scenario(BEAT)
def test_refuses_wrong_heartbeats(ask: Conversation) -> None:
    topic = known_topic(ask)
    wrong: list[dict[str, Any]] = [
        {"group_id": ""}, {"group_id": " "}, {"member_epoch": -3}, {"rebalance_timeout_ms": -1},
        {"rebalance_timeout_ms": 0}, {"topic_partitions": None}, {"subscribed_topic_names": None},
        {"topic_partitions": owned({ask.topic_id(topic): [0]})},
        {"server_assignor": "unheard"}, {"server_assignor": ""}, {"server_assignor": "range"}, {"instance_id": ""},
        {"instance_id": "not legal"}, {"rack_id": ""}, {"member_id": "x" * 300}, {"member_id": "m", "member_epoch": 5},
        {"member_epoch": LEAVING}, {"member_epoch": LEAVING_STATIC},
        {"member_epoch": LEAVING_STATIC, "instance_id": "i"}, {"subscribed_topic_names": []},
        {"subscribed_topic_names": [topic, topic]}, {"subscribed_topic_names": ["not legal"]},
    ]  # fmt: skip
    for number, more in enumerate(wrong):
        request = joining(ask.name(f"g{number}"), MEMBER, topic)
        for name, value in more.items():
            setattr(request, name, value)
        ask(request)


@scenario(BEAT, range(1, 2))
def test_refuses_members_without_an_id(ask: Conversation) -> None:
    group, topic = ask.name("g"), known_topic(ask)
    ask(joining(group, "", topic))
    ask(beat(group, "", 1))
    ask(beat(group, "", LEAVING))


@scenario(BEAT)
def test_checks_members_and_epochs(ask: Conversation) -> None:
    group, topic = ask.name("g"), known_topic(ask, partitions=2)
    topic_id = ask.topic_id(topic)
    ask(beat(ask.name("missing"), MEMBER, 1))
    ask(beat(ask.name("missing"), MEMBER, LEAVING))
    first = joined(ask, group, MEMBER, topic)
    for member, epoch in (
        (MEMBER, first + 1), (MEMBER, first - 1), (MEMBER, first + 100), (OTHER, first), (OTHER, LEAVING),
        (OTHER, LEAVING_STATIC), (MEMBER, LEAVING_STATIC),
    ):  # fmt: skip
        ask(beat(group, member, epoch))
    ask(joining(group, MEMBER, topic))
    joined(ask, group, OTHER, topic)
    moved = ask(beat(group, MEMBER, first, topic_partitions=owned({topic_id: [0]})))
    for partitions in ({topic_id: [0]}, {topic_id: [0, 1]}, {}, {b"nobody has this.": [0]}):
        ask(beat(group, MEMBER, moved.member_epoch - 1, topic_partitions=owned(partitions)))
    ask(describe(group), 1)


@scenario(BEAT)
def test_static_members_leave_for_a_while_and_return(ask: Conversation) -> None:
    group, topic = ask.name("g"), known_topic(ask, partitions=3)
    epoch = ask(joining(group, MEMBER, topic, instance_id="one")).member_epoch
    ask(joining(group, OTHER, topic, instance_id="one"))
    ask(beat(group, MEMBER, epoch, instance_id="two"))
    ask(beat(group, MEMBER, epoch))
    ask(beat(group, OTHER, LEAVING_STATIC, instance_id="one"))
    ask(beat(group, MEMBER, LEAVING_STATIC, instance_id="two"))
    ask(beat(group, MEMBER, LEAVING_STATIC, instance_id="one"))
    ask(describe(group), 1)
    ask(beat(group, MEMBER, epoch, instance_id="one"))
    again = ask(joining(group, OTHER, topic, instance_id="one"))
    ask(describe(group), 1)
    ask(beat(group, MEMBER, epoch, instance_id="one"))
    ask(beat(group, OTHER, again.member_epoch, instance_id="one"))
    ask(beat(group, OTHER, LEAVING, instance_id="one"))
    ask(describe(group), 1)


@scenario(BEAT, range(1, 2))
def test_subscribes_by_regular_expression(ask: Conversation) -> None:
    group, one, two = ask.name("g"), known_topic(ask, "one"), known_topic(ask, "two", partitions=2)
    for topic in (one, two):
        ask.tokens.of("topic", ask.topic_id(topic))
    for text in ("(", "[a", "a**", "\\8", "(?=a)"):
        ask(joining(group, MEMBER, subscribed_topic_names=None, subscribed_topic_regex=text))
    first = ask.quietly(joining(group, MEMBER, subscribed_topic_names=None, subscribed_topic_regex=f"one-{ask.run}"))
    ask.note("the first answer", first.error_code)
    resolved = ask.settle(lambda answer: answer.member_epoch > 1, beat(group, MEMBER, first.member_epoch))
    ask.record(beat(group, MEMBER, 1), 1, resolved)
    ask(beat(group, MEMBER, resolved.member_epoch, topic_partitions=owned({ask.topic_id(one): [0]})))
    ask(describe(group), 1)
    mixed = ask(beat(group, MEMBER, resolved.member_epoch, subscribed_topic_names=[two]))
    ask(describe(group), 1)
    ask(beat(group, MEMBER, mixed.member_epoch, subscribed_topic_regex=""))
    ask(describe(group), 1)


@scenario(BEAT)
def test_chooses_an_assignor(ask: Conversation) -> None:
    group, one, two = ask.name("g"), known_topic(ask, "one", partitions=3), known_topic(ask, "two", partitions=3)
    for topic in (one, two):
        ask.tokens.of("topic", ask.topic_id(topic))
    joined(ask, group, MEMBER, one, two, server_assignor="range")
    ask(describe(group), 1)
    epoch = ask(joining(group, OTHER, one, two, server_assignor="range")).member_epoch
    ask(describe(group), 1)
    for name in ("uniform", "unheard", ""):
        ask(beat(group, OTHER, epoch, server_assignor=name))
    ask(describe(group), 1)


@scenario(DESCRIBE)
def test_describes_groups_of_all_kinds_and_none(ask: Conversation) -> None:
    topic, classic, simple = known_topic(ask), ask.name("classic"), ask.name("simple")
    answer = ask.quietly(join_request(classic), 3)
    ask.quietly(sync_request(classic, answer.member_id, answer.generation_id), 3)
    ask.quietly(commit_request(simple, topic, (0, 5)), 7)
    group = ask.name("g")
    joined(ask, group, MEMBER, topic, rack_id="rack", instance_id="one")
    ask(describe(group, ask.name("missing"), classic, simple, ""))
    ask(describe())
    ask(describe(group, include_authorized_operations=True))
    ask(m.DescribeGroupsRequest(groups=[group]), 5)
    ask(m.DescribeGroupsRequest(groups=[group]), 6)


@scenario(ApiKey.LIST_GROUPS, range(4, 6))
def test_lists_consumer_groups(ask: Conversation) -> None:
    topic, group, empty = known_topic(ask), ask.name("g"), ask.name("e")
    joined(ask, group, MEMBER, topic)
    joined(ask, empty, MEMBER, topic)
    ask.quietly(beat(empty, MEMBER, LEAVING), 1)
    filters: list[dict[str, list[str]]] = [
        {},
        *({"states_filter": [each]} for each in ("Stable", "Empty", "Assigning")),
    ]
    if ask.version >= 5:
        filters += [{"types_filter": [each]} for each in ("consumer", "Consumer", "classic")]
    for more in filters:
        request = m.ListGroupsRequest(**more)
        answer = ask.quietly(request)
        answer.groups = [each for each in answer.groups if ask.run in each.group_id]
        ask.record(request, ask.version, answer)


@scenario(ApiKey.OFFSET_COMMIT)
def test_checks_member_epochs_of_commits(ask: Conversation) -> None:
    topic, group = known_topic(ask, partitions=2), ask.name("g")
    key = ask.topic_id(topic) if ask.version >= 10 else topic
    epoch = joined(ask, group, MEMBER, topic)
    for member, number in (
        (MEMBER, epoch), (MEMBER, epoch + 1), (MEMBER, epoch - 1), (MEMBER, -1), (OTHER, epoch), ("", epoch), ("", -1),
    ):  # fmt: skip
        ask(commit_request(group, key, (0, 5), member=member, generation=number))
    if ask.version >= 7:
        ask(commit_request(group, key, (0, 6), member=MEMBER, generation=epoch, instance="nobody"))
    ask(fetch_offsets_request(9, group, {topic: [0]}), 9)


@scenario(ApiKey.OFFSET_FETCH, range(9, 11))
def test_checks_member_epochs_of_offset_fetches(ask: Conversation) -> None:
    topic, group = known_topic(ask), ask.name("g")
    epoch = joined(ask, group, MEMBER, topic)
    ask.quietly(commit_request(group, topic, (0, 5), member=MEMBER, generation=epoch), 9)
    for member, number in (
        (MEMBER, epoch), (MEMBER, epoch + 1), (MEMBER, epoch - 1), (MEMBER, -1), (OTHER, epoch), ("", epoch),
        (None, -1),
    ):  # fmt: skip
        ask(fetch_offsets_request(ask.version, group, None, member=member, epoch=number))


@scenario(ApiKey.OFFSET_DELETE)
def test_deletes_offsets_of_a_consumer_group(ask: Conversation) -> None:
    topic, other, group = known_topic(ask), known_topic(ask, "other"), ask.name("g")
    epoch = joined(ask, group, MEMBER, topic)
    for name in (topic, other):
        ask.quietly(commit_request(group, name, (0, 5), member=MEMBER, generation=epoch), 9)
    Topic = m.OffsetDeleteRequest.OffsetDeleteRequestTopic
    Partition = m.OffsetDeleteRequest.OffsetDeleteRequestPartition
    for name in (topic, other):
        ask(m.OffsetDeleteRequest(group_id=group, topics=[Topic(name=name, partitions=[Partition(partition_index=0)])]))
    ask(fetch_offsets_request(9, group, None), 9)


@scenario(ApiKey.DELETE_GROUPS)
def test_deletes_consumer_groups(ask: Conversation) -> None:
    topic, group = known_topic(ask), ask.name("g")
    epoch = joined(ask, group, MEMBER, topic)
    ask.quietly(commit_request(group, topic, (0, 5), member=MEMBER, generation=epoch), 9)
    ask(m.DeleteGroupsRequest(groups_names=[group]))
    ask.quietly(beat(group, MEMBER, LEAVING), 1)
    ask(m.DeleteGroupsRequest(groups_names=[group]))
    ask(describe(group), 1)


@scenario(BEAT, range(1, 2))
def test_a_consumer_joins_groups_of_the_classic_protocol(ask: Conversation) -> None:
    topic, empty, unreadable = known_topic(ask), ask.name("empty"), ask.name("unreadable")
    ask.quietly(commit_request(empty, topic, (0, 5)), 7)
    ask(joining(empty, MEMBER, topic))
    ask(describe(empty), 1)
    ask(fetch_offsets_request(9, empty, None), 9)
    answer = ask.quietly(join_request(unreadable), 3)
    ask.quietly(sync_request(unreadable, answer.member_id, answer.generation_id), 3)
    ask(joining(unreadable, MEMBER, topic))
