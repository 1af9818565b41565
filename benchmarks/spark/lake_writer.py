"""Measures a lake table that is written beside a broker under a steady load of JSON values: the time from a record to
the table, what the writer costs, and what it does to the latency of producers.

    python benchmarks/spark/lake_writer.py [--rate 2000] [--value-bytes 1024] [--seconds 20] [--rounds 3]

A round is the load alone, then the load with `headrace lake run` beside it, each for so many seconds. A producer sends
batches of ten milliseconds with acks=all, and each batch's time to its acknowledgement counts. Then for half as long
this process also opens the table again and again, which would disturb the producer before: a record is in the table
when its offset is below the table's progress. Writes `lake_writer.json` beside this file.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import psutil

from benchmarks.spark.batch_read import own_broker

HERE = Path(__file__).parent
RESULTS = HERE / "lake_writer.json"
TICK_S = 0.01
WARM_S = 3.0


def load(bootstrap: str, topic: str, rate: int, value_bytes: int, seconds: float) -> tuple[list[float], list[tuple]]:
    """Sends at a steady rate. The ms of each batch to its acknowledgement, and the end and the time of each batch."""
    from headrace.client.producer.producer import Producer

    count = max(1, round(rate * TICK_S))
    taken, sent = [], []
    with Producer(bootstrap, linger_ms=0) as producer:
        begun, tick = time.monotonic(), 0
        while time.monotonic() - begun < seconds:
            due = begun + tick * TICK_S
            time.sleep(max(0.0, due - time.monotonic()))
            values = []
            for number in range(tick * count, (tick + 1) * count):
                value = b'{"id":%d,"amount":%d.25,"city":"city-%d","note":"' % (number, number % 1000, number % 50)
                values.append(value + b"x" * max(0, value_bytes - len(value) - 2) + b'"}')
            tick += 1
            started = time.monotonic()
            deliveries = [producer.send(topic, value, partition=0) for value in values]
            producer.flush()
            if started - begun >= WARM_S:
                taken.append((time.monotonic() - started) * 1000)
            sent.append((int(deliveries[-1].result(30).offset) + 1, started))
    return taken, sent


class Watch:
    """Opens the table again and again; (progress, time) of each change."""

    def __init__(self, table: Path, topic: str) -> None:
        self.seen: list[tuple[int, float]] = []
        self._table, self._topic = table, topic
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        from headrace.lake.delta.delta_table import LoadTable
        from headrace.types import TopicPartition

        while not self._end.wait(0.2):
            found = LoadTable.open(self._table)
            if found is None:
                continue
            progress = found.next_offset("load", TopicPartition(self._topic, 0)) or 0
            if not self.seen or progress > self.seen[-1][0]:
                self.seen.append((progress, time.monotonic()))

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def to_table(sent: list[tuple], seen: list[tuple[int, float]]) -> list[float]:
    """The seconds from each batch to the table."""
    found = []
    for end, at in sent:
        shown = next((when for progress, when in seen if progress >= end), None)
        if shown is not None:
            found.append(shown - at)
    return found


def one_round(bootstrap: str, topic: str, directory: Path, arguments: argparse.Namespace) -> dict[str, float]:
    from headrace.client.operations.admin import Admin, NewTopic

    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1)])
    how = (arguments.rate, arguments.value_bytes, arguments.seconds)
    alone, _ = load(bootstrap, topic, *how)
    table = directory / topic
    lake = [sys.executable, "-m", "headrace", "lake"]
    where = ["--bootstrap", bootstrap]
    subprocess.run([*lake, "add", topic, "--table", str(table), "--schema", "infer", *where], check=True)
    subprocess.run([*lake, "run", topic, "--once", *where], check=True, stdout=subprocess.DEVNULL)
    process = subprocess.Popen([*lake, "run", topic, *where], stdout=subprocess.DEVNULL)
    time.sleep(WARM_S)
    before = sum(psutil.Process(process.pid).cpu_times()[:2])
    beside, batches = load(bootstrap, topic, *how)
    time.sleep(7)
    cpu = sum(psutil.Process(process.pid).cpu_times()[:2]) - before
    with Watch(table, topic) as watch:
        _, sent = load(bootstrap, topic, arguments.rate, arguments.value_bytes, arguments.seconds / 2)
        time.sleep(7)
    process.send_signal(signal.SIGTERM)
    _, _, usage = os.wait4(process.pid, 0)
    delays = to_table(sent, watch.seen)
    gigabytes = len(batches) * max(1, round(arguments.rate * TICK_S)) * arguments.value_bytes / 1e9
    return {
        "p99_ms_alone": percentile(alone, 99),
        "p99_ms_beside": percentile(beside, 99),
        "p99_ratio": percentile(beside, 99) / percentile(alone, 99),
        "p50_ratio": percentile(beside, 50) / percentile(alone, 50),
        "to_table_s_p50": percentile(delays, 50),
        "to_table_s_max": max(delays),
        "in_table": len(delays) / len(sent),
        "cpu_s_per_GB": cpu / gigabytes,
        "cpu_share": cpu / arguments.seconds,
        "memory_MiB": usage.ru_maxrss / 1024,
    }


def percentile(values: list[float], of: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * of // 100)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=2_000, help="records a second")
    parser.add_argument("--value-bytes", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    load_before = os.getloadavg()[0]
    with own_broker() as (bootstrap, _), tempfile.TemporaryDirectory() as directory:
        rounds = [
            one_round(bootstrap, f"load-{number}", Path(directory), arguments) for number in range(arguments.rounds)
        ]
    figures = {
        name: {
            "median": round(statistics.median(each[name] for each in rounds), 2),
            "spread": [round(min(each[name] for each in rounds), 2), round(max(each[name] for each in rounds), 2)],
        }
        for name in rounds[0]
    }
    about = {
        "rate": arguments.rate,
        "value_bytes": arguments.value_bytes,
        "seconds": arguments.seconds,
        "rounds": arguments.rounds,
        "cores": psutil.cpu_count(),
        "load_before_and_after": [round(load_before, 1), round(os.getloadavg()[0], 1)],
    }
    text = json.dumps({"about": about, "figures": figures}, indent=1)
    RESULTS.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
