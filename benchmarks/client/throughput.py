"""Measures records per second of this client beside confluent-kafka (librdkafka), in turns, against one broker.

    python benchmarks/client/throughput.py [--bootstrap HOST:PORT] [--rounds N] [--sizes 100 1024] [--megabytes N]

Without --bootstrap, the benchmark starts a `headrace serve`. Client and broker share the machine's cores, so only
ratios within a round are meaningful: each round runs every case once, and the table has the medians of the rounds'
ratios to confluent-kafka, and their spread. Producers use acks=all, no compression, and batches of 256 KiB (librdkafka
and rows) or 1 MiB (columns). Each case has its own topic: one partition without keys, or (keyed) twelve partitions with
keys of 16 bytes. Consumers read a whole topic of one partition that librdkafka wrote. CPU is that of the client
process. Writes `throughput.json` beside this file (or to --json PATH).
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import pyarrow

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.client.beside_broker import options, run_beside
from headrace.client.consumer.arrow import to_record_batch
from headrace.client.consumer.consumer import Consumer, ConsumerSettings
from headrace.client.operations.admin import Admin
from headrace.client.producer.producer import Producer, ProducerSettings
from headrace.types import TopicPartition

RESULTS = Path(__file__).with_name("throughput.json")
KEYED_PARTITIONS = 12
CONFLUENT = "confluent-kafka"
CHUNK_ROWS = 100_000
IDLE_MS = 5_000


class Measured(NamedTuple):
    """The result of one case."""

    name: str
    records: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.records / self.seconds


def produce_confluent(bootstrap: str, topic: str, value: bytes, count: int, keys: list[bytes] | None = None) -> int:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 262144,
            "partitioner": "murmur2_random",  # Java's, as ours is
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    produce, poll = producer.produce, producer.poll
    for index in range(count):
        key = None if keys is None else keys[index % CHUNK_ROWS]
        try:
            produce(topic, value, key)
        except BufferError:
            poll(0.1)
            produce(topic, value, key)
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


def produce_columns(
    bootstrap: str, topic: str, chunk: pyarrow.Array, count: int, keys: pyarrow.Array | None = None
) -> int:
    with Producer(bootstrap, ProducerSettings(batch_bytes=1_000_000)) as producer:
        for start in range(0, count, CHUNK_ROWS):
            rows = min(CHUNK_ROWS, count - start)
            producer.send_columns(topic, None if keys is None else keys.slice(0, rows), chunk.slice(0, rows))
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


def one_round(bootstrap: str, size: int, count: int) -> dict[str, list[Measured]]:
    """Run every case once, grouped by comparison; confluent-kafka runs first."""
    stamp = time.time_ns()
    partitions = {"cf": 1, "columns": 1, "rows": 1, "cf-keyed": KEYED_PARTITIONS, "columns-keyed": KEYED_PARTITIONS}
    names = {way: f"bench-{way}-{size}-{stamp}" for way in partitions}
    with Admin(bootstrap) as admin:
        for way, number in partitions.items():
            admin.create_topic(names[way], number, 1)
        chunk = pyarrow.array([bytes(size)] * CHUNK_ROWS, pyarrow.binary())
        keys = [b"%016d" % number for number in range(CHUNK_ROWS)]
        value, column = bytes(size), pyarrow.array(keys, pyarrow.binary())
        topic = names["cf"]
        found = {
            "produce": [
                measure(CONFLUENT, produce_confluent, bootstrap, topic, value, count),
                measure("headrace send_columns", produce_columns, bootstrap, names["columns"], chunk, count),
                measure("headrace send", produce_rows, bootstrap, names["rows"], value, count),
            ],
            "produce, keyed": [
                measure(CONFLUENT, produce_confluent, bootstrap, names["cf-keyed"], value, count, keys),
                measure(
                    "headrace send_columns", produce_columns, bootstrap, names["columns-keyed"], chunk, count, column
                ),
            ],
            "consume": [
                measure(CONFLUENT, consume_confluent, bootstrap, topic, count),
                measure("headrace poll_columns", consume_columns, bootstrap, topic, count),
                measure("headrace poll", consume_rows, bootstrap, topic, count),
            ],
        }
        for one in found["consume"]:
            assert one.records == count, f"{one.name} read {one.records} of {count}"
        admin.delete_topics(list(names.values()))
    return found


def summary(rounds: list[dict[str, list[Measured]]]) -> dict[str, dict[str, dict[str, object]]]:
    """The medians over the rounds: rates, CPU, and ratios to confluent-kafka in the same round."""
    found: dict[str, dict[str, dict[str, object]]] = {}
    for work, cases in rounds[0].items():
        for index, case in enumerate(cases):
            runs = [each[work][index] for each in rounds]
            ratios = sorted(round(each[work][index].rate / each[work][0].rate, 2) for each in rounds)
            found.setdefault(work, {})[case.name] = {
                "records_per_s": round(statistics.median(run.rate for run in runs)),
                "ratio": round(statistics.median(ratios), 2),
                "ratio_spread": [ratios[0], ratios[-1]],
                "client_cpu_us_per_record": round(
                    statistics.median(run.cpu_seconds / run.records * 1e6 for run in runs), 3
                ),
            }
    return found


def run(bootstrap: str, arguments: argparse.Namespace) -> None:
    load_before = os.getloadavg()[0]
    figures = {}
    for size in arguments.sizes:
        count = arguments.megabytes * (1 << 20) // size
        one_round(bootstrap, size, min(count, CHUNK_ROWS))  # warm-up
        figures[f"{size} B"] = found = summary([one_round(bootstrap, size, count) for _ in range(arguments.rounds)])
        for work, cases in found.items():
            print(f"\n{work}, {size} B, {count:,} records, medians of {arguments.rounds} rounds")
            print(f"  {'':<24}{'records/s':>12}{'x':>7}{'spread':>16}{'client CPU us/record':>24}")
            for name, case in cases.items():
                print(
                    f"  {name:<24}{case['records_per_s']:>12,}{case['ratio']:>7}{case['ratio_spread']!s:>16}"
                    f"{case['client_cpu_us_per_record']:>24}"
                )
    about = {
        "rounds": arguments.rounds,
        "megabytes": arguments.megabytes,
        "cores": os.cpu_count(),
        "load_before_and_after": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "python": sys.version.split()[0],
        "confluent_kafka": confluent_kafka.__version__,
    }
    arguments.json.write_text(json.dumps({"about": about, "figures": figures}, indent=1) + "\n")


def main() -> None:
    parser = options(__doc__, RESULTS)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1024], help="bytes of a value")
    parser.add_argument("--megabytes", type=int, default=200, help="how much of each size")
    run_beside(run, parser.parse_args())


if __name__ == "__main__":
    main()
