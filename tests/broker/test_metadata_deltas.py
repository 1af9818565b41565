"""What a broker makes of UpdateMetadata: the next snapshot, and what is new in it for its listeners."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from headrace.metadata.deltas import MetadataDelta, TopicIdentity
from headrace.metadata.metadata_cache import MetadataCache
from headrace.metadata.model import FULL_UPDATE, LEADER_DURING_DELETE, NO_UUID
from headrace.protocol import messages as m
from headrace.types import BrokerId

A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))


def told(
    name: str, topic_id: bytes, leaders: dict[int, int], *, epoch: int = 0, isr: tuple[int, ...] = (1, 2)
) -> m.UpdateMetadataRequest.UpdateMetadataTopicState:
    """A topic's partitions, by number, and their leaders."""
    states = [
        m.UpdateMetadataRequest.UpdateMetadataPartitionState(
            partition_index=number, leader=leader, leader_epoch=epoch, isr=list(isr), replicas=[1, 2]
        )
        for number, leader in leaders.items()
    ]
    return m.UpdateMetadataRequest.UpdateMetadataTopicState(topic_name=name, topic_id=topic_id, partition_states=states)


def update(
    *topics: m.UpdateMetadataRequest.UpdateMetadataTopicState,
    brokers: tuple[tuple[int, str], ...] = ((1, "one"), (2, "two")),
    is_full: bool = False,
) -> m.UpdateMetadataRequest:
    """An UpdateMetadata, as it is after the wire."""
    request = m.UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=1,
        broker_epoch=1,
        type=FULL_UPDATE if is_full else 0,
        topic_states=list(topics),
        live_brokers=[
            m.UpdateMetadataRequest.UpdateMetadataBroker(
                id=number,
                endpoints=[
                    m.UpdateMetadataRequest.UpdateMetadataEndpoint(
                        listener="PLAINTEXT", host=host, port=9092, security_protocol=0
                    )
                ],
            )
            for number, host in brokers
        ],
    )
    return m.UpdateMetadataRequest.decode(8, request.encode(8), 0)[0]


@pytest.fixture
def cache() -> MetadataCache:
    """A broker that knows the topic `t` of two partitions."""
    cache = MetadataCache()
    cache.apply(update(told("t", A, {0: 1, 1: 2})))
    return cache


def partitions(cache: MetadataCache, name: str) -> dict[int, int] | None:
    topic = cache.topic(name)
    return None if topic is None else {number: each.leader for number, each in topic.partitions.items()}


def test_the_first_request_creates_everything() -> None:
    cache = MetadataCache()
    delta = cache.apply(update(told("t", A, {1: 2, 0: 1})))
    assert delta == MetadataDelta(
        topics_created=(TopicIdentity("t", A),),
        partitions_changed={"t": (1, 0)},
        brokers_added=frozenset({BrokerId(1), BrokerId(2)}),
    )
    assert list(cache.topics["t"].partitions) == [0, 1]
    assert cache.topic_by_id(A) is cache.topic("t")


def test_what_is_told_twice_is_no_change(cache: MetadataCache) -> None:
    before = cache.topic("t")
    assert cache.apply(update(told("t", A, {0: 1, 1: 2}))) == MetadataDelta()
    assert cache.topic("t") is before


def test_partitions_that_changed_or_came_are_named_and_the_others_stay(cache: MetadataCache) -> None:
    assert cache.apply(update(told("t", A, {1: 1}, epoch=1))).partitions_changed == {"t": (1,)}
    assert cache.apply(update(told("t", A, {1: 1}, epoch=1, isr=(1,)))).partitions_changed == {"t": (1,)}
    assert cache.apply(update(told("t", A, {2: 2}))).partitions_changed == {"t": (2,)}
    assert partitions(cache, "t") == {0: 1, 1: 1, 2: 2}


def test_a_deleted_topic_is_named_with_its_id(cache: MetadataCache) -> None:
    delta = cache.apply(update(told("t", A, {0: LEADER_DURING_DELETE, 1: LEADER_DURING_DELETE})))
    assert delta == MetadataDelta(topics_deleted=(TopicIdentity("t", A),))
    assert cache.topic("t") is None and cache.topic_by_id(A) is None


