"""What a new user of the producer does wrong is told at the call, with what to do instead."""

import asyncio
import gc
import logging
import os
import subprocess
import sys
import time
from collections import UserDict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace import Admin, Consumer, KafkaError, Producer, TopicPartition
from headrace.client.core.failures import BrokerUnreachable, DeadlineExceeded
from headrace.client.producer import at_exit, lost_records
from headrace.errors import InvalidRecord
from headrace.testing import Broker
from tests.client.brokers import topic_name
from tests.eventually import WITHIN_SECONDS, collected, eventually
from tests.harness import child_environment

P = "orders"


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker with the topic `orders`, which creates no topic by itself."""
    with Broker(settings={"auto.create.topics.enable": False}) as broker, Admin(broker.bootstrap) as admin:
        admin.create_topic(P, 1, 1)
        yield broker.bootstrap


@pytest.fixture(scope="module")
def producer(bootstrap: str) -> Iterator[Producer]:
    with Producer(bootstrap, linger_ms=0, max_block_ms=2_000) as made:
        yield made


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"value": "x"}, r"orders: value='x' is a str, and records hold bytes: give value\.encode\(\)"),
        ({"value": b"x", "key": "k"}, r"orders: key='k' is a str, and records hold bytes: give key\.encode\(\)"),
        ({"value": 5}, r"value=5 is a int.*str\(value\)\.encode\(\)"),
        ({"value": {"item": "tea"}}, r"value=\{'item': 'tea'\} is a dict.*json\.dumps\(value\)\.encode\(\)"),
        ({"value": b"x", "headers": {"h": "v"}}, r"header h='v' is a str.*encode"),
        ({"value": b"x", "headers": {1: b"v"}}, r"the header name 1 is a int: headers are pairs"),
        ({"value": b"x", "headers": ["ab", "cd"]}, r"header a='b' is a str"),
        ({"value": b"x", "headers": 7}, r"headers=7: headers are pairs"),
        ({"value": b"x", "partition": "0"}, r"partition='0' is a str: give its number"),
        ({"value": b"x", "topic": b"orders"}, r"topic=b'orders' is a bytes.*decode"),
        ({"value": b"x", "timestamp_ms": 1763884800}, r"=1763884800 is in seconds.*int\(time\.time\(\) \* 1000\)"),
        ({"value": b"x", "timestamp_ms": 1763884800.5}, r"=1763884800\.5 is a float: give whole milliseconds"),
        ({"value": b"x", "timestamp_ms": 1763884800_000_000}, r"finer than milliseconds.*1_000_000"),
        ({"value": b"x", "timestamp_ms": -2}, r"before 1970"),
        ({"value": b"x", "timestamp_ms": datetime(2026, 1, 1, tzinfo=UTC)}, r"int\(when\.timestamp\(\) \* 1000\)"),
    ],
)  # fmt: skip
def test_a_wrong_argument_of_send_is_named(producer: Producer, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRecord, match=said):
        producer.send(**{"topic": P, **arguments})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"values": ["a", "b"]}, r"values\[0\]='a' is a str.*values\[0\]\.encode\(\)"),
        ({"values": [b"a", 7]}, r"values\[1\]=7 is a int"),
        ({"values": b"abc"}, r"values=b'abc' is a bytes: give a list"),
        ({"values": "abc"}, r"values='abc' is a str: give a list"),
        ({"values": 7}, r"have none|values=7"),
        ({"values": [b"a"], "keys": {"k": b"v"}}, r"keys=.* is a dict: give a list"),
        ({"values": [b"a"], "timestamps_ms": time.time()}, r"is a float: give whole milliseconds"),
        ({"values": [b"a"], "timestamps_ms": [time.time()]}, r"is a float: give whole milliseconds"),
        ({"values": [b"a"], "timestamps_ms": int(time.time())}, r"is in seconds"),
        ({"values": [b"a"], "timestamps_ms": [1, 2]}, r"same length.*values: 1, timestamps_ms: 2"),
    ],
)
def test_a_wrong_column_is_named(producer: Producer, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRecord, match=said):
        producer.send_columns(**{"topic": P, "keys": None, **arguments})


def test_a_column_of_times_in_seconds_is_warned_of(producer: Producer) -> None:
    with pytest.warns(UserWarning, match=r"timestamps_ms\[0\]=1763884800 is in seconds"):
        producer.send_columns(P, None, [b"a"], [1763884800])


def test_a_frame_s_columns_and_headers_as_a_dict_are_taken(bootstrap: str, producer: Producer) -> None:
    import numpy
    import pandas

    frame = pandas.DataFrame({"key": ["a", None], "value": [b"1", b"2"], "at": [1000, 2000]})
    first = producer.send_columns(P, frame["key"], frame["value"], frame["at"], partition=0).result(WITHIN_SECONDS)
    producer.send_columns(P, None, numpy.array([b"3"], dtype=object))
    producer.send(P, b"4", headers={"h": b"x", "n": None})
    producer.send(P, b"5", headers=UserDict({"h": b"y"}))
    with pytest.raises(InvalidRecord, match="values=.* is a DataFrame: give .*one column"):
        producer.send_columns(P, None, frame)
    with Consumer(bootstrap) as consumer:
        consumer.assign([TopicPartition(P, 0)])
        consumer.seek(TopicPartition(P, 0), first[0].offset)
        found = collected(lambda _: consumer.poll(), 5)
    assert [(each.key, each.value) for each in found[:2]] == [(b"a", b"1"), (None, b"2")]
    assert [each.timestamp_ms for each in found[:2]] == [1000, 2000]
    assert [each.headers for each in found[3:]] == [(("h", b"x"), ("n", None)), (("h", b"y"),)]


def test_a_callback_that_exits_is_logged_and_the_producer_goes_on(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Producer(bootstrap) as producer:
        producer.send(P, b"1", on_delivery=lambda metadata, error: sys.exit("no more")).result(WITHIN_SECONDS)
        producer.send(P, b"2").result(WITHIN_SECONDS)
    assert "a delivery callback for orders-0 raised an exception" in caplog.text
    assert "SystemExit: no more" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "two words", "ä"])
def test_a_name_that_no_topic_can_have_is_told(producer: Producer, name: str) -> None:
    with pytest.raises(KafkaError, match=f"'{name}' is no topic's name, which has 1 to 249 of"):
        producer.send(name, b"x")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("produce", r"a Producer has no produce: give the record to send\(topic, value, key\)"),
        ("commit_transaction", r"no commit_transaction: it is commit\(\)"),
        ("no_such_thing", r"no_such_thing"),
    ],
)
def test_a_method_of_another_client_is_named_by_what_it_is_here(producer: Producer, name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=said):
        getattr(producer, name)
    assert not hasattr(producer, name)


@pytest.mark.slow
def test_a_topic_that_does_not_exist_is_named_with_its_neighbours_before_the_time_is_over(
    producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING, "headrace"),
        pytest.raises(DeadlineExceeded, match=r"topic order does not exist; did you mean orders\?"),
    ):
        producer.send("order", b"x")
    [told] = [each for each in caplog.records if "order does not exist" in each.message]
    assert "did you mean orders?" in told.message and "no broker has created it" in told.message


def test_a_delivery_can_be_awaited(producer: Producer) -> None:
    async def send() -> tuple[list[int], int]:
        places = await asyncio.gather(*(_place(producer, b"%d" % number) for number in range(10)))
        columns = await producer.send_columns(P, None, [b"a", b"b"])
        again = producer.send(P, b"x")
        assert await again == await again, "awaited twice"
        return [place.offset for place in places], columns[0].offset

    offsets, following = asyncio.run(send())
    assert offsets == list(range(offsets[0], offsets[0] + 10)) and following >= offsets[0] + 10


async def _place(producer: Producer, value: bytes) -> Any:
    return await producer.send(P, value)


def test_an_awaited_failure_is_raised(bootstrap: str) -> None:
    async def send(producer: Producer) -> None:
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE.*max.message.bytes"):
            await producer.send(P, bytes(2 << 20))

    with Producer(bootstrap, buffer_memory=8 << 20) as producer:
        asyncio.run(send(producer))


# -- processes


def ended(bootstrap: str, body: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A user's program, to its end."""
    head = "import os, sys\nfrom headrace import Admin, Consumer, Producer, TopicPartition\nbootstrap = sys.argv[1]\n"
    return subprocess.run(
        [sys.executable, "-c", head + body, bootstrap], capture_output=True, text=True, timeout=WITHIN_SECONDS,
        env={**child_environment(), **environment},
    )  # fmt: skip


