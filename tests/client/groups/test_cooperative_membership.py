"""Cooperative members under any order of answers: no partition is held twice, and in the end none is forgotten."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.consumer.membership import ClassicMemberState, Membership
from headrace.errors import KafkaError
from headrace.protocol import messages as m
from headrace.types import TopicPartition
from tests.client.groups.model_coordinator import ModelCoordinator

COUNTS = {"a": 4, "b": 3}
ROUNDS_MAX = 60


class Consumer:
    """What a consumer does with its membership, step by step, and what it holds."""

    def __init__(self, coordinator: ModelCoordinator, assignor: str) -> None:
        self.coordinator = coordinator
        self.membership = Membership("g", [assignor], 10_000, 60_000)
        self.topics = ["a"]
        self.held: set[TopicPartition] = set()
        self.revoked: set[TopicPartition] = set()
        self.lost: set[TopicPartition] = set()

    def step(self) -> None:
        """Sends what is to be sent, or reads one answer."""
        member = self.membership
        if member.state is ClassicMemberState.UNJOINED:
            self._give_up(member.to_give_up(self.topics))
            known = self.coordinator.mail.get(member.member_id)
            if known is not None:
                known.clear()  # answers to requests that it gave up
            answer = self.coordinator.join(member.join_request(self.topics))
        else:
            mail = self.coordinator.mail[member.member_id]
            answer = mail.pop(0) if mail else None
        if isinstance(answer, m.JoinGroupResponse):
            self._joined(answer)
        elif isinstance(answer, m.SyncGroupResponse):
            self._synced(answer)

    def heartbeat(self) -> None:
        if self.membership.state is ClassicMemberState.STABLE:
            self.membership.heard(self.coordinator.heartbeat(self.membership.heartbeat_request()))

    def lose_answers(self) -> None:
        """The connection broke."""
        self.coordinator.mail.get(self.membership.member_id, []).clear()
        if self.membership.state is not ClassicMemberState.STABLE:
            self.membership.state = ClassicMemberState.UNJOINED

    def subscribe(self, topics: list[str]) -> None:
        self.topics = topics
        self.membership.rejoin()

    @property
    def is_settled(self) -> bool:
        is_joined_for = self.membership.joined_topics == set(self.topics)
        return self.membership.state is ClassicMemberState.STABLE and is_joined_for

    def _joined(self, answer: m.JoinGroupResponse) -> None:
        try:
            if not self.membership.joined(answer):
                return
        except KafkaError:
            return
        answered = self.coordinator.sync(self.membership.sync_request(COUNTS))
        if isinstance(answered, m.SyncGroupResponse):
            self._synced(answered)

    def _synced(self, answer: m.SyncGroupResponse) -> None:
        try:
            assigned = set(self.membership.synced(answer))
        except KafkaError:
            return
        self._give_up(self.held - assigned)
        self.held = assigned
        if self.membership.joined_topics != set(self.topics):
            self.membership.rejoin()

    def _give_up(self, partitions: frozenset[TopicPartition] | set[TopicPartition]) -> None:
        (self.revoked if self.membership.is_member else self.lost).update(partitions & self.held)
        self.held -= partitions
        self.membership.given_up(partitions)


def check_no_partition_is_held_twice(coordinator: ModelCoordinator, consumers: list[Consumer]) -> None:
    holders = Counter(
        partition
        for consumer in consumers
        if coordinator.knows(consumer.membership.member_id)  # others do not know yet that they are out
        for partition in consumer.held
    )
    assert not [partition for partition, number in holders.items() if number > 1], holders


def settle(coordinator: ModelCoordinator, consumers: list[Consumer]) -> None:
    for _ in range(ROUNDS_MAX):
        for consumer in consumers:
            consumer.heartbeat()
            if not consumer.is_settled:
                if consumer.membership.state is ClassicMemberState.STABLE:
                    consumer.membership.rejoin()
                consumer.step()
            check_no_partition_is_held_twice(coordinator, consumers)
    assert all(consumer.is_settled for consumer in consumers), [each.membership.state for each in consumers]


EVENTS = st.tuples(
    st.sampled_from(["step"] * 6 + ["heartbeat"] * 2 + ["lose", "expire", "both", "one", "other"]),
    st.integers(0, 3),
)


@given(st.lists(EVENTS, max_size=80), st.integers(1, 4))
def test_no_partition_is_held_twice_and_none_is_forgotten(events: list[tuple[str, int]], count: int) -> None:
    coordinator = ModelCoordinator()
    consumers = [Consumer(coordinator, "cooperative-sticky") for _ in range(count)]
    for event, number in events:
        consumer = consumers[number % count]
        match event:
            case "step":
                if not consumer.is_settled:
                    consumer.step()
            case "heartbeat":
                consumer.heartbeat()
            case "lose":
                consumer.lose_answers()
            case "expire":
                coordinator.expire(consumer.membership.member_id)
            case "both" | "one" | "other":
                consumer.subscribe({"both": ["a", "b"], "one": ["a"], "other": ["b"]}[event])
        check_no_partition_is_held_twice(coordinator, consumers)
    settle(coordinator, consumers)
    wanted = {
        TopicPartition(topic, partition)
        for topic in {topic for consumer in consumers for topic in consumer.topics}
        for partition in range(COUNTS[topic])
    }
    assert {partition for consumer in consumers for partition in consumer.held} == wanted


def test_what_stays_is_neither_revoked_nor_given_again() -> None:
    coordinator = ModelCoordinator()
    first = Consumer(coordinator, "cooperative-sticky")
    settle(coordinator, [first])
    assert first.held == {TopicPartition("a", number) for number in range(4)}
    second = Consumer(coordinator, "cooperative-sticky")
    settle(coordinator, [first, second])
    assert (len(first.held), len(second.held)) == (2, 2)
    assert first.revoked == second.held
    assert first.lost == set()


def test_who_was_out_of_the_group_loses_everything() -> None:
    coordinator = ModelCoordinator()
    first, second = (Consumer(coordinator, "cooperative-sticky") for _ in range(2))
    settle(coordinator, [first, second])
    held = set(first.held)
    coordinator.expire(first.membership.member_id)
    settle(coordinator, [first, second])
    assert (first.lost, first.revoked) == (held, set())


def test_an_eager_member_gives_everything_up_before_it_joins() -> None:
    member = Membership("g", ["range", "cooperative-sticky"], 10_000, 60_000)
    member.generation, member.owned = 3, frozenset({TopicPartition("a", 0)})
    assert not member.is_cooperative
    assert member.to_give_up(["a"]) == {TopicPartition("a", 0)}
