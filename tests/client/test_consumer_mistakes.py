"""What a new user of the consumer does wrong is told at the call; and the calls that others' users look for."""

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from headrace import Admin, Consumer, KafkaError, OffsetAndMetadata, Producer, TopicPartition
from headrace.client.core.failures import ConcurrentUse
from headrace.errors import InvalidRecord
from headrace.testing import Broker
from tests.client.brokers import topic_name
from tests.eventually import WITHIN_SECONDS, collected, eventually

MakeConsumer = Callable[..., Consumer]
P, Q = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker that creates no topic by itself, with `orders`: two partitions of ten records."""
    with Broker(settings={"auto.create.topics.enable": False}) as broker, Admin(broker.bootstrap) as admin:
        admin.create_topic("orders", 2, 1)
        with Producer(broker.bootstrap) as producer:
            for number in range(20):
                producer.send("orders", b"%d" % number, partition=number % 2, timestamp_ms=1000 * number)
        yield broker.bootstrap


@pytest.fixture
def make(bootstrap: str) -> Iterator[MakeConsumer]:
    with ExitStack() as stack:

        def made(**options: Any) -> Consumer:
            given = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 100, **options}
            return stack.enter_context(Consumer(bootstrap, **given))

        yield made


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda c: c.subscribe("orders"), TypeError, r"topics='orders' is text: give a list, \['orders'\]"),
        (lambda c: c.subscribe(7), TypeError, r"topics=7 is a int: give a list of names"),
        (lambda c: c.subscribe([b"orders"]), TypeError, r"the topic b'orders' is a bytes"),
        (lambda c: c.subscribe(["orders.*"]), ValueError, r"no topic's name.*re\.compile\('orders\.\*'\)"),
        (lambda c: c.assign(["orders"]), TypeError, r"'orders' is no partition.*subscribe\(\['orders'\]\)"),
        (lambda c: c.assign("orders"), TypeError, r"partitions='orders': give a list"),
        (lambda c: c.assign(P), TypeError, r"give a list, as \[TopicPartition"),
        (lambda c: c.assign([("orders", "0")]), TypeError, r"is no partition"),
        (lambda c: c.poll(), KafkaError, r"nothing to read: call subscribe or assign before poll"),
        (lambda c: c.seek(P, 0), KafkaError, r"orders-0 is not assigned.*on_assigned"),
        (lambda c: c.pause([P]), KafkaError, r"orders-0 is not assigned"),
        (lambda c: c.offsets_for_times({P: 1763884800}), InvalidRecord, r"is in seconds"),
        (lambda c: c.commit([P]), TypeError, r"offsets=.*give a record, or a dict"),
        (lambda c: c.commit({P: "7"}), TypeError, r"offset='7' is a str: an offset is a whole number"),
        (lambda c: c.commit({P: -2}), ValueError, r"offset=-2 is negative"),
    ],
)
def test_a_wrong_argument_is_named(
    make: MakeConsumer, call: Callable[[Consumer], object], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        call(make(group_id="wrong"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("consume", r"a Consumer has no consume: poll\(timeout_ms, max_records\) returns several records"),
        ("getmany", r"headrace\.client\.aio\.Consumer has it"),
        ("get_watermark_offsets", r"beginning_offsets and end_offsets"),
    ],
)
def test_a_method_of_another_client_is_named_by_what_it_is_here(name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=said):
        getattr(Consumer, name)
    assert not hasattr(Consumer, name)


def test_a_partition_that_does_not_exist_is_told_at_poll(make: MakeConsumer) -> None:
    consumer = make()
    consumer.assign([("order", 0)])  # type: ignore[list-item]
    with pytest.raises(KafkaError, match=r"topic order does not exist; did you mean orders\?"):
        consumer.poll()
    consumer.assign([TopicPartition("orders", 2)])
    with pytest.raises(KafkaError, match="orders-2 does not exist: topic orders has partitions 0 to 1"):
        consumer.poll()


@pytest.mark.slow
def test_a_subscribed_topic_that_does_not_exist_is_warned_of_once_and_read_when_it_is_created(
    bootstrap: str, make: MakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    late = topic_name("late")
    consumer = make(group_id=late)
    with caplog.at_level(logging.WARNING, "headrace"):
        consumer.subscribe(["order", late])
        eventually(lambda: consumer.poll(50) == [] and len(_told(caplog, "order does")) > 0, "a warning", every_s=0)
        with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
            admin.create_topic(late, 1, 1)
            producer.send(late, b"x").result()
        assert collected(lambda _: consumer.poll(), 1)[0].value == b"x"
    assert _told(caplog, "order does") == [
        "topic order does not exist; did you mean orders? (the subscription gets its records once it is created)"
    ]
    assert len(_told(caplog, late)) == 1


def _told(caplog: pytest.LogCaptureFixture, what: str) -> list[str]:
    return [each.message for each in caplog.records if what in each.message]


def test_two_threads_in_one_consumer_are_told_of_each_other(make: MakeConsumer) -> None:
    consumer = make(group_id=topic_name("threads"))
    inside, may_end = threading.Event(), threading.Event()

    def assigned(_: object) -> None:
        inside.set()
        assert may_end.wait(WITHIN_SECONDS)
        consumer.seek_to_end()  # a callback is in the call already

    consumer.subscribe(["orders"], assigned)

    def read() -> None:
        while not inside.is_set():
            consumer.poll(100)

    reader = threading.Thread(target=read, name="reader")
    reader.start()
    try:
        assert inside.wait(WITHIN_SECONDS)
        for call in (consumer.poll, consumer.commit, consumer.close):
            with pytest.raises(ConcurrentUse, match=r"'MainThread' called \w+ while thread 'reader' is in poll"):
                call()
    finally:
        may_end.set()
        reader.join(WITHIN_SECONDS)
    assert consumer.poll(50) == []  # one after the other is allowed


def test_records_are_iterated_and_a_commit_in_the_loop_includes_the_last_one(make: MakeConsumer) -> None:
    consumer = make(group_id=topic_name("iterated"), enable_auto_commit=False)
    consumer.assign([P])
    seen = []
    for record in consumer:
        seen.append(record.value)
        if len(seen) == 3:
            consumer.commit()
            assert consumer.committed([P]) == {P: 3}
            consumer.seek(P, 8)  # ends the records that were fetched
        if record.offset == 9:
            assert consumer.position(P) == 10
            break
    assert seen == [b"0", b"2", b"4", b"16", b"18"]


def test_a_commit_has_a_text_and_may_be_of_one_record(make: MakeConsumer) -> None:
    consumer = make(group_id=topic_name("commits"), enable_auto_commit=False)
    consumer.assign([P, Q])
    [record] = consumer.poll(30_000, max_records=1)
    consumer.commit(record)
    place = TopicPartition(record.topic, record.partition)
    other = Q if place == P else P
    consumer.commit({other: OffsetAndMetadata(5, "row 17")})
    assert consumer.committed([P, Q]) == {place: 1, other: 5}
    assert consumer.committed_with_metadata([P, Q]) == {place: (1, ""), other: (5, "row 17")}


def test_offsets_and_lag(make: MakeConsumer) -> None:
    consumer = make()
    consumer.assign([P, Q])
    assert consumer.beginning_offsets([P]) == {P: 0} and consumer.end_offsets() == {P: 10, Q: 10}
    assert consumer.lag() == {P: 10, Q: 10}
    consumer.seek(P, OffsetAndMetadata(7))
    consumer.seek_to_time(9_000, Q)
    assert consumer.lag() == {P: 3, Q: 6} and consumer.lag([P]) == {P: 3}
    found = consumer.offsets_for_times({P: 5_000, Q: 1_000_000})
    assert found == {P: (3, 6_000, 0), Q: None}


def test_a_subscription_can_be_ended_and_begun_again(make: MakeConsumer) -> None:
    told: list[tuple[str, int]] = []
    consumer = make(group_id=topic_name("ended"))
    consumer.subscribe(
        ["orders"], lambda p: told.append(("assigned", len(p))), lambda p: told.append(("revoked", len(p)))
    )
    assert consumer.subscription == ["orders"]
    assert len(collected(lambda _: consumer.poll(), 20)) == 20
    consumer.pause([P])
    assert consumer.paused == {P}
    consumer.unsubscribe()
    assert (consumer.subscription, consumer.assignment, consumer.paused) == ([], [], set())
    assert told == [("assigned", 2), ("revoked", 2)]
    assert consumer.committed([P, Q]) == {P: 10, Q: 10}, "an automatic commit"
    consumer.subscribe(re.compile("ord.*"))
    eventually(lambda: consumer.poll(50) == [] and len(consumer.assignment) == 2, "an assignment", every_s=0)
    consumer.assign([Q])
    assert (consumer.subscription, consumer.assignment) == ([], [Q])


def test_partitions_that_were_lost_are_told_apart_from_those_that_are_given_up(make: MakeConsumer) -> None:
    told: list[str] = []
    consumer = make(group_id=topic_name("lost"))
    consumer.subscribe(["orders"], on_revoked=lambda _: told.append("revoked"), on_lost=lambda _: told.append("lost"))
    collected(lambda _: consumer.poll(), 20)
    session = consumer._session
    assert session is not None
    with session._lock:
        session._leave()  # as the heartbeat's thread does when nobody has polled for too long
    eventually(lambda: consumer.poll(50) == [] and len(consumer.assignment) == 2, "a new assignment", every_s=0)
    consumer.close()
    assert told == ["lost", "revoked"]


def test_a_member_whose_name_another_one_takes_is_told_at_poll(make: MakeConsumer) -> None:
    group = topic_name("fenced")
    first, second = (make(group_id=group, group_instance_id="till-1") for _ in range(2))
    first.subscribe(["orders"])
    collected(lambda _: first.poll(), 20)
    second.subscribe(["orders"])
    eventually(lambda: second.poll(50) == [] and len(second.assignment) == 2, "an assignment", every_s=0)
    with pytest.raises(KafkaError, match="another member has taken group_instance_id='till-1'"):
        eventually(lambda: first.poll(50) and False, "the error", every_s=0)
