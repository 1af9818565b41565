"""Measures records per second of the asyncio face beside aiokafka, in turns, against one broker.

    python benchmarks/client/aio.py [--bootstrap HOST:PORT] [--rounds N] [--size 100] [--records N]

Without --bootstrap, the benchmark starts a `headrace serve`. Client and broker share the machine's cores, so only
ratios within a round are meaningful: each round runs every case once, in a process of its own, and the table has the
medians of the rounds' ratios to aiokafka, and their spread. Producers use acks=all without compression, a linger of 5
ms and batches of 256 KiB, one task, a topic of one partition; awaited means that a thousand tasks send and await each
delivery, without a linger. Consumers read what the producers wrote, with 500 records a poll. CPU is that of the
client's process without its start. Writes `aio.json` beside this file (or to --json PATH).
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.client.beside_broker import options, run_beside

RESULTS = Path(__file__).with_name("aio.json")
TASKS = 1_000
LINGER_MS, BATCH_BYTES, POLL_RECORDS = 5, 256 << 10, 500
IDLE_MS = 20_000


class Case(NamedTuple):
    """A topic's name, a value, and how many records."""

    bootstrap: str
    topic: str
    value: bytes
    count: int


async def send_headrace(case: Case) -> None:
    from headrace.client import aio

    async with aio.Producer(case.bootstrap, linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as producer:
        for _ in range(case.count):
            await producer.send(case.topic, case.value)


async def send_aiokafka(case: Case) -> None:
    async with _their_producer(case) as producer:
        for _ in range(case.count):
            await producer.send(case.topic, case.value)
        await producer.flush()


async def awaited_headrace(case: Case) -> None:
    from headrace.client import aio

    async with aio.Producer(case.bootstrap, linger_ms=0, batch_size=BATCH_BYTES) as producer:
        await _in_tasks(case, producer.send_and_wait)


async def awaited_aiokafka(case: Case) -> None:
    async with _their_producer(case, linger_ms=0) as producer:
        await _in_tasks(case, producer.send_and_wait)


async def _in_tasks(case: Case, send_and_wait: Callable[[str, bytes], Awaitable[object]]) -> None:
    async def one() -> None:
        for _ in range(case.count // TASKS):
            await send_and_wait(case.topic, case.value)

    await asyncio.gather(*(one() for _ in range(TASKS)))


def _their_producer(case: Case, linger_ms: int = LINGER_MS):  # aiokafka has no types
    from aiokafka import AIOKafkaProducer

    return AIOKafkaProducer(
        bootstrap_servers=case.bootstrap, acks="all", enable_idempotence=True, linger_ms=linger_ms,
        max_batch_size=BATCH_BYTES, max_request_size=8 << 20,
    )  # fmt: skip


async def iterate_headrace(case: Case) -> None:
    async with _our_consumer(case) as consumer:
        await consumer.assign([(case.topic, 0)])
        seen = 0
        async for record in consumer:
            record.value  # noqa: B018  # what a user would at least do
            seen += 1
            if seen == case.count:
                break


async def iterate_aiokafka(case: Case) -> None:
    async with _their_consumer(case) as consumer:
        seen = 0
        async for record in consumer:
            record.value  # noqa: B018
            seen += 1
            if seen == case.count:
                break


async def poll_headrace(case: Case) -> None:
    async with _our_consumer(case) as consumer:
        await consumer.assign([(case.topic, 0)])
        seen = 0
        while seen < case.count:
            seen += len(await consumer.poll(IDLE_MS))


async def poll_aiokafka(case: Case) -> None:
    async with _their_consumer(case) as consumer:
        seen = 0
        while seen < case.count:
            found = await consumer.getmany(timeout_ms=IDLE_MS, max_records=POLL_RECORDS)
            seen += sum(map(len, found.values()))


def _our_consumer(case: Case):
    from headrace.client import aio

    return aio.Consumer(case.bootstrap, auto_offset_reset="earliest", max_poll_records=POLL_RECORDS)


class _their_consumer:  # used as a function
    """aiokafka's consumer, assigned: it has to be before it starts to have a position."""

    def __init__(self, case: Case) -> None:
        from aiokafka import AIOKafkaConsumer

        self._case = case
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=case.bootstrap, auto_offset_reset="earliest", max_poll_records=POLL_RECORDS,
            enable_auto_commit=False, max_partition_fetch_bytes=2 << 20,
        )  # fmt: skip

    async def __aenter__(self):
        from aiokafka import TopicPartition

        await self._consumer.start()
        self._consumer.assign([TopicPartition(self._case.topic, 0)])
        return self._consumer

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()


WORK: dict[str, tuple[Callable[[Case], Awaitable[None]], Callable[[Case], Awaitable[None]]]] = {
    "send": (send_aiokafka, send_headrace),
    "send, awaited": (awaited_aiokafka, awaited_headrace),
    "async for": (iterate_aiokafka, iterate_headrace),
    "poll, getmany": (poll_aiokafka, poll_headrace),
}
FACES = ("aiokafka", "headrace aio")


def child(function: str, case: Case) -> None:
    """One case in this process; prints its seconds, of the clock and of the processor."""
    work = next(each for pair in WORK.values() for each in pair if each.__name__ == function)
    asyncio.run(work(case._replace(count=min(TASKS, case.count))))  # imports, and the connection's first steps
    started, cpu = time.perf_counter(), time.process_time()
    asyncio.run(work(case))
    print(time.perf_counter() - started, time.process_time() - cpu)


def measure(work: Callable[[Case], Awaitable[None]], case: Case) -> tuple[float, float]:
    arguments = [work.__name__, case.bootstrap, case.topic, str(len(case.value)), str(case.count)]
    said = subprocess.run([sys.executable, __file__, "--child", *arguments], capture_output=True, text=True, check=True)
    seconds, cpu = map(float, said.stdout.split())
    return case.count / seconds, cpu / case.count * 1e6


def one_round(bootstrap: str, size: int, count: int) -> dict[str, list[tuple[float, float]]]:
    """Rate and CPU of every case, aiokafka first."""
    from headrace import Admin

    stamp, value = time.time_ns(), bytes(size)
    found = {}
    with Admin(bootstrap) as admin:
        topics = {name: f"bench-{number}-{stamp}" for number, name in enumerate(["theirs", "ours", "awaited"])}
        for topic in topics.values():
            admin.create_topic(topic, 1, 1)
        for name, (theirs, ours) in WORK.items():
            if name == "send":
                cases = [Case(bootstrap, topics["theirs"], value, count), Case(bootstrap, topics["ours"], value, count)]
            elif name.startswith("send"):
                cases = [Case(bootstrap, topics["awaited"], value, count // 4)] * 2
            else:
                cases = [Case(bootstrap, topics["ours"], value, count)] * 2
            found[name] = [measure(theirs, cases[0]), measure(ours, cases[1])]
        admin.delete_topics(list(topics.values()))
    return found


def summary(rounds: list[dict[str, list[tuple[float, float]]]]) -> dict[str, dict[str, dict[str, object]]]:
    """The medians over the rounds: rates, CPU, and ratios to aiokafka in the same round."""
    found: dict[str, dict[str, dict[str, object]]] = {}
    for work in WORK:
        for index, face in enumerate(FACES):
            ratios = sorted(round(each[work][index][0] / each[work][0][0], 2) for each in rounds)
            found.setdefault(work, {})[face] = {
                "records_per_s": round(statistics.median(each[work][index][0] for each in rounds)),
                "ratio": round(statistics.median(ratios), 2),
                "ratio_spread": [ratios[0], ratios[-1]],
                "client_cpu_us_per_record": round(statistics.median(each[work][index][1] for each in rounds), 2),
            }
    return found


def run(bootstrap: str, arguments: argparse.Namespace) -> None:
    import aiokafka

    load_before = os.getloadavg()[0]
    figures = summary([one_round(bootstrap, arguments.size, arguments.records) for _ in range(arguments.rounds)])
    for work, cases in figures.items():
        print(f"\n{work}, {arguments.size} B, medians of {arguments.rounds} rounds")
        for face, case in cases.items():
            print(
                f"  {face:<14}{case['records_per_s']:>12,}{case['ratio']:>7}{case['ratio_spread']!s:>16}"
                f"{case['client_cpu_us_per_record']:>8} us CPU a record"
            )
    about = {
        "rounds": arguments.rounds,
        "size_bytes": arguments.size,
        "records": arguments.records,
        "cores": os.cpu_count(),
        "load_before_and_after": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "python": sys.version.split()[0],
        "aiokafka": aiokafka.__version__,
    }
    arguments.json.write_text(json.dumps({"about": about, "figures": figures}, indent=1) + "\n")


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        function, bootstrap, topic, size, count = sys.argv[2:]
        child(function, Case(bootstrap, topic, bytes(int(size)), int(count)))
        return
    parser = options(__doc__, RESULTS)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--records", type=int, default=300_000)
    run_beside(run, parser.parse_args())


if __name__ == "__main__":
    main()
