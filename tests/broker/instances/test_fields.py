"""Every field of what instances are served is classified, and translated as its kind says."""

from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.handlers import all_modules
from headrace.broker.instances import consumer_protocol
from headrace.broker.instances.fields import EVERYWHERE, SERVED, TEXT_TYPES, FieldKind, Fields, kind_of, leaves
from headrace.broker.instances.names import InstanceNames
from headrace.broker.instances.translation import ELEMENTS_PER_SLICE, Translate, message_class, of_request, of_response
from headrace.coordinators.groups.consumer.embedded_protocol import read_assignment, read_subscription
from headrace.errors import KafkaError
from headrace.instances.names import Namespace
from headrace.limits import TOPIC_NAME_CHARS_MAX
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec import schema
from headrace.protocol.codec.message import Struct

ACME = InstanceNames(Namespace("acme"))
UNSERVED = {
    "WRITE_TXN_MARKERS", "LEADER_AND_ISR", "STOP_REPLICA", "UPDATE_METADATA", "CONTROLLED_SHUTDOWN", "ALTER_PARTITION",
    "ALLOCATE_PRODUCER_IDS", "DESCRIBE_QUORUM", "UNREGISTER_BROKER", "UPDATE_FEATURES", "ELECT_LEADERS",
    "ALTER_PARTITION_REASSIGNMENTS", "LIST_PARTITION_REASSIGNMENTS", "ALTER_REPLICA_LOG_DIRS",
    "CREATE_DELEGATION_TOKEN", "RENEW_DELEGATION_TOKEN", "EXPIRE_DELEGATION_TOKEN", "DESCRIBE_DELEGATION_TOKEN",
    "GET_TELEMETRY_SUBSCRIPTIONS", "PUSH_TELEMETRY", "INITIALIZE_SHARE_GROUP_STATE", "READ_SHARE_GROUP_STATE",
    "WRITE_SHARE_GROUP_STATE", "DELETE_SHARE_GROUP_STATE", "READ_SHARE_GROUP_STATE_SUMMARY",
}  # fmt: skip
"""The operator's, those of brokers, and what is not for instances."""


def both(key: ApiKey, fields: Fields) -> Iterator[tuple[schema.MessageSchema, Any]]:
    yield schema.load(message_class(key, "Request")), fields.request
    yield schema.load(message_class(key, "Response")), fields.response


def qualifying(key: ApiKey) -> Translate:
    translate = of_request(key)
    assert translate is not None
    return translate


def localizing(key: ApiKey) -> Translate:
    translate = of_response(key)
    assert translate is not None
    return translate


def run(translating: Any) -> tuple[Any, int]:
    """The result, and the number of slices before it."""
    slices = 0
    while True:
        try:
            next(translating)
        except StopIteration as done:
            return done.value, slices
        slices += 1


def test_every_api_of_the_broker_is_served_to_instances_or_left_out_on_purpose() -> None:
    known = {module.API_KEY.name for module in all_modules() if not getattr(module.API_KEY, "is_own", False)}
    assert known == UNSERVED | {key.name for key in SERVED}


@pytest.mark.parametrize("key", SERVED, ids=lambda key: key.name)
def test_every_field_that_could_name_something_has_a_kind(key: ApiKey) -> None:
    for message, paths in both(key, SERVED[key]):
        found = dict(leaves(message))
        unclassified = [path for path, field in found.items() if field.type in TEXT_TYPES and not kind_of(paths, path)]
        assert not unclassified, message.name
        assert not paths.keys() - found.keys(), message.name


def test_every_name_that_means_the_same_everywhere_occurs() -> None:
    names = {
        path.rpartition(".")[2]
        for key, fields in SERVED.items()
        for message, _ in both(key, fields)
        for path, _ in leaves(message)
    }
    assert not EVERYWHERE.keys() - names


QUALIFIED = (FieldKind.TOPIC, FieldKind.GROUP, FieldKind.ANY_GROUP, FieldKind.TRANSACTION, FieldKind.USER)


