"""Fetch sessions, most without a broker: what is news, who has to go, and a model of a client and its session."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.broker.fetch.fetch_sessions import (
    EVICTION_MS,
    NO_SESSION,
    FetchSession,
    FetchSessionCache,
    PartitionKey,
    Partitions,
    SessionPartition,
    next_epoch,
)
from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import Admin
from headrace.errors import ErrorCode, KafkaError
from headrace.limits import INT32_MAX
from headrace.metadata.model import NO_UUID
from headrace.protocol import messages as m
from headrace.testing import Broker
from tests.broker.test_late_writes import dispatcher_of
from tests.eventually import eventually
from tests.examples import examples
from tests.wire import Wire

if TYPE_CHECKING:
    Answer: TypeAlias = m.FetchResponse.PartitionData


def wants(topic: str = "t", number: int = 0, offset: int = 0) -> SessionPartition:
    wanted = m.FetchRequest.FetchPartition(partition=number, fetch_offset=offset)
    return SessionPartition(topic, NO_UUID, wanted)


def partitions(size: int, topic: str = "t") -> Partitions:
    return {(topic, number): wants(topic, number) for number in range(size)}


def answers(error: int = 0, high_watermark: int = 5, log_start: int = 0, records: bytes = b"") -> Answer:
    return m.FetchResponse.PartitionData(
        error_code=error, high_watermark=high_watermark, log_start_offset=log_start, records=records
    )


def cache(slots: int = 10) -> FetchSessionCache:
    ids = count(1)
    return FetchSessionCache(slots, lambda: next(ids))


def open_one(
    sessions: FetchSessionCache, size: int = 1, *, by_id: bool = False, is_follower: bool = False, now_ms: int = 0
) -> int:
    return sessions.open(partitions(size), by_id=by_id, is_follower=is_follower, now_ms=now_ms)


def resume(sessions: FetchSessionCache, session_id: int, epoch: int = 1, now_ms: int = 0) -> FetchSession:
    return sessions.resume(session_id, epoch, [], [], by_id=False, now_ms=now_ms)


def refusal(sessions: FetchSessionCache, session_id: int, epoch: int, *, by_id: bool = False) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        sessions.resume(session_id, epoch, [wants("new")], [], by_id=by_id, now_ms=0)
    return raised.value.code


def test_a_partition_is_news_only_when_something_changed() -> None:
    partition = wants()
    assert partition.must_be_sent(answers())
    partition.record_response(answers())
    assert not partition.must_be_sent(answers())
    assert partition.must_be_sent(answers(records=b"r"))
    assert partition.must_be_sent(answers(high_watermark=6))
    assert partition.must_be_sent(answers(log_start=1))
    assert partition.must_be_sent(answers(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))


def test_a_preferred_replica_and_a_diverging_epoch_are_news() -> None:
    partition = wants()
    partition.record_response(answers())
    preferred, diverging = answers(), answers()
    preferred.preferred_read_replica = 2
    diverging.diverging_epoch = m.FetchResponse.EpochEndOffset(epoch=3, end_offset=4)
    assert partition.must_be_sent(preferred)
    assert partition.must_be_sent(diverging)


def test_an_error_is_told_each_time_and_so_is_its_end() -> None:
    partition = wants()
    partition.record_response(answers())
    partition.record_response(answers(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, high_watermark=5))
    assert partition.must_be_sent(answers(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert partition.must_be_sent(answers())


def test_a_partition_that_gave_records_goes_to_the_end_of_the_order() -> None:
    sessions = cache()
    session = resume(sessions, open_one(sessions, 3))
    session.record_response(("t", 0), answers(records=b"r"))
    session.record_response(("t", 1), answers())
    assert list(session.partitions) == [("t", 1), ("t", 2), ("t", 0)]


def test_what_the_client_forgot_meanwhile_is_not_told() -> None:
    sessions = cache()
    session = resume(sessions, open_one(sessions, 2))
    sessions.resume(session.id, 2, [], [("t", 0)], by_id=False, now_ms=0)
    session.record_response(("t", 0), answers(records=b"r"))
    assert list(session.partitions) == [("t", 1)]


def test_a_session_by_id_knows_its_topics_by_id() -> None:
    sessions = cache()
    one, two = b"1" * 16, b"2" * 16
    session_id = sessions.open({(one, 0): wants("t")}, by_id=True, is_follower=False, now_ms=0)
    again = SessionPartition("t", two, m.FetchRequest.FetchPartition(partition=0))
    session = sessions.resume(session_id, 1, [again], [], by_id=True, now_ms=0)
    assert list(session.partitions) == [(one, 0), (two, 0)]


def test_refusals_change_nothing() -> None:
    sessions = cache()
    session_id = open_one(sessions)
    assert refusal(sessions, 99, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert refusal(sessions, session_id, 2) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert refusal(sessions, session_id, 1, by_id=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert list(resume(sessions, session_id).partitions) == [("t", 0)]


def test_epochs_begin_again_at_one() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, INT32_MAX)] == [1, 2, 1]


def test_a_session_without_partitions_is_over() -> None:
    sessions = cache()
    session_id = open_one(sessions)
    session = sessions.resume(session_id, 1, [], [("t", 0)], by_id=False, now_ms=0)
    assert not session.partitions
    assert sessions.get(session_id) is None


def test_an_id_in_use_is_not_given_twice() -> None:
    ids = iter([7, 7, 7, 8])
    sessions = FetchSessionCache(10, lambda: next(ids))
    assert [open_one(sessions), open_one(sessions)] == [7, 8]


def test_a_full_cache_has_no_room_for_an_equal() -> None:
    sessions = cache(slots=2)
    assert open_one(sessions, 5) and open_one(sessions, 5)
    assert open_one(sessions, 100) == NO_SESSION
    assert len(sessions) == 2


def test_a_broker_lets_go_of_what_dead_followers_sessions_have_of_deleted_topics() -> None:
    """In slices, beside the periodic work of its logs."""
    with Broker(settings={"log.flush.scheduler.interval.ms": 50}) as broker, Wire(broker.bootstrap) as wire:
        for topic in ("goes", "stays"):
            assert wire.create_topic(topic) == 0
        services = dispatcher_of(broker)._services
        kept: Partitions = {(topic, 0): wants(topic) for topic in ("goes", "stays")}
        for each in kept.values():
            each.replica = services.replicas.partitions[each.key]
        services.fetch_sessions.open(kept, by_id=False, is_follower=True, now_ms=0)
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).delete_topics(["goes"])
        eventually(lambda: kept["goes", 0].replica is None, "the session to let go")
        assert kept["stays", 0].replica is services.replicas.partitions["stays", 0]


def test_there_are_no_sessions_without_slots() -> None:
    assert open_one(cache(slots=0)) == NO_SESSION


def test_the_longest_unused_goes_after_two_minutes() -> None:
    sessions = cache(slots=2)
    first, second = open_one(sessions), open_one(sessions)
    resume(sessions, first, now_ms=10)
    assert open_one(sessions, now_ms=EVICTION_MS) == NO_SESSION
    assert open_one(sessions, now_ms=EVICTION_MS + 1) != NO_SESSION
    assert sessions.get(second) is None
    assert sessions.get(first) is not None


def test_an_old_session_gives_way_to_a_larger_one() -> None:
    sessions = cache(slots=2)
    large, small = open_one(sessions, 8), open_one(sessions, 3)
    later = EVICTION_MS + 1
    for each in (large, small):
        resume(sessions, each, now_ms=later)
    assert open_one(sessions, 3, now_ms=later) == NO_SESSION
    assert open_one(sessions, 4, now_ms=later) != NO_SESSION
    assert sessions.get(small) is None
    assert sessions.get(large) is not None


def test_a_follower_takes_the_place_of_a_consumer_but_not_of_a_follower() -> None:
    sessions = cache(slots=2)
    consumer, follower = open_one(sessions, 100), open_one(sessions, 1, is_follower=True)
    assert open_one(sessions, 1, is_follower=True) != NO_SESSION
    assert sessions.get(consumer) is None
    assert open_one(sessions, 50, is_follower=True) == NO_SESSION
    assert sessions.get(follower) is not None


def test_all_sessions_together_have_a_bound() -> None:
    ids = count(1)
    sessions = FetchSessionCache(10, lambda: next(ids), partitions_max=10)
    first = open_one(sessions, 6)
    assert open_one(sessions, 5) == NO_SESSION
    second = open_one(sessions, 4)
    sessions.resume(first, 1, [], [("t", 0)], by_id=False, now_ms=0)
    sessions.resume(second, 1, [wants(number=9)], [], by_id=False, now_ms=0)
    with pytest.raises(KafkaError) as raised:
        sessions.resume(second, 2, [wants(number=8)], [], by_id=False, now_ms=0)
    assert raised.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.get(second) is None
    assert open_one(sessions, 5) != NO_SESSION


class Slot(NamedTuple):
    """A session as the plain model of the cache has it."""

    id: int
    is_follower: bool
    size: int
    created_ms: int
    used_ms: int


Step = tuple[bool, bool, int, int]
"""Is it a new session; a follower's; partitions; ms since the last step."""


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(1, 4), st.integers(0, 70_000)), max_size=40))
@settings(max_examples=examples(50), deadline=None)
def test_the_cache_evicts_as_a_plain_search_through_all_sessions_would(steps: list[Step]) -> None:
    sessions, slots, now_ms = cache(slots=3), list[Slot](), 0
    epochs: dict[int, int] = {}
    for is_new, is_follower, size, passed_ms in steps:
        now_ms += passed_ms
        if is_new:
            victim, has_room = expected_victim(slots, is_follower, size, now_ms)
            session_id = open_one(sessions, size, is_follower=is_follower, now_ms=now_ms)
            assert (session_id != NO_SESSION) == has_room
            slots = [each for each in slots if each is not victim]
            if has_room:
                slots.append(Slot(session_id, is_follower, size, now_ms, now_ms))
                epochs[session_id] = 1
        elif slots:
            used = slots.pop(passed_ms % len(slots))
            changes = partitions(size)
            gone = [("t", number) for number in range(size, 4)]
            epoch = epochs[used.id]
            sessions.resume(used.id, epoch, changes.values(), gone, by_id=False, now_ms=now_ms)
            epochs[used.id] = epoch + 1
            slots.append(used._replace(size=size, used_ms=now_ms))
        assert len(sessions) == len(slots)
        assert all(sessions.get(each.id) is not None for each in slots)


