"""Records per second of this client beside confluent-kafka (librdkafka), in one run against one broker.

    python benchmarks/client/throughput.py [--bootstrap HOST:PORT] [--records N]

Without --bootstrap a `headrace serve` is started for the run. Client and broker share the machine's cores, so that only
the ratios of one run mean anything. Each way of producing writes a topic of its own with one partition and null keys,
acks=all, no compression; each way of consuming reads all of the topic that librdkafka wrote. CPU is the client
process's own, measured in the same process for everybody.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

import confluent_kafka
import pyarrow

from headrace.client.admin import Admin
from headrace.client.arrow import to_record_batch
from headrace.client.consumer import Consumer, ConsumerSettings
from headrace.client.producer import Producer, ProducerSettings
from headrace.types import TopicPartition

CHUNK_ROWS = 100_000
IDLE_MS = 5_000


class Measured(NamedTuple):
    """One way of doing it."""

    name: str
    records: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.records / self.seconds


def produce_confluent(bootstrap: str, topic: str, value: bytes, count: int) -> int:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 262144,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    produce, poll = producer.produce, producer.poll
    for index in range(count):
        try:
            produce(topic, value)
        except BufferError:
            poll(0.1)
            produce(topic, value)
        if index % 10_000 == 0:
            poll(0)
    producer.flush()
    return count


def produce_rows(bootstrap: str, topic: str, value: bytes, count: int) -> int:
    with Producer(bootstrap, ProducerSettings()) as producer:
        send = producer.send
        for _ in range(count):
            send(topic, value)
    return count


def produce_columns(bootstrap: str, topic: str, chunk: pyarrow.Array, count: int) -> int:
    with Producer(bootstrap, ProducerSettings(batch_bytes=1 << 20)) as producer:
        for start in range(0, count, CHUNK_ROWS):
            producer.send_columns(topic, None, chunk.slice(0, min(CHUNK_ROWS, count - start)))
    return count


def consume_confluent(bootstrap: str, topic: str, count: int) -> int:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 2,
            "queued.max.messages.kbytes": 262144,
            "fetch.max.bytes": 50 << 20,
            "max.partition.fetch.bytes": 8 << 20,
            "check.crcs": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    seen = 0
    while seen < count:
        # never more than is left: consume() waits out its timeout for messages that do not come
        messages = consumer.consume(min(10_000, count - seen), IDLE_MS / 1000)
        if not messages:
            break
        for message in messages:
            message.value()
        seen += len(messages)
    consumer.close()
    return seen


def consume_rows(bootstrap: str, topic: str, count: int) -> int:
    with Consumer(bootstrap, ConsumerSettings(auto_offset_reset="earliest", max_poll_records=10_000)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        seen = 0
        while seen < count and (records := consumer.poll(IDLE_MS)):
            for record in records:
                record.value  # noqa: B018  # what a user would at least do
            seen += len(records)
    return seen


def consume_columns(bootstrap: str, topic: str, count: int) -> int:
    with Consumer(bootstrap, ConsumerSettings(auto_offset_reset="earliest")) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        seen = 0
        while seen < count and (found := consumer.poll_columns(IDLE_MS)):
            for partition, columns in found:
                seen += to_record_batch(
                    columns, partition.topic, partition.partition, ("key", "value", "offset")
                ).num_rows
    return seen


def measure(name: str, work: Callable[..., int], *arguments: object) -> Measured:
    started, cpu = time.perf_counter(), time.process_time()
    records = work(*arguments)
    return Measured(name, records, time.perf_counter() - started, time.process_time() - cpu)


def report(title: str, results: list[Measured]) -> None:
    base = results[0]
    print(f"\n{title}")
    print(f"  {'':<28}{'records/s':>12}{'x':>7}{'client CPU us/record':>24}")
    for one in results:
        cpu = one.cpu_seconds / max(1, one.records) * 1e6
        print(f"  {one.name:<28}{one.rate:>12,.0f}{one.rate / base.rate:>7.2f}{cpu:>24.3f}")


def run(bootstrap: str, sizes: list[int], megabytes: int) -> None:
    for size in sizes:
        value, count = bytes(size), megabytes * (1 << 20) // size
        names = {way: f"bench-{way}-{size}-{time.time_ns()}" for way in ("librdkafka", "rows", "columns")}
        with Admin(bootstrap) as admin:
            for name in names.values():
                admin.create_topic(name, 1, 1)
        chunk = pyarrow.array([value] * CHUNK_ROWS, pyarrow.binary())
        produced = [
            measure("confluent-kafka", produce_confluent, bootstrap, names["librdkafka"], value, count),
            measure("headrace send_columns", produce_columns, bootstrap, names["columns"], chunk, count),
            measure("headrace send", produce_rows, bootstrap, names["rows"], value, count // 4),
        ]
        report(f"produce {size} B, {count:,} records", produced)
        topic = names["librdkafka"]
        consumed = [
            measure("confluent-kafka consume", consume_confluent, bootstrap, topic, count),
            measure("headrace poll_columns", consume_columns, bootstrap, topic, count),
            measure("headrace poll", consume_rows, bootstrap, topic, count),
        ]
        for one in consumed:
            assert one.records == count, f"{one.name} read {one.records} of {count}"
        report(f"consume {size} B, {count:,} records", consumed)
        with Admin(bootstrap) as admin:
            admin.delete_topics(list(names.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", help="a running broker; without it `headrace serve` is started")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1024], help="bytes of a value")
    parser.add_argument("--megabytes", type=int, default=300, help="how much of each size")
    arguments = parser.parse_args()
    if arguments.bootstrap:
        run(arguments.bootstrap, arguments.sizes, arguments.megabytes)
        return
    with tempfile.TemporaryDirectory() as data:
        command = [sys.executable, "-m", "headrace", "serve", "--listen", "127.0.0.1:0", "--data", data]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert server.stdout is not None
            run(server.stdout.readline().split()[1], arguments.sizes, arguments.megabytes)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
