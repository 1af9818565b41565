"""Which topics may be made, with which code each refusal is answered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.controller.decisions.cluster_state import TopicsByName
from headrace.controller.decisions.topics import (
    ClusterTopics,
    RequestedTopic,
    TopicDefaults,
    check_deletable,
    plan_topic,
    validate_name,
)
from headrace.errors import ErrorCode, InvalidTopic, KafkaError
from headrace.metadata.model import NO_UUID, Broker, Topic
from headrace.types import BrokerId

ONE = {BrokerId(0): Broker(BrokerId(0), ())}
THREE = {BrokerId(number): Broker(BrokerId(number), ()) for number in (1, 2, 3)}


def view(*names: str, brokers: dict[BrokerId, Broker] = ONE, deleting: tuple[str, ...] = ()) -> ClusterTopics:
    topics = TopicsByName({name: Topic(name, NO_UUID, {}) for name in names})
    return ClusterTopics(topics.keys(), topics.flat_names, frozenset(deleting), brokers)


def refusal(wish: RequestedTopic, seen: ClusterTopics) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        plan_topic(wish, seen, TopicDefaults(), 0)
    assert caught.value.message
    return caught.value.code


def replicas(*ids: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in ids)


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "...", "-", "x" * 249, "__mine", "a..b"])
def test_names_that_kafka_allows(name: str) -> None:
    validate_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "x" * 250,
        "a/b",
        "../etc",
        "a\0b",
        "%2e%2e",
        "a b",
        "a\nb",
        "tоpic",
        "tópic",
        "a:b",
        "a\u202eb",
        "٣",
    ],
)
def test_names_that_kafka_refuses(name: str) -> None:
    with pytest.raises(InvalidTopic):
        validate_name(name)
    assert refusal(RequestedTopic(name), view()) is ErrorCode.INVALID_TOPIC_EXCEPTION


@given(st.text(max_size=260))
def test_a_name_is_refused_or_safe_as_a_directory_and_a_path(name: str) -> None:
    try:
        validate_name(name)
    except InvalidTopic as error:
        assert len(error.message) < 3000
        return
    assert name.isascii() and "/" not in name and name not in (".", "..") and 0 < len(name) <= 249


def test_names_that_would_be_one_metric_collide() -> None:
    topics = TopicsByName({name: Topic(name, NO_UUID, {}) for name in ["a_b", "a.b", "ab", "a.b.c"]})
    assert {flat: list(names) for flat, names in topics.flat_names.items()} == {
        "a_b": ["a_b", "a.b"],
        "ab": ["ab"],
        "a_b_c": ["a.b.c"],
    }
    topics.remove("a_b")
    topics.remove("ab")
    assert {flat: list(names) for flat, names in topics.flat_names.items()} == {"a_b": ["a.b"], "a_b_c": ["a.b.c"]}
    assert refusal(RequestedTopic("a.b_c"), view("a_b.c")) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_topic_that_exists_or_is_being_deleted_is_not_made_again() -> None:
    assert refusal(RequestedTopic("t"), view("t")) is ErrorCode.TOPIC_ALREADY_EXISTS
    assert refusal(RequestedTopic("t"), view("t", deleting=("t",))) is ErrorCode.TOPIC_ALREADY_EXISTS
    assert refusal(RequestedTopic("a.b"), view("a.b")) is ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        (RequestedTopic("t", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (RequestedTopic("t", -2, 1), ErrorCode.INVALID_PARTITIONS),
        (RequestedTopic("t", 2**31 - 1, 1), ErrorCode.INVALID_PARTITIONS),
        (RequestedTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (RequestedTopic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (RequestedTopic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (RequestedTopic("t", 1, -1, {0: replicas(1)}), ErrorCode.INVALID_REQUEST),
        (RequestedTopic("t", -1, 1, {0: replicas(1)}), ErrorCode.INVALID_REQUEST),
        (RequestedTopic("t", assignments={0: replicas(1, 1)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (RequestedTopic("t", assignments={0: replicas(9)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (RequestedTopic("t", assignments={0: replicas()}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (RequestedTopic("t", assignments={1: replicas(1)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (RequestedTopic("t", assignments={0: replicas(1), 2: replicas(1)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (RequestedTopic("t", assignments={-1: replicas(1)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (RequestedTopic("t", assignments={0: replicas(1), 1: replicas(1, 2)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (RequestedTopic("t", configs={"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        (RequestedTopic("t", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (RequestedTopic("t", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
    ],
    ids=str,
)
def test_a_wish_that_cannot_be_granted_is_refused_with_kafkas_code(wish: RequestedTopic, code: ErrorCode) -> None:
    assert refusal(wish, view(brokers=THREE)) is code


def test_a_reliable_topic_needs_two_replicas() -> None:
    one = {0: (BrokerId(1),), 1: (BrokerId(2),)}
    two = {0: (BrokerId(1), BrokerId(2))}
    reliable = {"headrace.reliable": "true"}
    for replicas in ({"replication_factor": 1}, {"assignments": one}):
        assert refusal(RequestedTopic("t", configs=reliable, **replicas), view(brokers=THREE)) is (
            ErrorCode.INVALID_REPLICATION_FACTOR
        )
    assert (
        plan_topic(RequestedTopic("t", configs=reliable, assignments=two), view(brokers=THREE), TopicDefaults(), 0)
        == two
    )
    by_name = TopicDefaults(1, 1, lambda topic: topic == "acme.t")
    with pytest.raises(KafkaError):
        plan_topic(RequestedTopic("acme.t"), view(brokers=THREE), by_name, 0)
    assert len(plan_topic(RequestedTopic("t"), view(brokers=THREE), by_name, 0)) == 1


def test_what_a_wish_leaves_open_is_the_default() -> None:
    made = plan_topic(RequestedTopic("t"), view(brokers=THREE), TopicDefaults(4, 2), 1)
    assert {number: len(each) for number, each in made.items()} == {0: 2, 1: 2, 2: 2, 3: 2}


def test_an_assignment_is_taken_as_it_is() -> None:
    wished = {0: replicas(3, 1), 1: replicas(2, 3)}
    assert plan_topic(RequestedTopic("t", assignments=wished), view(brokers=THREE), TopicDefaults(), 5) == wished


def test_deletion_needs_the_topic_and_the_permission() -> None:
    check_deletable("t", view("t"), enabled=True)
    with pytest.raises(KafkaError) as unknown:
        check_deletable("t", view(), enabled=True)
    with pytest.raises(KafkaError) as disabled:
        check_deletable("t", view("t"), enabled=False)
    assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert disabled.value.code is ErrorCode.TOPIC_DELETION_DISABLED
