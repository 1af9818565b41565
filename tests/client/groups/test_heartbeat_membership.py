"""Members of KIP-848 under any order of answers: no partition is held twice, and in the end none is forgotten."""

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.client.consumer.heartbeat_membership import HeartbeatMembership, HeartbeatMemberState
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.types import TopicPartition
from tests.client.groups.model_consumer_group import TOPIC_ID, ModelConsumerGroup

PARTITIONS = 7
ROUNDS = 40
NAMES = {TOPIC_ID: "t"}


def said(membership: HeartbeatMembership) -> m.ConsumerGroupHeartbeatRequest:
    request = membership.request()
    assert isinstance(request, m.ConsumerGroupHeartbeatRequest)
    return request


class Consumer:
    """What a consumer and its heartbeat thread do, step by step."""

    def __init__(self, group: ModelConsumerGroup, number: int) -> None:
        self.group = group
        self.membership = HeartbeatMembership("g", f"m{number}", 1_000)
        self.membership.subscribe(["t"])
        self.held: set[TopicPartition] = set()
        self.told: list[str] = []

    def heartbeat(self, *, is_answered: bool = True) -> None:
        if self.membership.state is HeartbeatMemberState.FENCED:
            return
        answer = self.group.heartbeat(said(self.membership))
        if is_answered:
            self.membership.answered(answer)
        else:
            self.membership.unanswered()

    def poll(self) -> None:
        self._give_up(self.membership.to_give_up(()), "lost")
        assigned = self.membership.assigned(NAMES)
        if assigned is not None:
            self._give_up(frozenset(self.held.difference(assigned)), "revoked")
            self.held = set(assigned)

    def _give_up(self, partitions: frozenset[TopicPartition], how: str) -> None:
        self.told += [how] if partitions else []
        self.held -= partitions
        self.membership.given_up(partitions)


def check_no_partition_is_held_twice(group: ModelConsumerGroup, consumers: list[Consumer]) -> None:
    known = [consumer for consumer in consumers if consumer.membership.member_id in group.members]
    holders = Counter(partition for consumer in known for partition in consumer.held if consumer.membership.is_member)
    assert not [partition for partition, number in holders.items() if number > 1], holders


EVENTS = st.tuples(st.sampled_from(["heartbeat"] * 3 + ["poll"] * 3 + ["lose", "expire"]), st.integers(0, 3))


# Twice an answer is lost; the member says that it holds nothing, and has an older target that it must not take then.
@example([("heartbeat", 1), ("heartbeat", 0), ("lose", 1), ("lose", 1), ("heartbeat", 0), ("poll", 0), ("poll", 1)], 2)
@given(st.lists(EVENTS, max_size=80), st.integers(1, 4))
def test_no_partition_is_held_twice_and_none_is_forgotten(events: list[tuple[str, int]], count: int) -> None:
    group = ModelConsumerGroup(PARTITIONS)
    consumers = [Consumer(group, number) for number in range(count)]
    expired: set[str] = set()
    for event, number in events:
        consumer = consumers[number % count]
        match event:
            case "heartbeat" | "lose":
                consumer.heartbeat(is_answered=event == "heartbeat")
            case "poll":
                consumer.poll()
            case "expire":
                expired.add(consumer.membership.member_id)
                group.expire(consumer.membership.member_id)
        if not expired:  # one that is out and has not heard of it holds what others may have
            check_no_partition_is_held_twice(group, consumers)
    for _ in range(ROUNDS):
        for consumer in consumers:
            consumer.poll()
            consumer.heartbeat()
    assert sorted(partition for consumer in consumers for partition in consumer.held) == [
        TopicPartition("t", number) for number in range(PARTITIONS)
    ]
    assert all(consumer.membership.is_settled for consumer in consumers)


def settled() -> Consumer:
    consumer = Consumer(ModelConsumerGroup(PARTITIONS), 1)
    consumer.heartbeat()
    consumer.poll()
    consumer.heartbeat()
    return consumer


def test_a_heartbeat_says_what_has_changed_alone() -> None:
    consumer = settled()
    assert not consumer.membership.has_news
    quiet = said(consumer.membership)
    assert (quiet.subscribed_topic_names, quiet.topic_partitions, quiet.rebalance_timeout_ms) == (None, None, -1)
    consumer.membership.unanswered()
    full = said(consumer.membership)
    assert full.subscribed_topic_names == ["t"]
    assert full.topic_partitions is not None
    assert full.topic_partitions[0].partitions == list(range(PARTITIONS))
    assert full.rebalance_timeout_ms == 1_000


def test_a_member_that_is_fenced_loses_all_and_joins_again() -> None:
    consumer = settled()
    consumer.group.expire("m1")
    consumer.heartbeat()
    assert consumer.membership.state is HeartbeatMemberState.FENCED
    consumer.poll()
    assert (consumer.told, consumer.held) == (["lost"], set())
    assert said(consumer.membership).member_epoch == 0


def test_a_topic_that_was_created_anew_is_given_up_before_it_is_taken() -> None:
    consumer = settled()
    again = m.ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=b"n" * 16, partitions=[0])
    answer = m.ConsumerGroupHeartbeatResponse(
        error_code=0,
        member_id="m1",
        member_epoch=9,
        heartbeat_interval_ms=1,
        assignment=m.ConsumerGroupHeartbeatResponse.Assignment(topic_partitions=[again]),
    )
    consumer.membership.answered(answer)
    names = {b"n" * 16: "t"}
    assert consumer.membership.assigned(names) == []
    consumer.membership.given_up(consumer.membership.owned)
    assert consumer.membership.assigned(names) == [TopicPartition("t", 0)]
    assert said(consumer.membership).topic_partitions == [
        m.ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=b"n" * 16, partitions=[0])
    ]


def test_a_static_member_leaves_for_a_while() -> None:
    static = HeartbeatMembership("g", "m", 1_000, "i")
    request = static.leave_request()
    assert isinstance(request, m.ConsumerGroupHeartbeatRequest)
    assert (request.member_epoch, request.instance_id) == (-2, "i")
    assert HeartbeatMembership("g", "m", 1_000).leave_request().member_epoch == -1


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (ErrorCode.UNRELEASED_INSTANCE_ID, "give each running consumer its own"),
        (ErrorCode.UNSUPPORTED_VERSION, "group_protocol=classic"),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, "group.consumer.assignors"),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, "RE2"),
    ],
)
def test_a_refusal_says_what_to_do(code: ErrorCode, advice: str) -> None:
    member = HeartbeatMembership("g", "m", 1_000)
    with pytest.raises(KafkaError, match=advice) as refused:
        member.answered(m.ConsumerGroupHeartbeatResponse(error_code=code))
    assert refused.value.code == code
