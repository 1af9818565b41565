"""Measures batch reads of a topic by headrace's source, its file source and Spark's Kafka connector, in turns.

    python benchmarks/spark/batch_read.py                          # starts a headrace broker and fills it
    python benchmarks/spark/batch_read.py --bootstrap HOST:PORT    # any Kafka broker instead; no files then

Each source has its own Spark session in its own process. A round runs each source once and compares it with the
connector in the same round, so that other load affects all of them. Prints the medians of the rounds' ratios and their
spread. `value` reads one column (`columns=value`). `files` reads the same records from the segment files, without the
broker. CPU seconds are those of Spark's Java and Python processes; clients and broker share the cores. Writes
`batch_read.json` beside this file (or to --json PATH). Maven fetches the connector's jars once (`connector.pom.xml`).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager, nullcontext
from importlib import metadata
from pathlib import Path

import psutil

HERE = Path(__file__).parent
JARS = Path(os.environ.get("HEADRACE_PEERS_CACHE", Path.home() / ".cache" / "headrace-peers")) / "spark-connector"
RESULTS = HERE / "batch_read.json"
PEER = "kafka"
SOURCES = (PEER, "headrace", "value", "files")
SEGMENT_BYTES = 64 << 20
REPEATS = 3


def fill(bootstrap: str, topic: str, records: int, value_bytes: int, partitions: int) -> None:
    """Create a topic with `records` random values and 16-byte keys, unless it exists."""
    from headrace.client.operations.admin import Admin, NewTopic
    from headrace.client.producer.producer import Producer

    with Admin(bootstrap) as admin:
        if topic in {info.name for info in admin.list_topics()}:
            return
        admin.create_topics([NewTopic(topic, partitions, configs={"segment.bytes": str(SEGMENT_BYTES)})])
    noise = os.urandom(1 << 20).hex().encode()
    chunk = 10_000
    values = [noise[at : at + value_bytes] for at in range(0, chunk * 100, 100)]
    with Producer(bootstrap) as producer:
        for start in range(0, records, chunk):
            keys = [b"%016d" % n for n in range(start, start + chunk)]
            producer.send_columns(topic, keys, values, partition=start // chunk % partitions)
        producer.flush()


def measure(source: str, arguments: argparse.Namespace, topic: str) -> dict[str, list[float]]:
    """The median seconds and CPU seconds of each case, in the session of this process."""
    from headrace.spark.session import session

    settings = {"spark.driver.memory": "2g"}
    options = {"kafka.bootstrap.servers": arguments.bootstrap, "subscribe": topic}
    if source == PEER:
        settings["spark.jars"] = ",".join(map(str, sorted(JARS.glob("*.jar"))))
    elif source == "value":
        options["columns"] = "value"
    elif source == "files":
        options = {"path": arguments.data, "subscribe": topic, "segments": "all"}
    spark = session("batch read", master="local[2]", settings=settings)

    def rows():
        return spark.read.format(PEER if source == PEER else "headrace").options(**options).load()

    with tempfile.TemporaryDirectory() as scratch:
        work = {
            "noop": lambda: rows().write.format("noop").mode("overwrite").save(),
            "count": lambda: rows().count(),
            "parquet": lambda: rows().write.mode("overwrite").parquet(f"{scratch}/copy"),
        }
        chosen = {name: work[name] for name in arguments.work}
        for run in (*chosen.values(), *chosen.values()):  # the JVM compiles, Python workers start
            run()
        assert rows().count() == arguments.records
        taken = {name: [timed(run) for _ in range(REPEATS)] for name, run in chosen.items()}
    spark.stop()
    return {name: [statistics.median(each) for each in zip(*runs, strict=True)] for name, runs in taken.items()}


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """The seconds of a call, and the CPU seconds of Spark's processes."""
    cpu, started = cpu_seconds(), time.perf_counter()  # in this order: to look at the processes takes some ms
    run()
    return time.perf_counter() - started, cpu_seconds() - cpu


