"""Times batch reads of one topic through our source and through Spark's own Kafka connector, side by side.

    python benchmarks/spark/batch_read.py                          # starts a headrace broker and fills it
    python benchmarks/spark/batch_read.py --bootstrap HOST:PORT    # any Kafka broker instead

Each source has a Spark session of its own; sources take turns for `--rounds` rounds, and medians are compared, so that
a noisy machine is noisy for both. Prints one JSON document; `ratio` is ours over the connector's in rows per second.
The connector's jars are fetched once with Maven (`connector.pom.xml`).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from pathlib import Path

HERE = Path(__file__).parent
JARS = Path(os.environ.get("HEADRACE_PEERS_CACHE", Path.home() / ".cache" / "headrace-peers")) / "spark-connector"
SOURCES = ("kafka", "headrace")
REPEATS = 3


def fill(bootstrap: str, topic: str, records: int, value_bytes: int, partitions: int) -> None:
    """Make a topic with `records` random values and 16-byte keys; one that is there already is taken as it is."""
    from headrace.client.admin import Admin, NewTopic
    from headrace.client.producer import Producer

    with Admin(bootstrap) as admin:
        if topic in {info.name for info in admin.list_topics()}:
            return
        admin.create_topics([NewTopic(topic, partitions)])
    noise = os.urandom(1 << 20).hex().encode()
    chunk = 10_000
    values = [noise[at : at + value_bytes] for at in range(0, chunk * 100, 100)]
    with Producer(bootstrap) as producer:
        for start in range(0, records, chunk):
            keys = [b"%016d" % n for n in range(start, start + chunk)]
            producer.send_columns(topic, keys, values, partition=start // chunk % partitions)
        producer.flush()


def measure(source: str, arguments: argparse.Namespace, topic: str) -> dict[str, float]:
    """Seconds of a count, a read of all columns into nothing, and a copy to Parquet; in this process's own session."""
    from headrace.spark.session import session

    settings = {"spark.driver.memory": "2g"}
    if source == "kafka":
        settings["spark.jars"] = ",".join(map(str, sorted(JARS.glob("*.jar"))))
    spark = session("batch read", settings=settings)
    options = {"kafka.bootstrap.servers": arguments.bootstrap, "subscribe": topic}

    def rows():
        return spark.read.format(source).options(**options).load()

    with tempfile.TemporaryDirectory() as scratch:
        work = {
            "noop": lambda: rows().write.format("noop").mode("overwrite").save(),
            "count": lambda: rows().count(),
            "parquet": lambda: rows().write.mode("overwrite").parquet(f"{scratch}/copy"),
        }
        for run in (*work.values(), *work.values()):  # the JVM compiles, Python workers start
            run()
        seconds = {name: statistics.median(timed(run) for _ in range(REPEATS)) for name, run in work.items()}
    spark.stop()
    return seconds


def timed(run: Callable[[], object]) -> float:
    """The seconds that a call takes."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def compare(arguments: argparse.Namespace, topic: str, value_bytes: int) -> dict[str, object]:
    """Alternate the sources and compare the medians of each kind of work."""
    taken: dict[str, list[dict[str, float]]] = {source: [] for source in SOURCES}
    for _ in range(arguments.rounds):
        for source in SOURCES:
            command = [sys.executable, __file__, "--bootstrap", arguments.bootstrap, "--measure", source, topic]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(done.stderr[-3000:])
            taken[source].append(json.loads(done.stdout.splitlines()[-1]))
    result: dict[str, object] = {"value_bytes": value_bytes, "records": arguments.records}
    for work in taken["kafka"][0]:
        medians = {source: statistics.median(one[work] for one in runs) for source, runs in taken.items()}
        result[work] = {
            **{f"{source}_rows_per_s": round(arguments.records / seconds) for source, seconds in medians.items()},
            "ratio": round(medians["kafka"] / medians["headrace"], 2),
        }
    return result


def fetch_jars() -> None:
    """Bring the connector's jars with Maven, once."""
    if not list(JARS.glob("spark-sql-kafka*.jar")):
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={JARS}"]
        subprocess.run(["mvn", "-q", "-B", "-f", str(HERE / "connector.pom.xml"), *goal], check=True)


@contextmanager
def own_broker():
    """A headrace broker with a directory of its own; its address."""
    from headrace.demo.server import running_broker

    with (
        tempfile.TemporaryDirectory() as directory,
        running_broker(Path(directory) / "data", Path(directory) / "log") as bootstrap,
    ):
        yield bootstrap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap")
    parser.add_argument("--records", type=int, default=600_000)
    parser.add_argument("--value-bytes", type=int, nargs="+", default=[100, 1024])
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", nargs=2, metavar=("SOURCE", "TOPIC"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        source, topic = arguments.measure
        print(json.dumps(measure(source, arguments, topic)))
        return
    fetch_jars()
    with nullcontext(arguments.bootstrap) if arguments.bootstrap else own_broker() as bootstrap:
        arguments.bootstrap = bootstrap
        results = []
        for value_bytes in arguments.value_bytes:
            topic = f"batch-read-{value_bytes}-{arguments.records}"
            fill(bootstrap, topic, arguments.records, value_bytes, arguments.partitions)
            results.append(compare(arguments, topic, value_bytes))
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