def filled(kind: type[Struct], message: schema.MessageSchema, struct: str, paths: Any, path: str, name: str) -> Any:
    """A struct with one element in each array and `name` in each field that names something."""
    values: dict[str, Any] = {}
    for field in message.structs[struct]:
        here = path + field.name
        if field.is_struct:
            value = filled(getattr(m_class(message), field.type), message, field.type, paths, f"{here}.", name)
        elif kind_of(paths, here) in QUALIFIED:
            value = name
        else:
            continue
        values[field.name] = [value] if field.is_array else value
    return kind(**values)


def m_class(message: schema.MessageSchema) -> Any:
    return getattr(m, message.name)


def named(value: Any, message: schema.MessageSchema, struct: str, paths: Any, path: str = "") -> list[str]:
    """What the fields that name something have."""
    found: list[str] = []
    for field in message.structs[struct]:
        here, of = path + field.name, getattr(value, field.name)
        if field.is_struct:
            for each in (of or []) if field.is_array else [of] if of is not None else []:
                found += named(each, message, field.type, paths, f"{here}.")
        elif kind_of(paths, here) in QUALIFIED:
            found += of if field.is_array else [of]
    return found


@pytest.mark.parametrize("key", SERVED, ids=lambda key: key.name)
def test_every_name_is_qualified_in_requests_and_stripped_or_left_out_in_responses(key: ApiKey) -> None:
    request, response = (message for message, _ in both(key, SERVED[key]))
    qualify, localize = of_request(key), of_response(key)
    asked = filled(m_class(request), request, "", SERVED[key].request, "", "x")
    assert set(named(asked, request, "", SERVED[key].request)) <= {"x"}
    if qualify is not None:
        after, _ = run(qualify(ACME, asked))
        assert set(named(after, request, "", SERVED[key].request)) <= {"acme.x"}
    if localize is not None:
        paths = SERVED[key].response
        for before, expected in (("acme.x", {"x"}), ("other.x", {""})):
            answer = filled(m_class(response), response, "", paths, "", before)
            kept = repr(answer)
            after, _ = run(localize(ACME, answer))
            assert set(named(after, response, "", paths)) <= expected
            assert repr(answer) == kept, "a response may be shared"
            assert "other" not in repr(after)


def test_empty_names_stay_empty_but_for_groups_that_may_have_no_name() -> None:
    topic = m.MetadataRequest.MetadataRequestTopic
    asked, _ = run(qualifying(ApiKey.METADATA)(ACME, m.MetadataRequest(topics=[topic(name=""), topic(name=None)])))
    assert [each.name for each in asked.topics] == ["", None]
    committed, _ = run(qualifying(ApiKey.OFFSET_COMMIT)(ACME, m.OffsetCommitRequest(group_id="")))
    assert committed.group_id == "acme."
    joined, _ = run(qualifying(ApiKey.JOIN_GROUP)(ACME, m.JoinGroupRequest(group_id="", protocol_type="consumer")))
    assert joined.group_id == ""


def test_ids_of_others_and_ids_of_nobody_become_ids_of_nobody_and_are_told_back_as_they_were() -> None:
    names = InstanceNames(Namespace("acme"))
    own, other, none = b"own.............", b"other...........", bytes(16)
    names.has_id(own, "acme.orders")
    topic = m.MetadataRequest.MetadataRequestTopic
    request = m.MetadataRequest(topics=[topic(name=None, topic_id=each) for each in (own, other, none)])
    asked, _ = run(qualifying(ApiKey.METADATA)(names, request))
    masked = [each.topic_id for each in asked.topics]
    assert masked[0] == own
    assert masked[1] not in (own, other)
    assert masked[2] == none
    told = m.MetadataResponse.MetadataResponseTopic
    answer = m.MetadataResponse(topics=[told(name=None, topic_id=each) for each in masked])
    after, _ = run(localizing(ApiKey.METADATA)(names, answer))
    assert [each.topic_id for each in after.topics] == [own, other, none]
    names.had_id(own)
    after, _ = run(localizing(ApiKey.METADATA)(names, answer))
    assert after.topics[0].topic_id == own, "a deleted topic's id is still what the client knows"


