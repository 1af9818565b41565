"""Measures queries over a topic of JSON values: its lake table and the live topic as one frame, beside Spark's Kafka
connector, in turns.

    python benchmarks/spark/lake_query.py [--value-bytes 100 1024] [--rounds 3] [--warm 6] [--append]

First `headrace lake run --once` writes the table, which is timed: bytes of JSON a second and CPU seconds a GB. Then a
hundredth of the records again goes to the topic alone. The queries read all of it:

    group          the sum of one field by another
    range          the number and the sum of one field of the newest hundredth of the history, by time
    range_options  the same; the connector is told the times by its options, and reads these records only
    live           all columns of the topic's records to nowhere, without the table

In `range` the connector's frame has a condition on `timestamp`, as one writes it on any frame; it reads the topic and
drops what is not of the time. Its options `startingTimestamp` and `endingTimestamp` read less, but have to be known.

Each source has its own Spark session in its own process. Each query is run for --warm seconds first, at least twice,
for both alike: Java has compiled what it runs often then. `first_seconds` is the first run in a session. A round runs
each source once and compares it with the connector in the same round. Writes `lake_query.json` beside this file;
--append adds the rounds to those that it has. Maven fetches the connector's jars once.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import psutil

from benchmarks.spark.batch_read import JARS, PEER, REPEATS, compared, fetch_jars, own_broker, timed

HERE = Path(__file__).parent
RESULTS = HERE / "lake_query.json"
SOURCES = (PEER, "headrace")
FIELDS = "amount DOUBLE, city STRING"
FIRST_MS = 1_700_000_000_000
CHUNK = 10_000
WORK = ("group", "range", "range_options", "live")
LEAST_S = 2
"""A query that takes less than a third of it is measured more often than `REPEATS` times."""


def fill(bootstrap: str, topic: str, first: int, records: int, value_bytes: int, partitions: int) -> int:
    """Writes records; returns the bytes of their values. A record's time is its number in ms."""
    from headrace.client.operations.admin import Admin, NewTopic
    from headrace.client.producer.producer import Producer

    with Admin(bootstrap) as admin:
        if topic not in {info.name for info in admin.list_topics()}:
            admin.create_topics([NewTopic(topic, partitions, configs={"retention.ms": "-1"})])
    written = 0
    with Producer(bootstrap) as producer:
        for start in range(first, first + records, CHUNK):
            count = min(CHUNK, first + records - start)
            values = []
            for n in range(start, start + count):
                value = b'{"id":%d,"amount":%d.25,"city":"city-%d","note":"' % (n, n % 1000, n * 7919 % 50)
                values.append(value + b"x" * max(0, value_bytes - len(value) - 2) + b'"}')
            written += sum(map(len, values))
            times = list(range(FIRST_MS + start, FIRST_MS + start + count))
            producer.send_columns(topic, None, values, times, partition=start // CHUNK % partitions)
        producer.flush()
    return written


def write_table(bootstrap: str, topic: str, table: Path, size: int) -> dict[str, float]:
    """Writes the lake table; its rate and its cost."""
    command = [sys.executable, "-m", "headrace", "lake"]
    where = ["--bootstrap", bootstrap]
    subprocess.run([*command, "add", topic, "--table", str(table), "--schema", "infer", *where], check=True)
    began = time.perf_counter()
    process = subprocess.Popen([*command, "run", topic, "--once", *where], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    if status:
        raise SystemExit(f"headrace lake run ended with status {status}")
    cpu = usage.ru_utime + usage.ru_stime
    parquet = sum(path.stat().st_size for path in table.rglob("*.parquet"))
    return {
        "MB_per_s": round(size / seconds / 1e6, 1),
        "MB_per_core_s": round(size / cpu / 1e6, 1),
        "cpu_s_per_GB": round(cpu / size * 1e9, 2),
        "memory_MiB": round(usage.ru_maxrss / 1024),
        "size_ratio": round(parquet / size, 3),
    }


def measure(source: str, arguments: argparse.Namespace, topic: str) -> dict[str, list[float]]:
    """The median seconds and CPU seconds of each query, and the seconds of its first run, in this process's session."""
    from pyspark.sql import functions as F

    from headrace.spark.session import session
    from headrace.spark.whole_topic import topic as whole

    settings = {"spark.driver.memory": "2g", **dict(one.split("=", 1) for one in arguments.settings)}
    options = {"kafka.bootstrap.servers": arguments.bootstrap}
    if source == PEER:
        settings["spark.jars"] = ",".join(map(str, sorted(JARS.glob("*.jar"))))
    spark = session("lake query", master="local[2]", settings=settings)
    total = arguments.records + arguments.records // 100
    low, high = (FIRST_MS + arguments.records * part // 100 for part in (99, 100))
    since, until = (datetime.fromtimestamp(each / 1000, UTC) for each in (low, high))
    is_within = (F.col("timestamp") >= F.lit(since)) & (F.col("timestamp") < F.lit(until))

    def parsed(found):
        return found.select(F.from_json(F.col("value").cast("string"), FIELDS).alias("v")).select("v.*")

    def records(**more):
        return spark.read.format(PEER).options(**options, subscribe=topic, **more).load()

    def group():
        rows = parsed(records()) if source == PEER else whole(spark, topic, options)
        found = rows.groupBy("city").agg(F.sum("amount").alias("sum"), F.count("*").alias("count")).collect()
        assert (len(found), sum(row["count"] for row in found)) == (50, total)

    def sum_of(rows):
        (found,) = rows.selectExpr("count(*) AS count", "sum(amount) AS sum").collect()
        assert found["count"] == arguments.records - arguments.records * 99 // 100

    def in_range():
        rows = whole(spark, topic, options, since=since, until=until) if source != PEER else None
        sum_of(parsed(records().where(is_within)) if rows is None else rows)

    def by_options():
        if source != PEER:
            in_range()
            return
        times = {"startingTimestamp": low, "endingTimestamp": high, "startingOffsetsByTimestampStrategy": "latest"}
        sum_of(parsed(records(**times).where(is_within)))

    def live():
        found = spark.read.format(PEER if source == PEER else "headrace").options(**options, subscribe=topic).load()
        found.write.format("noop").mode("overwrite").save()

    work = {"group": group, "range": in_range, "range_options": by_options, "live": live}
    found = {}
    for name in arguments.work:
        first, _ = timed(work[name])
        until_s = time.monotonic() + arguments.warm
        work[name]()
        while time.monotonic() < until_s:
            work[name]()
        runs = [timed(work[name]) for _ in range(REPEATS)]
        while sum(seconds for seconds, _ in runs) < LEAST_S:
            runs.append(timed(work[name]))
        found[name] = [*(statistics.median(each) for each in zip(*runs, strict=True)), first]
    spark.stop()
    return found


Taken = dict[str, dict[str, list[list[float]]]]
"""By source and query, of each round: seconds, CPU seconds, and the seconds of the first run."""


def take(arguments: argparse.Namespace, topic: str, taken: Taken) -> None:
    """Run the sources one after the other, the first one in turns, and add what they took."""
    is_turned = len(taken.get(PEER, {}).get(arguments.work[0], ())) % 2
    for source in SOURCES[:: -1 if is_turned else 1]:
        command = [sys.executable, __file__, "--bootstrap", arguments.bootstrap, "--warm", str(arguments.warm)]
        command += ["--records", str(arguments.records), "--work", *arguments.work]
        command += ["--settings", *arguments.settings, "--measure", source, topic]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr[-3000:])
        for work, one in json.loads(done.stdout.splitlines()[-1]).items():
            taken.setdefault(source, {}).setdefault(work, []).append([round(each, 4) for each in one])


def compared_all(taken: Taken, records: int) -> dict[str, object]:
    """Each source beside the connector in its round."""
    return {
        work: {
            source: {
                **compared(others, taken[source][work], records),
                "seconds": round(statistics.median(one[0] for one in taken[source][work]), 3),
                "first_seconds": round(statistics.median(one[2] for one in taken[source][work]), 2),
            }
            for source in SOURCES
        }
        for work, others in taken[PEER].items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=0, help="of each size (0: 600,000 of 1 KiB, 3 million of 100 B)")
    parser.add_argument("--value-bytes", type=int, nargs="+", default=[100, 1024])
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=float, default=6, help="seconds in which each query is run before it counts")
    parser.add_argument("--work", nargs="+", default=WORK, choices=WORK)
    parser.add_argument("--settings", nargs="*", default=[], help="of Spark, for both, as KEY=VALUE")
    parser.add_argument("--append", action="store_true", help="add the rounds to those of the file")
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the figures go")
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=2, metavar=("SOURCE", "TOPIC"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        source, topic = arguments.measure
        print(json.dumps(measure(source, arguments, topic)))
        return
    fetch_jars()
    given = arguments.records
    known = json.loads(arguments.json.read_text()) if arguments.append and arguments.json.exists() else {}
    figures, loads = dict(known.get("figures", {})), list(known.get("about", {}).get("loads", []))
    with own_broker() as (bootstrap, _), tempfile.TemporaryDirectory() as directory:
        arguments.bootstrap = bootstrap
        for value_bytes in arguments.value_bytes:
            arguments.records = given or (600_000 if value_bytes >= 1000 else 3_000_000)
            topic, size = f"lake-query-{value_bytes}", f"{value_bytes} B"
            written = fill(bootstrap, topic, 0, arguments.records, value_bytes, arguments.partitions)
            writer = write_table(bootstrap, topic, Path(directory, topic), written)
            fill(bootstrap, topic, arguments.records, arguments.records // 100, value_bytes, arguments.partitions)
            taken: Taken = figures.get(size, {}).get("taken", {})
            for _ in range(arguments.rounds):
                load = os.getloadavg()[0]
                take(arguments, topic, taken)
                loads.append([round(load, 1), round(os.getloadavg()[0], 1)])
                compared_to = compared_all(taken, arguments.records)
                figures[size] = {"records": arguments.records, "writer": writer, **compared_to, "taken": taken}
                about = {"cores": psutil.cpu_count(), "warm_s": arguments.warm, "loads": loads}
                about["pyspark"] = metadata.version("pyspark")
                text = json.dumps({"about": about, "figures": figures}, indent=1)
                arguments.json.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
