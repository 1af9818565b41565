"""Measures queries over a topic of JSON values: its lake table and the live topic as one frame, beside Spark's Kafka
connector, in turns.

    python benchmarks/spark/lake_query.py [--value-bytes 100 1024] [--rounds 5]

First `headrace lake run --once` writes the table, which is timed: bytes of JSON a second and CPU seconds a GB. Then a
hundredth of the records again goes to the topic alone. The queries read all of it:

    group    the sum of one field by another
    range    the number and the sum of one field of the newest hundredth of the history, by time
    live     all columns of the topic's records to nowhere, without the table

Each source has its own Spark session in its own process. A round runs each source once and compares it with the
connector in the same round. Writes `lake_query.json` beside this file. Maven fetches the connector's jars once.
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
    """The median seconds and CPU seconds of each query, in the session of this process."""
    from pyspark.sql import functions as F

    from headrace.spark.session import session
    from headrace.spark.whole_topic import topic as whole

    settings = {"spark.driver.memory": "2g"}
    options = {"kafka.bootstrap.servers": arguments.bootstrap}
    if source == PEER:
        settings["spark.jars"] = ",".join(map(str, sorted(JARS.glob("*.jar"))))
    spark = session("lake query", master="local[2]", settings=settings)
    total = arguments.records + arguments.records // 100
    low, high = (FIRST_MS + arguments.records * part // 100 for part in (99, 100))
    since, until = (datetime.fromtimestamp(each / 1000, UTC) for each in (low, high))

    def rows(**times):
        if source != PEER:
            return whole(spark, topic, options, **times)
        found = spark.read.format(PEER).options(**options, subscribe=topic).load()
        found = (
            found.where((F.col("timestamp") >= F.lit(since)) & (F.col("timestamp") < F.lit(until))) if times else found
        )
        return found.select(F.from_json(F.col("value").cast("string"), FIELDS).alias("v")).select("v.*")

    def group():
        found = rows().groupBy("city").agg(F.sum("amount").alias("sum"), F.count("*").alias("count")).collect()
        assert (len(found), sum(row["count"] for row in found)) == (50, total)

    def in_range():
        (found,) = (
            rows(since=since, until=until).agg(F.count("*").alias("count"), F.sum("amount").alias("sum")).collect()
        )
        assert found["count"] == arguments.records - arguments.records * 99 // 100

    def live():
        found = spark.read.format(PEER if source == PEER else "headrace").options(**options, subscribe=topic).load()
        found.write.format("noop").mode("overwrite").save()

    work = {"group": group, "range": in_range, "live": live}
    for run in (*work.values(), *work.values()):  # the JVM compiles, Python workers start
        run()
    taken = {name: [timed(run) for _ in range(REPEATS)] for name, run in work.items()}
    spark.stop()
    return {name: [statistics.median(each) for each in zip(*runs, strict=True)] for name, runs in taken.items()}


def compare(arguments: argparse.Namespace, topic: str) -> dict[str, object]:
    """Runs the sources in turns, and compares each with the connector in its round."""
    taken: dict[str, list[dict[str, list[float]]]] = {source: [] for source in SOURCES}
    for _ in range(arguments.rounds):
        for source in SOURCES:
            command = [
                sys.executable,
                __file__,
                "--bootstrap",
                arguments.bootstrap,
                "--records",
                str(arguments.records),
            ]
            done = subprocess.run([*command, "--measure", source, topic], capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(done.stderr[-3000:])
            taken[source].append(json.loads(done.stdout.splitlines()[-1]))
    return {
        work: {
            source: compared([one[work] for one in taken[PEER]], [one[work] for one in runs], arguments.records)
            for source, runs in taken.items()
        }
        for work in ("group", "range", "live")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=0, help="of each size (0: 600,000 of 1 KiB, 3 million of 100 B)")
    parser.add_argument("--value-bytes", type=int, nargs="+", default=[100, 1024])
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=2, metavar=("SOURCE", "TOPIC"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        source, topic = arguments.measure
        print(json.dumps(measure(source, arguments, topic)))
        return
    fetch_jars()
    load_before, given = os.getloadavg()[0], arguments.records
    figures = {}
    with own_broker() as (bootstrap, _), tempfile.TemporaryDirectory() as directory:
        arguments.bootstrap = bootstrap
        for value_bytes in arguments.value_bytes:
            arguments.records = given or (600_000 if value_bytes >= 1000 else 3_000_000)
            topic = f"lake-query-{value_bytes}"
            size = fill(bootstrap, topic, 0, arguments.records, value_bytes, arguments.partitions)
            writer = write_table(bootstrap, topic, Path(directory, topic), size)
            fill(bootstrap, topic, arguments.records, arguments.records // 100, value_bytes, arguments.partitions)
            found = {"records": arguments.records, "writer": writer, **compare(arguments, topic)}
            figures[f"{value_bytes} B"] = found
    about = {
        "rounds": arguments.rounds,
        "cores": psutil.cpu_count(),
        "load_before_and_after": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "pyspark": metadata.version("pyspark"),
    }
    text = json.dumps({"about": about, "figures": figures}, indent=1)
    RESULTS.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