def test_texts_lose_the_prefix_and_nothing_else() -> None:
    names = InstanceNames(Namespace("d"))
    for before, after in (
        ("Topic 'd.orders' already exists.", "Topic 'orders' already exists."),
        ("Authorization failed.", "Authorization failed."),
        ("User:d.alice may not READ TOPIC d.a from d. Ask.", "User:alice may not READ TOPIC a from d. Ask."),
        ("the group 'd.' of bad.d.x", "the group '' of bad.d.x"),
        (f"`{names.regex('^a.*')}` is not valid", "`(?:(?:^)?a.*)` is not valid"),
    ):
        assert names.text(before) == after


def test_texts_name_no_data_directory() -> None:
    names = InstanceNames(Namespace("d"), ("/srv/one", "/srv/one/two", "data"))
    for before, after in (
        ("d.t-0 could not be written: '/srv/one/d.t-0/0.log'", "t-0 could not be written: 'log-dir/t-0/0.log'"),
        ("d.t-0 is in a data directory that failed: /srv/one", "t-0 is in a data directory that failed: log-dir"),
        ("'data/d.t-0/0.log' in data directory /srv/one-too", "'log-dir/t-0/0.log' in data directory /srv/one-too"),
        ("/srv/one/two/x", "log-dir/x"),
    ):
        assert names.text(before) == after


def test_a_large_message_is_translated_in_slices() -> None:
    count = 10 * ELEMENTS_PER_SLICE
    topics = [m.MetadataRequest.MetadataRequestTopic(name=f"t{number}") for number in range(count)]
    asked, slices = run(qualifying(ApiKey.METADATA)(ACME, m.MetadataRequest(topics=topics)))
    assert asked.topics[-1].name == f"acme.t{count - 1}"
    assert slices == count // ELEMENTS_PER_SLICE
    partition = m.ProduceResponse.PartitionProduceResponse
    answer = m.ProduceResponse(
        responses=[
            m.ProduceResponse.TopicProduceResponse(
                name="acme.t", partition_responses=[partition(index=number) for number in range(count)]
            )
        ]
    )
    after, slices = run(localizing(ApiKey.PRODUCE)(ACME, answer))
    assert len(after.responses[0].partition_responses) == count
    assert slices >= count // ELEMENTS_PER_SLICE


def test_a_regular_expression_sees_the_names_of_the_instance_alone() -> None:
    import re2

    for expression, matched in (
        ("ord.*", ["acme.orders"]),
        (".*", ["acme.orders", "acme.users"]),
        ("a|o.*", ["acme.orders"]),
        ("(?i)ORDERS", ["acme.orders"]),
        ("", []),
        ("^ord.*$", ["acme.orders"]),
        ("(^ord|^us).*", ["acme.orders", "acme.users"]),
        (r"\Aord.*\z", ["acme.orders"]),
        ("[^o^].*", ["acme.users"]),
        (r"[\]^]|\^|\Q^\E|[[:alpha:]^]+", ["acme.orders", "acme.users"]),
    ):
        written = ACME.regex(expression)
        compiled = re2.compile(written)
        names = ("acme.orders", "acme.users", "other.orders", "orders", "acmexorders")
        assert [each for each in names if compiled.fullmatch(each)] == matched, expression
        assert ACME.local_regex(written) == expression
    for escape in ("a)|(.*", ".*)|(?:.*", "(", "\\", "[", "a)|other\\.(?:.*"):
        assert ACME.regex(escape) == escape, "what is not valid by itself is refused, not completed"


