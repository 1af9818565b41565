"""What `send` does for each record: compiled and plain, and with threads that send and close at once."""

import inspect
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace import Admin, Consumer, KafkaError, Producer, TopicPartition
from headrace.client.core.failures import ClientClosed
from headrace.client.producer import accumulator, delivery, intake
from headrace.client.producer.column_input import slice_of
from headrace.types import BrokerId
from tests.client.brokers import topic_name
from tests.eventually import collected
from tests.harness import child_environment
from tests.uncompiled import uncompiled

plain_accumulator, plain_delivery, plain_intake = map(uncompiled, (accumulator, delivery, intake))

PLACES = [TopicPartition("t", index) for index in range(3)]
LEADERS = {PLACES[0]: BrokerId(1), PLACES[1]: BrokerId(1), PLACES[2]: BrokerId(2)}


def test_the_modules_are_compiled_and_their_references_are_not() -> None:
    assert intake.COMPILED and not plain_intake.COMPILED
    assert not inspect.isfunction(accumulator.Accumulator.add) and inspect.isfunction(plain_accumulator.Accumulator.add)
    assert not inspect.isfunction(delivery.Delivery.result) and inspect.isfunction(plain_delivery.Delivery.result)


# -- the accumulator: whatever happens to it, both forms hold the same

Step = Callable[["Held"], None]


class Held:
    """An accumulator, the clock, and what was planned and not answered."""

    def __init__(self, module: Any) -> None:
        self.now_s = 0.0
        self.flights: list[Any] = []
        self.said: list[object] = []
        self.accumulator = module.Accumulator(module.Limits(200, 1.0, 500, 60.0), is_idempotent=True)

    def state(self) -> object:
        queues = self.accumulator.queues.items()
        return (
            self.accumulator.bytes_held,
            self.accumulator.is_empty,
            self.accumulator.next_due_s(False),
            self.accumulator.next_due_s(True),
            [
                (place, queue.next_sequence, queue.is_known, *map(self._shown, self._lists(queue)))
                for place, queue in queues
            ],
        )

    @staticmethod
    def _lists(queue: Any) -> list[list[Any]]:
        return [[*queue.retries], [*queue.waiting], queue.in_flight, [queue.open] if queue.open else []]

    @staticmethod
    def _shown(batches: list[Any]) -> list[object]:
        return [
            (
                batch.number,
                batch.count,
                batch.size_bytes,
                batch.base_sequence,
                batch.opened_s,
                batch.attempts,
                bytes(getattr(batch.content, "data", b"")[: getattr(batch.content, "end", 0)]),
            )
            for batch in batches
        ]


def add(place: int, key: int, value: int, headers: int) -> Step:
    def step(held: Held) -> None:
        pairs = [(f"h{number}", bytes(number)) for number in range(headers)]
        arguments = PLACES[place], None if key < 0 else bytes(key), bytes(value), 1_000 + int(held.now_s), pairs
        future, news = held.accumulator.append(*arguments, held.now_s)
        held.said.append((news, future.done()))

    return step


def add_columns(place: int, rows: int) -> Step:
    return lambda held: held.said.append(
        held.accumulator.add_columns(PLACES[place], slice_of(None, [b"v"] * rows, 5, None), 30 * rows, held.now_s).count
    )


def later(seconds: float) -> Step:
    def step(held: Held) -> None:
        held.now_s += seconds

    return step


def plan(flushing: bool) -> Step:
    def step(held: Held) -> None:
        planned = held.accumulator.plan(LEADERS, held.now_s, flushing)
        held.said.append({leader: [batch.number for batch in batches] for leader, batches in planned.items()})
        held.flights += [batch for batches in planned.values() for batch in batches]

    return step


def answer(is_stored: bool) -> Step:
    def step(held: Held) -> None:
        if held.flights:
            batch = held.flights.pop(0)
            held.accumulator.done(batch, is_stored=is_stored)
            batch.finish(7, -1, None)
            held.said.append(batch.metadata(batch.count - 1))

    return step


def give_back(held: Held) -> None:
    if held.flights:
        batch = held.flights.pop()
        batch.attempts += 1
        held.accumulator.queues[batch.partition].give_back(batch, held.now_s + 0.5)


def forget(held: Held) -> None:
    for queue in held.accumulator.queues.values():
        queue.forget_sequences(is_known=False)


def drop(name: str) -> Step:
    def step(held: Held) -> None:
        arguments = (held.now_s,) if name == "take_expired" else ()
        for batch in getattr(held.accumulator, name)(*arguments):
            held.said.append(batch.number)
            held.accumulator.done(batch)

    return step


