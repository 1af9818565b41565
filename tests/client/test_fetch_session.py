"""Incremental fetches of a consumer: what the broker is told, and that nothing is missed whatever happens between."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Admin, Consumer, Producer, TopicPartition
from headrace.client.consumer.fetch_session import FetchSessionHandler
from headrace.client.consumer.fetching import FETCH_SIZES, Position
from headrace.client.core.connection import Connection
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.types import NO_EPOCH, Offset
from tests.client.brokers import topic_name
from tests.eventually import collected

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def at(*offsets: tuple[TopicPartition, int]) -> dict[TopicPartition, Position]:
    return {partition: Position(Offset(offset), NO_EPOCH) for partition, offset in offsets}


def told(request: m.FetchRequest) -> dict[TopicPartition, int]:
    return {TopicPartition(t.topic, p.partition): p.fetch_offset for t in request.topics for p in t.partitions}


def forgotten(request: m.FetchRequest) -> set[TopicPartition]:
    return {TopicPartition(each.topic, number) for each in request.forgotten_topics_data for number in each.partitions}


def answer(session_id: int = 7, error: int = 0) -> m.FetchResponse:
    return m.FetchResponse(error_code=error, session_id=session_id)


def ask(session: FetchSessionHandler, positions: dict[TopicPartition, Position]) -> m.FetchRequest:
    return session.request(positions, FETCH_SIZES, 0)


def test_a_request_names_what_changed_and_what_is_not_wanted_any_more() -> None:
    session = FetchSessionHandler()
    first = ask(session, at((A0, 1), (A1, 1), (B0, 1)))
    assert (told(first), first.session_id, first.session_epoch) == ({A0: 1, A1: 1, B0: 1}, 0, 0)
    assert session.answered(answer())
    second = ask(session, at((A0, 5), (B0, 1)))
    assert (told(second), forgotten(second), second.session_id, second.session_epoch) == ({A0: 5}, {A1}, 7, 1)
    assert session.answered(answer())
    third = ask(session, at((A0, 5), (A1, 1), (B0, 1)))
    assert (told(third), forgotten(third), third.session_epoch) == ({A1: 1}, set(), 2)


@pytest.mark.parametrize("code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
def test_a_session_that_the_broker_does_not_have_begins_again_with_everything(code: ErrorCode) -> None:
    session = FetchSessionHandler()
    ask(session, at((A0, 1), (B0, 1)))
    session.answered(answer())
    ask(session, at((A0, 2), (B0, 1)))
    assert not session.answered(answer(0, code))
    again = ask(session, at((A0, 2), (B0, 1)))
    assert (told(again), again.session_epoch) == ({A0: 2, B0: 1}, 0)


def test_a_broker_without_sessions_is_told_everything_each_time() -> None:
    session = FetchSessionHandler()
    for offset in range(3):
        assert told(ask(session, at((A0, offset), (B0, 1)))) == {A0: offset, B0: 1}
        assert session.answered(answer(0))
    assert session.last_request(FETCH_SIZES, 0) is None


def test_the_last_request_ends_the_session() -> None:
    session = FetchSessionHandler()
    ask(session, at((A0, 1)))
    session.answered(answer())
    last = session.last_request(FETCH_SIZES, 0)
    assert last is not None and (last.session_id, last.session_epoch, last.topics) == (7, -1, [])


class Remembering:
    """What a broker remembers of one session, by Kafka's rules."""

    def __init__(self) -> None:
        self.session_id = self.epoch = 0
        self.partitions: dict[TopicPartition, int] = {}

    def take(self, request: m.FetchRequest) -> m.FetchResponse:
        if request.session_epoch == 0:
            self.session_id, self.epoch, self.partitions = self.session_id + 1, 1, told(request)
            return answer(self.session_id)
        if request.session_id != self.session_id:
            return answer(0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != self.epoch:
            return answer(0, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        self.epoch += 1
        self.partitions.update(told(request))
        for partition in forgotten(request):
            del self.partitions[partition]
        return answer(self.session_id)


positions = st.dictionaries(st.sampled_from([A0, A1, B0]), st.integers(0, 3), min_size=1).map(
    lambda all: at(*all.items())
)
HEARD, UNHEARD, UNANSWERED, RESTARTED = range(4)


@given(st.lists(st.tuples(positions, st.sampled_from([HEARD, HEARD, HEARD, UNHEARD, UNANSWERED, RESTARTED]))))
def test_a_broker_that_answers_remembers_exactly_what_is_wanted(steps: list[tuple[Any, int]]) -> None:
    session, broker = FetchSessionHandler(), Remembering()
    for wanted, fate in steps:
        if fate == RESTARTED:
            broker = Remembering()
        request = ask(session, wanted)
        response = None if fate == UNHEARD else broker.take(request)
        if fate == UNANSWERED or response is None:
            session.failed()
        elif session.answered(response):
            assert broker.partitions == {partition: position.offset for partition, position in wanted.items()}


# -- with brokers


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> list[m.FetchRequest]:
    """Every Fetch that is sent."""
    sent: list[m.FetchRequest] = []
    send: Callable[..., Any] = Connection.send

    def noted(self: Connection, request: Any, *others: Any) -> Any:
        if isinstance(request, m.FetchRequest):
            sent.append(request)
        return send(self, request, *others)

    monkeypatch.setattr(Connection, "send", noted)
    return sent


@pytest.mark.slow
def test_quiet_partitions_are_not_named_again(broker: str, admin: Admin, fetches: list[m.FetchRequest]) -> None:
    topic = topic_name("quiet")
    admin.create_topic(topic, 30, 1)
    everything = [TopicPartition(topic, number) for number in range(30)]
    with Producer(broker) as producer, Consumer(broker, auto_offset_reset="earliest") as consumer:
        consumer.assign(everything)
        consumer.poll(300)
        for count in range(5):
            producer.send(topic, b"%d" % count, partition=count % 2).result(10)
            assert [record.value for record in collected(lambda _: consumer.poll(200), 1)] == [b"%d" % count]
        consumer.poll(100)
        named = [len(told(each)) for each in fetches]
        assert named[0] == 30 and sum(named[1:]) <= 12, named
        assert {each.session_epoch for each in fetches[1:]} == {*range(1, len(fetches))}

        consumer.pause(everything[:29])
        consumer.poll(600)
        assert forgotten(fetches[-1]) == set(everything[:29]) or len(forgotten(fetches[-2])) == 29
        for number in (3, 29):
            producer.send(topic, b"p%d" % number, partition=number).result(10)
        assert [record.value for record in collected(lambda _: consumer.poll(200), 1)] == [b"p29"]
        consumer.resume(everything)
        assert [record.value for record in collected(lambda _: consumer.poll(200), 1)] == [b"p3"]

        for session in consumer._fetcher._sessions.values():
            session._session.id += 1  # as after a restart of the broker
        producer.send(topic, b"after", partition=4).result(10)
        assert [record.value for record in collected(lambda _: consumer.poll(200), 1)] == [b"after"]
        consumer.seek(everything[4], 0)
        assert [record.value for record in collected(lambda _: consumer.poll(200), 1)] == [b"after"]
    assert fetches[-1].session_epoch == -1