def subscription(topics: list[str], owned: list[str], version: int) -> bytes:
    told = m.ConsumerProtocolSubscription
    message = told(
        topics=topics,
        user_data=b"orders",
        owned_partitions=[told.TopicPartition(topic=each, partitions=[0, 1]) for each in owned],
        generation_id=7 if version >= 2 else -1,
        rack_id="r" if version >= 3 else None,
    )
    return version.to_bytes(2) + message.encode(version)


@pytest.mark.parametrize("version", range(4))
def test_the_bytes_of_consumers_name_qualified_topics(version: int) -> None:
    owned = ["users"] if version else []
    before = subscription(["orders", "users"], owned, version)
    after, _ = run(consumer_protocol.subscription(before, ACME.qualified))
    assert after == subscription(["acme.orders", "acme.users"], [f"acme.{each}" for each in owned], version)
    assert run(consumer_protocol.subscription(after, ACME.local))[0] == before
    others = subscription(["acme.orders", "other.users"], owned and ["other.x"], version)
    assert run(consumer_protocol.subscription(others, ACME.local))[0] == subscription(["orders"], [], version)
    told = m.ConsumerProtocolAssignment

    def assigned(topic: str) -> bytes:
        partitions = [told.TopicPartition(topic=topic, partitions=[1, 2])]
        return version.to_bytes(2) + told(assigned_partitions=partitions, user_data=None).encode(version)

    assert run(consumer_protocol.assignment(assigned("orders"), ACME.qualified))[0] == assigned("acme.orders")


LONG = 32767
NAMES = st.sampled_from(["orders", "beta.orders", "x" * (LONG - 2), "x" * LONG, "\u00fc"])
NUMBERS = st.sampled_from([b"\xff\xff", b"\0\1", b"\x7f\xff", b"\xff\xff\xff\xff", b"\0\0\0\3", b"\xc3\x28"])


@given(
    st.lists(NAMES, max_size=3),
    st.lists(NAMES, max_size=3),
    st.integers(-2, 5),
    st.integers(0, 3),
    st.lists(st.tuples(st.integers(0, 80), NUMBERS), max_size=2),
)
def test_whatever_a_member_sends_the_broker_reads_no_name_of_others(
    topics: list[str], owned: list[str], version: int, written: int, damage: list[tuple[int, bytes]]
) -> None:
    """Names too long to be qualified are nobody's."""
    told = m.ConsumerProtocolAssignment
    partitions = [told.TopicPartition(topic=each, partitions=[0]) for each in owned]
    subscribed = bytearray(version.to_bytes(2, signed=True) + subscription(topics, owned, written)[2:])
    assigned = bytearray(
        version.to_bytes(2, signed=True) + told(assigned_partitions=partitions, user_data=None).encode(0)
    )
    for place, number in damage:
        subscribed[place : place + len(number)] = number
        assigned[place : place + len(number)] = number
    asked: list[str] = []
    known = cast(Any, SimpleNamespace(by_name=asked.append))
    with suppress(KafkaError):
        asked += read_subscription(run(consumer_protocol.subscription(bytes(subscribed), ACME.qualified))[0], known)[0]
    with suppress(KafkaError):
        read_assignment(run(consumer_protocol.assignment(bytes(assigned), ACME.qualified))[0], known)
    assert not [each for each in asked if not each.startswith("acme.") and len(each) <= TOPIC_NAME_CHARS_MAX]


def test_bytes_that_are_no_consumers_stay_as_they_are() -> None:
    whole = subscription(["orders"], ["orders"], 3)
    for length in range(len(whole)):
        found, _ = run(consumer_protocol.subscription(whole[:length], ACME.qualified))
        assert found == whole[:length] or found.startswith(whole[:2])
    for data in (b"", b"\0", b"\0\1\xff\xff\xff\xff", b"\0\1\x7f\xff\xff\xff", b"\0\1\0\0\0\1\0\2\xff\xff"):
        assert run(consumer_protocol.subscription(data, ACME.qualified))[0] == data
        assert run(consumer_protocol.assignment(data, ACME.qualified))[0] == data