steps = st.one_of(
    st.builds(add, st.integers(0, 2), st.integers(-1, 30), st.integers(0, 250), st.integers(0, 2)),
    st.builds(add_columns, st.integers(0, 2), st.integers(1, 5)),
    st.builds(later, st.sampled_from([0.1, 0.6, 30.0])),
    st.builds(plan, st.booleans()),
    st.builds(answer, st.booleans()),
    st.sampled_from([give_back, forget, drop("take_expired"), drop("take_unsent")]),
)


@given(st.lists(steps, max_size=40))
def test_the_compiled_accumulator_holds_what_the_plain_one_holds(taken: list[Step]) -> None:
    both = Held(accumulator), Held(plain_accumulator)
    for step in taken:
        for held in both:
            step(held)
        assert both[0].state() == both[1].state()
        assert both[0].said == both[1].said


# -- the whole producer without its compiled modules

SENDS = """
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path

class Plain:
    def find_spec(self, name, path=None, target=None):
        if is_plain and name.startswith("headrace.client.producer."):
            source = Path(path[0], name.rpartition(".")[2] + ".py")
            return spec_from_file_location(name, source, loader=SourceFileLoader(name, str(source)))

is_plain = sys.argv[2] == "plain"
sys.meta_path.insert(0, Plain())
from headrace import Producer
from headrace.client.producer import accumulator, delivery, intake

assert is_plain == all(each.__file__.endswith(".py") for each in (accumulator, delivery, intake))
assert is_plain != intake.COMPILED
told = []
with Producer(sys.argv[1], batch_bytes=500, buffer_memory=5_000) as producer:
    topic = sys.argv[3]
    sent = [producer.send(topic, b"%d" % n, b"k%d" % (n % 5), timestamp_ms=1_700_000_000_000 + n) for n in range(300)]
    sent.append(producer.send(topic, None, partition=1, headers={"a": b"1"}, timestamp_ms=1_700_000_000_500))
    sent.append(producer.send(topic, b"", memoryview(b"k"), 0, headers=[("b", None)], timestamp_ms=1_700_000_000_501,
                              on_delivery=lambda place, error: told.append((place, error))))
    for wrong in (
        {"value": "text"}, {"value": b"", "key": 5}, {"value": b"", "headers": 7}, {"value": b"", "partition": 9},
    ):
        try:
            producer.send(topic, **wrong)
        except Exception as refused:
            print(refused)
    print([place.result(10) for place in sent])
print(told, {batch for batch in [one.done() for one in sent]})
"""


def test_a_producer_without_its_compiled_modules_does_the_same(broker: str, admin: Admin) -> None:
    said = []
    for form in ("compiled", "plain"):
        topic = topic_name("forms")
        admin.create_topic(topic, 3, 1)
        command = [sys.executable, "-c", SENDS, broker, form, topic]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=child_environment(), check=True)
        said.append(done.stdout.replace(topic, "T"))
    assert said[0] == said[1]
    assert "records hold bytes: give value.encode()" in said[0] and "offset=" in said[0]


# -- the call itself


def test_send_shows_its_arguments_and_what_it_does() -> None:
    names = ["self", "topic", "value", "key", "partition", "timestamp_ms", "headers", "on_delivery"]
    assert [*inspect.signature(Producer.send).parameters] == names
    assert (Producer.send.__doc__ or "").startswith("Give a record to the sender.")


def test_no_record_is_forgotten_when_threads_send_while_another_closes(broker: str, admin: Admin) -> None:
    topic = topic_name("closing")
    admin.create_topic(topic, 1, 1)
    producer = Producer(broker)
    deliveries: list[delivery.Delivery] = []
    begun = threading.Barrier(4)

    def send() -> None:
        begun.wait()
        try:
            while True:
                deliveries.append(producer.send(topic, b"v"))
        except ClientClosed:
            return

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    begun.wait()
    deliveries.append(producer.send(topic, b"v"))
    producer.close(0)
    for thread in threads:
        thread.join()
    assert all(each.done() for each in deliveries)
    stored = [each.result().offset for each in deliveries if each.exception() is None]
    assert len(set(stored)) == len(stored)


def test_records_of_threads_are_each_stored_once(broker: str, admin: Admin) -> None:
    topic = topic_name("threads")
    admin.create_topic(topic, 2, 1)
    told: list[KafkaError | None] = []

    def send(number: int) -> None:
        for count in range(2_000):
            producer.send(
                topic, b"%d %d" % (number, count), b"%d" % number, on_delivery=lambda _, error: told.append(error)
            )

    with Producer(broker, batch_bytes=2_000, buffer_memory=40_000) as producer:
        threads = [threading.Thread(target=send, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert told == [None] * 6_000
    with Consumer(broker, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        found = [record.value for record in collected(lambda _: consumer.poll(200), 6_000)]
    for number in range(3):
        own = [value for value in found if value.startswith(b"%d " % number)]
        assert own == [b"%d %d" % (number, count) for count in range(2_000)]