def test_a_deletion_begun_while_this_broker_was_down_is_heard_all_the_same() -> None:
    cache = MetadataCache()
    delta = cache.apply(update(told("gone", C, {0: LEADER_DURING_DELETE}), told("t", A, {0: 1})))
    assert delta.topics_deleted == (TopicIdentity("gone", C),)
    assert delta.topics_created == (TopicIdentity("t", A),)


def test_a_topic_made_anew_keeps_no_partition_of_the_one_before(cache: MetadataCache) -> None:
    delta = cache.apply(update(told("t", B, {0: 2})))
    assert delta.topics_deleted == (TopicIdentity("t", A),) and delta.topics_created == (TopicIdentity("t", B),)
    assert delta.names_recreated == {"t"} and delta.partitions_changed == {"t": (0,)}
    assert partitions(cache, "t") == {0: 2}
    assert cache.topic_by_id(A) is None and cache.topic_by_id(B) is cache.topic("t")


def test_a_full_update_forgets_topics_that_it_does_not_name(cache: MetadataCache) -> None:
    cache.apply(update(told("u", B, {0: 1})))
    delta = cache.apply(update(told("u", B, {}), is_full=True))
    assert delta == MetadataDelta(topics_deleted=(TopicIdentity("t", A),))
    assert partitions(cache, "t") is None and partitions(cache, "u") == {0: 1}


def test_ids_that_come_late_or_from_a_controller_without_them_change_no_topic(cache: MetadataCache) -> None:
    assert cache.apply(update(told("t", NO_UUID, {0: 2}))).topics_deleted == ()
    assert cache.topic_by_id(A) is not None and partitions(cache, "t") == {0: 2, 1: 2}
    cache.apply(update(told("old", NO_UUID, {0: 1})))
    delta = cache.apply(update(told("old", B, {0: 1})))
    assert not delta.topics_created and not delta.topics_deleted
    assert cache.topic_by_id(B) is cache.topic("old")


def test_brokers_come_go_and_move(cache: MetadataCache) -> None:
    delta = cache.apply(update(brokers=((2, "elsewhere"), (3, "three"))))
    assert delta == MetadataDelta(
        brokers_added=frozenset({BrokerId(3)}),
        brokers_removed=frozenset({BrokerId(1)}),
        brokers_changed=frozenset({BrokerId(2)}),
    )
    assert partitions(cache, "t") == {0: 1, 1: 2}


def test_listeners_hear_in_their_order_after_the_snapshot_changed_also_when_one_fails(cache: MetadataCache) -> None:
    heard: list[tuple[str, bool, int]] = []

    def fail(delta: MetadataDelta) -> None:
        heard.append(("first", cache.topic("u") is not None, len(delta.topics_created)))
        raise RuntimeError("a listener of this test")

    cache.on_change(fail)
    cache.on_change(lambda delta: heard.append(("second", cache.topic("u") is not None, len(delta.topics_created))))
    cache.apply(update(told("u", B, {0: 1})))
    assert heard == [("first", True, 1), ("second", True, 1)]


def test_one_change_among_ten_thousand_topics_looks_at_no_other_topic() -> None:
    """Copies of the tables of names are one instruction each, however long: a loop over them is ten thousand."""
    topics = [told(f"t{number}", number.to_bytes(16, "big"), {0: 1}) for number in range(1, 10_001)]
    cache = MetadataCache()
    cache.apply(update(*topics))
    untouched = cache.topic("t1")
    request = update(told("t5000", (5000).to_bytes(16, "big"), {0: 2}, epoch=1))
    instructions = _instructions_of(lambda: cache.apply(request))
    assert cache.topic("t1") is untouched
    assert 0 < instructions < 10_000


def _instructions_of(call: Callable[[], object]) -> int:
    """How many instructions of Python `call` runs: the same number on each machine."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
