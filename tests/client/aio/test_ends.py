"""How the asyncio face ends: cancelled calls, Ctrl-C, forks, brokers that do not answer, loops that were left."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection

import pytest

from headrace.client import aio
from headrace.client.core.failures import ClientClosed, ClientForked
from headrace.errors import KafkaError
from headrace.types import TopicPartition
from tests.client.brokers import topic_name
from tests.eventually import WITHIN_SECONDS

COUNT = 200


@pytest.mark.slow
async def test_cancelled_polls_lose_no_record(broker: str, topic: str) -> None:
    place = TopicPartition(topic, 0)
    found: list[int] = []
    async with aio.Consumer(broker, auto_offset_reset="earliest", max_poll_records=7) as consumer:
        await consumer.assign([place])

        async def send() -> None:
            async with aio.Producer(broker, linger_ms=0) as producer:
                for number in range(COUNT):
                    await producer.send_and_wait(topic, b"%d" % number, partition=0)

        sending = asyncio.create_task(send())
        deadline = time.monotonic() + WITHIN_SECONDS
        ways = (consumer.poll, consumer.getone, consumer.poll_columns)
        turn = 0
        while len(found) < COUNT and time.monotonic() < deadline:
            turn += 1
            try:
                async with asyncio.timeout(0.0005 * (turn % 12)):
                    got = await ways[turn % 3]()
            except TimeoutError:
                continue
            found += _offsets(got)
        await sending
    assert found == list(range(COUNT))


def _offsets(got: object) -> list[int]:
    if not isinstance(got, list):
        return [got.offset]  # type: ignore[attr-defined]
    if got and isinstance(got[0][0], TopicPartition):
        return [offset for _, columns in got for offset in columns.offsets]
    return [record.offset for record in got]


async def test_a_call_is_not_kept_by_a_poll_that_waits(broker: str, topic: str) -> None:
    async with aio.Consumer(broker) as consumer:
        await consumer.assign([TopicPartition(topic, 0)])
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0.05)
        began = time.monotonic()
        for _ in range(200):
            await consumer.position(TopicPartition(topic, 0))
        assert time.monotonic() - began < 200 * 0.2  # a poll waits for 0.25 s
        waiting.cancel()


async def test_close_ends_the_reading_of_another_task(broker: str, topic: str) -> None:
    consumer = aio.Consumer(broker)
    await consumer.assign([TopicPartition(topic, 0)])

    async def read() -> list[object]:
        return [record async for record in consumer]

    reading = asyncio.create_task(read())
    polling = asyncio.create_task(consumer.poll(WITHIN_SECONDS * 1000))
    await asyncio.sleep(0.05)
    await consumer.close()
    async with asyncio.timeout(WITHIN_SECONDS):
        assert await reading == []
        with pytest.raises(ClientClosed, match="the consumer is closed"):
            await polling


async def test_close_waits_for_a_listener_that_takes_its_time(broker: str, topic: str) -> None:
    told: list[object] = []

    async def revoked(partitions: Collection[TopicPartition]) -> None:
        await asyncio.sleep(0.2)
        told.extend(partitions)

    async with aio.Consumer(broker, group_id=topic_name("group"), auto_offset_reset="earliest") as consumer:
        await consumer.subscribe([topic], on_revoked=revoked)
        async with asyncio.timeout(WITHIN_SECONDS):
            while not consumer.assignment:
                await consumer.poll(100)
    assert len(told) == 2


async def test_a_cancelled_close_goes_on_without_its_task(broker: str, topic: str) -> None:
    producer, consumer = aio.Producer(broker, linger_ms=60_000), aio.Consumer(broker)
    delivery = await producer.send(topic, b"tea")
    await consumer.assign([TopicPartition(topic, 0)])
    for client in (producer, consumer):
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
    await producer.close()
    await consumer.close()
    assert delivery.result(0).offset == 0


@pytest.mark.slow
async def test_clients_close_soon_while_no_broker_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never says a word
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        producer, consumer, admin = aio.Producer(address), aio.Consumer(address), aio.Admin(address)
        calls = [
            asyncio.create_task(producer.send("orders", b"tea")),
            asyncio.create_task(consumer.end_offsets([TopicPartition("orders", 0)])),
            asyncio.create_task(admin.list_topics()),
        ]
        await asyncio.sleep(0.1)
        began = time.monotonic()
        await asyncio.gather(producer.close(0), admin.close(), consumer.close())
        assert time.monotonic() - began < 25  # a request waits for 30 s
        for ended in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(ended, KafkaError)


async def test_a_client_that_was_not_closed_is_a_resource_warning(broker: str, topic: str) -> None:
    producer, consumer = aio.Producer(broker), aio.Consumer(broker)
    await producer.partitions(topic)
    await consumer.assign([TopicPartition(topic, 0)])
    for client in (producer, consumer):
        with pytest.warns(ResourceWarning, match="was not closed: use `async with`"):
            client.__del__()
        await client.close()


async def test_a_fork_is_told_so_by_every_client(broker: str, topic: str) -> None:
    async with aio.Producer(broker) as producer, aio.Consumer(broker) as consumer, aio.Admin(broker) as admin:
        await producer.partitions(topic)
        await consumer.assign([TopicPartition(topic, 0)])
        await admin.list_topics()
        process = os.fork()
        if not process:  # the child has the loop's memory, and its own life
            os._exit(_refusals(producer, consumer, admin, topic))
        _, status = await asyncio.to_thread(os.waitpid, process, 0)
        assert os.waitstatus_to_exitcode(status) == 6


def _refusals(producer: aio.Producer, consumer: aio.Consumer, admin: aio.Admin, topic: str) -> int:
    calls = (
        lambda: producer.send(topic, b"tea"),
        lambda: producer.send_columns(topic, None, [b"tea"]),
        producer.flush,
        lambda: consumer.poll(10),
        consumer.end_offsets,
        admin.list_topics,
    )
    asyncio.events._set_running_loop(None)
    refused = 0
    for call in calls:
        try:
            asyncio.new_event_loop().run_until_complete(call())  # type: ignore[no-untyped-call, unused-ignore]
        except ClientForked:
            refused += 1
    for client in (producer, consumer, admin):
        asyncio.new_event_loop().run_until_complete(client.close())  # does nothing
    return refused


APPLICATION = """
import asyncio, threading
from headrace.client import aio