def expected_victim(slots: list[Slot], is_follower: bool, size: int, now_ms: int) -> tuple[Slot | None, bool]:
    """Who goes for a new session, and whether there is room then."""
    if len(slots) < 3:
        return None, True
    if now_ms - slots[0].used_ms > EVICTION_MS:
        return slots[0], True
    may_go = [
        each for each in slots if each.used_ms - each.created_ms > EVICTION_MS or (is_follower and not each.is_follower)
    ]
    weakest = min(may_go, key=lambda each: (each.is_follower, each.size, each.created_ms, each.id), default=None)
    if weakest is None or (is_follower, size) <= (weakest.is_follower, weakest.size):
        return None, False
    return weakest, True


class OneClient(RuleBasedStateMachine):
    """A client with a session, and what it believes; after each answer it must believe what is true."""

    numbers = st.integers(0, 5)

    def __init__(self) -> None:
        super().__init__()
        self.sessions = cache(slots=2)
        self.true = dict.fromkeys(range(6), 0)  # the high watermark of each partition
        self.believed: dict[int, int] = {}
        self.wanted: dict[int, int] = {}
        self.id, self.epoch = NO_SESSION, 0
        self.changed: set[int] = set()
        self.forgotten: set[int] = set()

    @rule(number=numbers)
    def the_log_grows(self, number: int) -> None:
        self.true[number] += 1

    @rule(number=numbers)
    def the_client_wants_a_partition(self, number: int) -> None:
        self.wanted[number] = self.true[number]
        self.changed.add(number)
        self.forgotten.discard(number)

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def the_client_forgets_a_partition(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.wanted)))
        del self.wanted[number]
        self.changed.discard(number)
        self.forgotten.add(number)

    @rule()
    def a_full_fetch(self) -> None:
        if self.id:
            self.sessions.end(self.id)
        asked: Partitions = {("t", number): wants("t", number, offset) for number, offset in self.wanted.items()}
        for (_, number), each in asked.items():
            answer = self.answer(number)
            each.record_response(answer)
            self.hear(number, answer)
        self.id = self.sessions.open(asked, by_id=False, is_follower=False, now_ms=0)
        self.epoch = 1
        self.changed.clear()
        self.forget()
        assert self.id

    @precondition(lambda self: self.id and self.sessions.get(self.id) is not None)
    @rule()
    def an_incremental_fetch(self) -> None:
        changes = [wants("t", number, self.wanted[number]) for number in self.changed]
        gone: list[PartitionKey] = [("t", number) for number in self.forgotten]
        session = self.sessions.resume(self.id, self.epoch, changes, gone, by_id=False, now_ms=0)
        self.changed.clear()
        self.forget()
        self.epoch = next_epoch(self.epoch)
        assert {number for _, number in session.partitions} == set(self.wanted)
        assert {n: each.wanted.fetch_offset for (_, n), each in session.partitions.items()} == self.wanted
        for key, each in list(session.partitions.items()):
            answer = self.answer(key[1])
            if each.must_be_sent(answer):
                session.record_response(key, answer)
                self.hear(key[1], answer)
        assert self.believed == {number: self.true[number] for number in self.wanted}

    @precondition(lambda self: self.id)
    @rule(wrong=st.integers(2, 9))
    def a_wrong_epoch_is_refused(self, wrong: int) -> None:
        if self.sessions.get(self.id) is not None:
            assert refusal(self.sessions, self.id, self.epoch + wrong) is ErrorCode.INVALID_FETCH_SESSION_EPOCH

    @invariant()
    def the_cache_is_bounded(self) -> None:
        assert len(self.sessions) <= 2

    def forget(self) -> None:
        for number in self.forgotten:
            self.believed.pop(number, None)
        self.forgotten.clear()

    def answer(self, number: int) -> Answer:
        return answers(high_watermark=self.true[number])

    def hear(self, number: int, answer: Answer) -> None:
        self.believed[number] = answer.high_watermark


TestOneClient = OneClient.TestCase
TestOneClient.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
