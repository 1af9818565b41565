"""What the controller decides about instances, and in which words it refuses."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.controller.decisions.instances import (
    GRACE_MS_DEFAULT,
    Contents,
    InstancesView,
    begin_removal,
    contents_of,
    plan_change,
    plan_creation,
    plan_deletion,
)
from headrace.errors import ErrorCode, KafkaError
from headrace.instances.definition import Instance, InstanceState, decode_instance, described, encode_instance
from headrace.metadata.model import NO_UUID, Broker, Endpoint, Replicas, Topic
from headrace.types import BrokerId

NOW_MS = 1_000_000
BROKERS = {
    BrokerId(each): Broker(BrokerId(each), (Endpoint("PLAINTEXT", f"h{each}", 9090 + each),)) for each in (1, 2, 3)
}
EMPTY = Contents()
FULL = Contents(2, 12, frozenset({BrokerId(1), BrokerId(2)}), "acme.orders", stored=500)
ACME = Instance("acme", "I", port=9500)


def view(*instances: Instance, **others: Any) -> InstancesView:
    return InstancesView(instances, BROKERS, NOW_MS, **others)


def refused(decide: Any, *given: Any) -> tuple[ErrorCode, str]:
    with pytest.raises(KafkaError) as found:
        decide(*given)
    return found.value.code, found.value.message


def create(name: str, document: dict[str, object], *instances: Instance, contents: Contents = EMPTY) -> Instance:
    return plan_creation(name, "ID", document, contents, view(*instances))


def test_a_new_instance_has_the_fields_of_the_request() -> None:
    made = create("acme", {"bytes_in": 5, "brokers": [1, 2], "port": 9500, "adopt": False})
    assert made == Instance("acme", "ID", created_ms=NOW_MS, bytes_in=5, brokers=(1, 2), port=9500)


@pytest.mark.parametrize(
    ("name", "document", "words"),
    [
        ("Acme", {}, "cannot be called 'Acme'"),
        ("a.b", {}, "cannot be called 'a.b'"),
        ("", {}, "cannot be called ''"),
        ("x" * 33, {}, "cannot be called"),
        ("new", {"bytes": 1}, "an instance has no 'bytes'"),
        ("new", {"id": "mine"}, "id of an instance cannot be altered"),
        ("new", {"state": "active"}, "state of an instance is not set"),
        ("new", {"deleted_at_ms": 1}, "deleted_at_ms of an instance is not set"),
        ("new", {"bytes_in": 0}, "bytes_in of an instance cannot be 0"),
        ("new", {"bytes_in": True}, "bytes_in of an instance cannot be True"),
        ("new", {"brokers": [1, 7, 9]}, "cannot be 7, 9: the live brokers are 1, 2, 3"),
        ("new", {"allow": ["10.0.0.1/8"]}, "is not a network"),
        ("new", {"port": 9091}, "listener PLAINTEXT of broker 1 has it"),
        ("new", {"port": 9500}, "instance acme has it"),
        ("new", {"port": 9500, "brokers": [2]}, "instance acme has it"),
        ("new", {"addresses": ["2=h:9092"]}, "listener PLAINTEXT of broker 2 has it"),
        ("new", {"addresses": ["2=10.8.0.5:9500"]}, "instance acme has it"),
        ("new", {"adopt": "yes"}, "adopt cannot be 'yes'"),
    ],
)
def test_what_cannot_be_an_instance_is_refused(name: str, document: dict[str, object], words: str) -> None:
    code, message = refused(create, name, document, ACME)
    assert (code, words in message) == (ErrorCode.INVALID_CONFIG, True), message


def test_a_name_is_taken_until_the_instance_is_gone() -> None:
    assert refused(create, "acme", {}, ACME) == (ErrorCode.DUPLICATE_RESOURCE, "an instance called acme exists")
    code, message = refused(create, "acme", {}, plan_deletion(ACME, {}, EMPTY, view()))
    assert (code, "its name is not free yet" in message) == (ErrorCode.DUPLICATE_RESOURCE, True)


def test_topics_with_its_names_are_adopted_only_if_the_request_says_so() -> None:
    with pytest.raises(KafkaError, match="2 topics such as acme.orders have names of instance acme"):
        create("acme", {}, contents=FULL)
    assert create("acme", {"adopt": True}, contents=FULL).name == "acme"


def test_two_instances_do_not_share_a_port_whichever_brokers_hold_their_partitions() -> None:
    """Every broker has a listener for each: any may coordinate its groups."""
    one = Instance("one", "I", port=9500, brokers=(1,))
    assert refused(create, "two", {"port": 9500, "brokers": [2, 3]}, one)[0] is ErrorCode.INVALID_CONFIG
    assert refused(create, "two", {"port": 9500}, one)[0] is ErrorCode.INVALID_CONFIG
    assert create("two", {"port": 9500}, plan_deletion(one, {}, EMPTY, view())).port == 9500
    assert create("two", {"brokers": [2], "addresses": ["1=h:9600"]}, one).addresses == ("1=h:9600",)


def test_two_instances_share_a_port_on_addresses_of_their_own() -> None:
    def each(number: int) -> list[str]:
        return [f"{broker}=10.{number}.0.{broker}:9500" for broker in BROKERS]

    one = Instance("one", "I", addresses=tuple(each(1)))
    assert create("two", {"addresses": each(2)}, one).addresses == tuple(each(2))
    assert refused(create, "two", {"addresses": each(1)}, one)[0] is ErrorCode.INVALID_CONFIG
    assert refused(create, "two", {"port": 9500}, one)[0] is ErrorCode.INVALID_CONFIG


def test_brokers_of_one_host_do_not_share_a_port() -> None:
    """As the workers of one supervisor, or brokers behind one address."""
    one_host = {
        each: broker._replace(endpoints=(Endpoint("PLAINTEXT", "h", 9090 + each),)) for each, broker in BROKERS.items()
    }
    workers = InstancesView((), one_host, NOW_MS)
    with pytest.raises(KafkaError, match="brokers 1 and 2 are on one host"):
        plan_creation("new", "ID", {"port": 9500}, EMPTY, workers)
    with pytest.raises(KafkaError, match="brokers 1 and 3 are on one host"):
        plan_creation("new", "ID", {"port": 9500, "addresses": ["2=127.0.0.1:9600"]}, EMPTY, workers)
    assert plan_creation("new", "ID", {}, EMPTY, workers).port == 0
    ports = [f"{each}=127.0.0.1:{9600 + each}" for each in BROKERS]
    assert plan_creation("new", "ID", {"addresses": ports}, EMPTY, workers).port == 0


def test_an_alteration_keeps_what_it_does_not_name() -> None:
    after = plan_change(ACME, {"bytes_out": 7, "port": 9500}, EMPTY, view(ACME))
    assert after == Instance("acme", "I", port=9500, bytes_out=7)


def test_limits_are_not_set_below_what_there_is_unless_forced() -> None:
    for name, value in (("topics_max", 1), ("partitions_max", 11), ("capacity", 499)):
        code, message = refused(plan_change, ACME, {name: value}, FULL, view(ACME))
        assert (code, f"{name} of instance acme cannot be {value}" in message) == (ErrorCode.POLICY_VIOLATION, True)
        assert getattr(plan_change(ACME, {name: value, "force": True}, FULL, view(ACME)), name) == value
    enough = {"topics_max": 2, "partitions_max": 12, "capacity": 500}
    assert plan_change(ACME, enough, FULL, view(ACME)).topics_max == 2
    assert plan_change(ACME, {"capacity": 1}, EMPTY, view(ACME)).capacity == 1  # nobody has counted


def test_an_instance_that_is_over_a_limit_already_can_be_altered_otherwise() -> None:
    over = ACME.altered({"topics_max": 1})
    assert plan_change(over, {"bytes_in": 9}, FULL, view(over)).bytes_in == 9


def test_brokers_with_its_partitions_stay_unless_forced() -> None:
    assert "its partitions are on brokers 1, 2" in refused(plan_change, ACME, {"brokers": [1]}, FULL, view(ACME))[1]
    assert plan_change(ACME, {"brokers": [1], "force": True}, FULL, view(ACME)).brokers == (1,)
    assert plan_change(ACME, {"brokers": [1, 2]}, FULL, view(ACME)).brokers == (1, 2)


def test_a_broker_that_is_down_does_not_hinder_an_alteration() -> None:
    on_four = Instance("acme", "I", brokers=(1, 4))
    assert plan_change(on_four, {"brokers": [1, 2, 4]}, EMPTY, view(on_four)).brokers == (1, 2, 4)


def test_an_instance_without_topics_is_deleted_at_once() -> None:
    after = plan_deletion(ACME, {}, EMPTY, view(ACME))
    assert (after.state, after.deleted_at_ms) == (InstanceState.DELETING, NOW_MS)
    assert begin_removal(after, NOW_MS).state is InstanceState.REMOVING


def test_an_instance_with_topics_is_deleted_with_its_data_only_and_after_a_grace_period() -> None:
    code, message = refused(plan_deletion, ACME, {}, FULL, view(ACME))
    assert (code, "has 2 topics, such as acme.orders" in message) == (ErrorCode.POLICY_VIOLATION, True)
    after = plan_deletion(ACME, {"with_data": True}, FULL, view(ACME))
    assert after.deleted_at_ms == NOW_MS + GRACE_MS_DEFAULT
    sooner = plan_deletion(after, {"with_data": True, "grace_ms": 5}, FULL, view(after))
    assert sooner.deleted_at_ms == NOW_MS + 5
    assert begin_removal(sooner, NOW_MS + 4) is sooner
    assert begin_removal(sooner, NOW_MS + 5).state is InstanceState.REMOVING


def test_topics_are_not_deleted_where_brokers_forbid_it() -> None:
    forbidden = view(ACME, can_delete_topics=False)
    code, _ = refused(plan_deletion, ACME, {"with_data": True}, FULL, forbidden)
    assert code is ErrorCode.TOPIC_DELETION_DISABLED
    assert plan_deletion(ACME, {}, EMPTY, forbidden).state is InstanceState.DELETING


def test_an_instance_is_brought_back_until_its_data_is_removed() -> None:
    deleted = plan_deletion(ACME, {"with_data": True}, FULL, view(ACME))
    assert "bring it back first" in refused(plan_change, deleted, {"bytes_in": 1}, FULL, view(deleted))[1]
    assert plan_change(deleted, {"state": "active"}, FULL, view(deleted)) == ACME
    removing = begin_removal(deleted, NOW_MS + GRACE_MS_DEFAULT)
    for decide, document in ((plan_change, {"state": "active"}), (plan_deletion, {"with_data": True})):
        assert "cannot be brought back" in refused(decide, removing, document, FULL, view(removing))[1]
    assert begin_removal(ACME, NOW_MS) is ACME


def test_one_that_comes_back_needs_its_port() -> None:
    deleted = plan_deletion(ACME, {}, EMPTY, view(ACME))
    other = Instance("other", "J", port=9500)
    assert "instance other has it" in refused(plan_change, deleted, {"state": "active"}, EMPTY, view(deleted, other))[1]


@pytest.mark.parametrize(
    "document",
    [{"state": "deleting"}, {"state": 1}, {"deleted_at_ms": None}, {"force": 1}, {"name": "b"}, {"nonsense": 1}],
)
def test_what_an_alteration_cannot_say_is_refused(document: dict[str, object]) -> None:
    assert refused(plan_change, ACME, document, EMPTY, view(ACME))[0] is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    "document",
    [{"grace_ms": -1}, {"grace_ms": "1"}, {"grace_ms": True}, {"grace_ms": 1 << 70}, {"with_data": 1}, {"x": 1}],
)
def test_what_a_deletion_cannot_say_is_refused(document: dict[str, object]) -> None:
    assert refused(plan_deletion, ACME, document, EMPTY, view(ACME))[0] is ErrorCode.INVALID_CONFIG


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
WORDS = st.sampled_from([*described(ACME), "adopt", "force", "with_data", "grace_ms"]) | st.text(max_size=5)


@given(st.dictionaries(WORDS, VALUES, max_size=4), st.sampled_from([plan_change, plan_deletion, plan_creation]))
def test_any_document_is_decided_or_refused_in_words_that_can_be_sent(document: dict[str, object], decide: Any) -> None:
    document = json.loads(json.dumps(document))
    who = ("new", "ID") if decide is plan_creation else (ACME,)
    try:
        after = decide(*who, document, FULL, view(ACME))
    except KafkaError as error:
        assert len(error.message.encode()) < 2000
    else:
        assert decode_instance(encode_instance(after)) == after
        json.dumps(described(after)).encode()


def test_what_an_instance_holds_is_counted() -> None:
    topics = [
        Topic("acme.a", NO_UUID, {0: Replicas((BrokerId(1), BrokerId(2))), 1: Replicas((BrokerId(2), BrokerId(3)))}),
        Topic("acme.b", NO_UUID, {0: Replicas((BrokerId(1),))}),
    ]
    assert contents_of(topics) == Contents(2, 3, frozenset(BROKERS), "acme.b")
    assert contents_of([]) == EMPTY