def test_a_process_that_ends_without_close_sends_what_is_left(bootstrap: str) -> None:
    name = topic_name("unclosed")
    with Admin(bootstrap) as admin:
        admin.create_topic(name, 1, 1)
        body = f"Producer(bootstrap, linger_ms=60_000).send({name!r}, b'last words')"
        done = ended(bootstrap, body)
        assert (done.returncode, done.stderr) == (0, "")
        assert admin.watermarks([TopicPartition(name, 0)])[TopicPartition(name, 0)] == (0, 1)


def test_a_process_that_ends_says_how_many_records_were_lost(bootstrap: str) -> None:
    body = (
        "from headrace.client.producer import at_exit\n"
        "producer = Producer(bootstrap)\n"
        "for _ in range(3): producer.send('orders', bytes(2 << 20))\n"
    )
    done = ended(bootstrap, body)
    assert done.returncode == 0
    assert "3 records were lost: the process ended before a producer was closed (MESSAGE_TOO_LARGE" in done.stderr


def test_the_flush_at_the_end_is_bounded() -> None:
    """A broker that is gone: nothing is acknowledged, and the process ends."""
    with Broker(settings={"auto.create.topics.enable": False}) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("t", 1, 1)
        producer = Producer(broker.bootstrap, linger_ms=60_000)
        producer.send("t", b"x")
    before = time.monotonic()
    assert at_exit.flush_all(timeout_ms=200) == 1
    assert time.monotonic() - before < WITHIN_SECONDS / 2
    producer.close(0)
    assert at_exit.flush_all(timeout_ms=200) == 0, "a closed producer has nothing to flush"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_clients_in_a_fork_say_so_at_once(bootstrap: str) -> None:
    body = """
producer, consumer, admin = Producer(bootstrap), Consumer(bootstrap, group_id="forked"), Admin(bootstrap)
producer.send("orders", b"of the parent").result()
consumer.subscribe(["orders"])
consumer.poll(100)
if not os.fork():
    for call in (
        lambda: producer.send("orders", b"x"), producer.flush, lambda: consumer.poll(), admin.list_topics,
        lambda: admin.describe_topic("orders"), lambda: consumer.subscribe(["orders"]),
    ):
        try:
            call()
        except Exception as error:
            print(type(error).__name__, "a fork of it" in str(error))
    for client in (producer, consumer, admin):
        client.close()
    with Producer(bootstrap) as own:
        print(own.send("orders", b"of the child").result().topic, flush=True)
    sys.exit()
os.wait()
producer.send("orders", b"of the parent").result()
consumer.poll(100)
consumer.close(), producer.close(), admin.close()
"""
    done = ended(bootstrap, body)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n") == ["ClientForked True"] * 6 + ["orders", ""]