def cpu_seconds() -> float:
    """The CPU seconds of all child processes: Spark's Java and Python."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:  # gone, or going
            continue
    return total


def compare(arguments: argparse.Namespace, topic: str) -> dict[str, object]:
    """Run the sources in turns, and compare each with the connector in its round."""
    sources = [source for source in arguments.sources if arguments.data or source != "files"]
    taken: dict[str, list[dict[str, list[float]]]] = {source: [] for source in sources}
    for _ in range(arguments.rounds):
        for source in sources:
            command = [sys.executable, __file__, "--bootstrap", arguments.bootstrap, "--data", arguments.data]
            command += ["--records", str(arguments.records), "--work", *arguments.work, "--measure", source, topic]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(done.stderr[-3000:])
            taken[source].append(json.loads(done.stdout.splitlines()[-1]))
    result: dict[str, object] = {"records": arguments.records, "partitions": arguments.partitions}
    for work in arguments.work:
        result[work] = {
            source: compared([one[work] for one in taken[PEER]], [one[work] for one in runs], arguments.records)
            for source, runs in taken.items()
        }
    return result


Timed = Sequence[float]
"""Seconds and CPU seconds of one run."""


def compared(others: Sequence[Timed], runs: Sequence[Timed], rows: int) -> dict[str, object]:
    """The figures of runs over so many rows, beside another's runs in the same rounds."""
    ratios = sorted(other[0] / one[0] for other, one in zip(others, runs, strict=True))
    return {
        "rows_per_s": round(rows / statistics.median(one[0] for one in runs)),
        "ratio": round(statistics.median(ratios), 2),
        "ratio_spread": [round(ratios[0], 2), round(ratios[-1], 2)],
        "cpu_us_per_row": round(statistics.median(one[1] for one in runs) / rows * 1e6, 2),
    }


def fetch_jars() -> None:
    """Fetch the connector's jars with Maven, once."""
    if not list(JARS.glob("spark-sql-kafka*.jar")):
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={JARS}"]
        subprocess.run(["mvn", "-q", "-B", "-f", str(HERE / "connector.pom.xml"), *goal], check=True)


@contextmanager
def own_broker():
    """A headrace broker with its own directory; yields its address and its data directory."""
    from headrace.demo.server import running_broker

    with (
        tempfile.TemporaryDirectory() as directory,
        running_broker(Path(directory) / "data", Path(directory) / "log") as bootstrap,
    ):
        yield bootstrap, f"{directory}/data"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap")
    parser.add_argument("--records", type=int, default=600_000)
    parser.add_argument("--value-bytes", type=int, nargs="+", default=[100, 1024])
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", nargs="+", default=["noop"], choices=["noop", "count", "parquet"])
    parser.add_argument("--sources", nargs="+", default=SOURCES, choices=SOURCES, help="the connector must be one")
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the figures go")
    parser.add_argument("--data", default="", help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=2, metavar=("SOURCE", "TOPIC"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        source, topic = arguments.measure
        print(json.dumps(measure(source, arguments, topic)))
        return
    fetch_jars()
    load_before = os.getloadavg()[0]
    with nullcontext((arguments.bootstrap, "")) if arguments.bootstrap else own_broker() as (bootstrap, data):
        arguments.bootstrap, arguments.data = bootstrap, data
        figures = {}
        for value_bytes in arguments.value_bytes:
            topic = f"batch-read-{value_bytes}-{arguments.records}"
            fill(bootstrap, topic, arguments.records, value_bytes, arguments.partitions)
            figures[f"{value_bytes} B"] = compare(arguments, topic)
    about = {
        "rounds": arguments.rounds,
        "cores": os.cpu_count(),
        "load_before_and_after": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "pyspark": metadata.version("pyspark"),
    }
    text = json.dumps({"about": about, "figures": figures}, indent=1)
    arguments.json.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