async def main():
    async with aio.Producer(BROKER, linger_ms=60_000) as producer:
        async with aio.Consumer(BROKER, group_id=GROUP, auto_offset_reset="earliest") as consumer:
            await producer.send_and_wait(TOPIC, b"tea")
            await consumer.subscribe([TOPIC])
            async for record in consumer:
                print("ready", flush=True)

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", [t.name for t in threading.enumerate() if t.name.startswith("headrace")], flush=True)
"""


@pytest.mark.slow
def test_ctrl_c_ends_a_program_cleanly(broker: str, topic: str) -> None:
    names = {"BROKER": broker, "TOPIC": topic, "GROUP": topic_name("group")}
    source = "".join(f"{name} = {value!r}\n" for name, value in names.items()) + APPLICATION.replace("60_000", "1")
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=WITHIN_SECONDS)
    assert (said, errors, process.returncode) == ("interrupted []\n", "", 0)


@pytest.mark.slow
def test_a_program_that_forgets_to_close_still_sends_and_ends(broker: str, topic: str) -> None:
    source = f"""
import asyncio
from headrace.client import aio

async def main():
    global producer
    producer = aio.Producer({broker!r}, linger_ms=60_000)
    await producer.send({topic!r}, b"late", partition=0)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=WITHIN_SECONDS)
    assert done.returncode == 0, done.stderr

    async def first() -> object:
        async with aio.Consumer(broker, auto_offset_reset="earliest") as consumer:
            await consumer.assign([TopicPartition(topic, 0)])
            return (await consumer.getone()).value

    assert asyncio.run(first()) == b"late"