def test_a_closed_producer_and_a_wrong_address_are_told(bootstrap: str, free_port: int) -> None:
    with Producer(bootstrap) as producer:
        producer.send(P, b"x")
    with pytest.raises(KafkaError, match="the producer is closed"):
        producer.send(P, b"x")
    with Producer(f"127.0.0.1:{free_port}") as lost, pytest.raises(BrokerUnreachable, match=str(free_port)):
        lost.send(P, b"x")


@pytest.mark.slow
def test_lost_records_whose_result_nobody_asks_for_are_told(
    bootstrap: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic_name("lost")
    monkeypatch.setattr(lost_records, "PAUSE_S", 0)
    with Admin(bootstrap) as admin:
        admin.create_topic(name, 1, 1, {"message.format.version": "0.10.2"})
    with Producer(bootstrap) as producer, caplog.at_level(logging.ERROR):
        for _ in range(3):
            producer.send(name, b"v")
        producer.flush()
        told = f"3 records for {name}-0 not delivered"
        eventually(lambda: gc.collect() >= 0 and told in caplog.text, "the loss in the log")
        assert "an idempotent batch cannot be stored in this topic" in caplog.text
        caplog.clear()
        asked = producer.send(name, b"v")
        assert isinstance(asked.exception(), KafkaError)
        called: list[object] = []
        producer.send(name, b"v").add_done_callback(lambda *outcome: called.append(outcome))
        producer.flush()
        eventually(lambda: bool(called), "the call back")
        del asked
        gc.collect()
        assert name not in caplog.text
