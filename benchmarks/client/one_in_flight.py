"""Measures the time of one record from the call to its acknowledgement, and imports, beside confluent-kafka.

    python benchmarks/client/one_in_flight.py [--bootstrap HOST:PORT] [--rounds N] [--records N]

One record of 100 B is in flight at a time, acks=all, no linger: `send(...).result()` here, `produce` and `flush` there,
and `await send_and_wait` beside aiokafka's. Without --bootstrap, the benchmark starts a `headrace serve`. Each round
runs every case once; the table has the medians of the rounds' medians. CPU is that of the client process. The time of
an import is that of the statement in a new process, the median of as many as there are records / 100. Writes
`one_in_flight.json` beside this file (or to --json PATH).
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import aiokafka
import confluent_kafka

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.client.beside_broker import options, run_beside
from headrace.client import aio
from headrace.client.operations.admin import Admin
from headrace.client.producer.producer import Producer

RESULTS = Path(__file__).with_name("one_in_flight.json")
VALUE = bytes(100)
WARM_UP = 100
IMPORTS = {
    "headrace's producer": "from headrace import Producer; Producer",
    "headrace": "from headrace import Consumer, Producer; Consumer, Producer",
    "headrace.client.aio": "from headrace.client.aio import Consumer, Producer",
    "confluent-kafka": "from confluent_kafka import Consumer, Producer",
    "aiokafka": "from aiokafka import AIOKafkaConsumer, AIOKafkaProducer",
}


def of_confluent(bootstrap: str, topic: str, count: int) -> list[int]:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    times = []
    for _ in range(count):
        began = time.perf_counter_ns()
        producer.produce(topic, VALUE)
        producer.flush()
        times.append(time.perf_counter_ns() - began)
    return times


def of_headrace(bootstrap: str, topic: str, count: int) -> list[int]:
    times = []
    with Producer(bootstrap, linger_ms=0) as producer:
        for _ in range(count):
            began = time.perf_counter_ns()
            producer.send(topic, VALUE).result()
            times.append(time.perf_counter_ns() - began)
    return times


def of_aiokafka(bootstrap: str, topic: str, count: int) -> list[int]:
    async def main() -> list[int]:
        times = []
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=0) as producer:
            for _ in range(count):
                began = time.perf_counter_ns()
                await producer.send_and_wait(topic, VALUE)
                times.append(time.perf_counter_ns() - began)
        return times

    return asyncio.run(main())


def of_headrace_aio(bootstrap: str, topic: str, count: int) -> list[int]:
    async def main() -> list[int]:
        times = []
        async with aio.Producer(bootstrap, linger_ms=0) as producer:
            for _ in range(count):
                began = time.perf_counter_ns()
                await producer.send_and_wait(topic, VALUE)
                times.append(time.perf_counter_ns() - began)
        return times

    return asyncio.run(main())


CASES: dict[str, Callable[[str, str, int], list[int]]] = {
    "confluent-kafka": of_confluent,
    "headrace": of_headrace,
    "aiokafka": of_aiokafka,
    "headrace.client.aio": of_headrace_aio,
}


def import_ms(statement: str) -> float:
    code = f"import time; t = time.perf_counter(); {statement}; print((time.perf_counter() - t) * 1e3)"
    compiled_once = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, env=compiled_once).stdout)


def run(bootstrap: str, arguments: argparse.Namespace) -> None:
    load_before = os.getloadavg()[0]
    topic = f"one-in-flight-{time.time_ns()}"
    rounds: list[dict[str, tuple[float, float, float]]] = []
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, 1, 1)
        for _ in range(arguments.rounds):
            found = {}
            for name, work in CASES.items():
                cpu = time.process_time()
                times = sorted(work(bootstrap, topic, arguments.records + WARM_UP)[WARM_UP:])
                cpu = time.process_time() - cpu
                found[name] = (
                    times[len(times) // 2] / 1e3,
                    times[len(times) * 99 // 100] / 1e3,
                    cpu / len(times) * 1e6,
                )
            rounds.append(found)
        admin.delete_topics([topic])
    figures = {
        name: dict(
            zip(
                ("p50_us", "p99_us", "client_cpu_us_per_record"),
                (round(statistics.median(values), 1) for values in zip(*(each[name] for each in rounds), strict=True)),
                strict=True,
            )
        )
        for name in CASES
    }
    imports = {
        name: round(statistics.median(import_ms(code) for _ in range(max(5, arguments.records // 100))), 1)
        for name, code in IMPORTS.items()
    }
    for name, case in figures.items():
        print(f"{name:<22}", case)
    print("imports, ms:", imports)
    about = {
        "rounds": arguments.rounds,
        "records": arguments.records,
        "load_before_and_after": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "python": sys.version.split()[0],
        "confluent_kafka": confluent_kafka.__version__,
        "aiokafka": aiokafka.__version__,
    }
    arguments.json.write_text(json.dumps({"about": about, "figures": figures, "imports_ms": imports}, indent=1) + "\n")


def main() -> None:
    parser = options(__doc__, RESULTS)
    parser.add_argument("--records", type=int, default=2_000)
    run_beside(run, parser.parse_args())


if __name__ == "__main__":
    main()
