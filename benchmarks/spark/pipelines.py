"""Measures the five pipelines beside the same pipelines on Spark's own Kafka connector, in turns.

    python benchmarks/spark/pipelines.py [--pipelines relevance …] [--rate 2000] [--seconds 120] [--rounds 3]

Both run the code of `headrace.pipelines` over one simulated site, in one Spark session, from new checkpoints to the
end of the topics. For the connector only the name of the format is another one, in reads and writes. It has no load
job: its `reporting` reads a batch and appends Parquet, without exactly once. A round runs each pipeline once on each
side, which begins in turn, and compares them, so that other load affects both. The first round does not count.

Prints events a second, CPU of Spark's Java and Python processes for an event, and the medians of the rounds' ratios
with their spread. Writes `pipelines.json` beside this file (or to --json PATH), where the figures of pipelines that do
not run now stay. Maven fetches the connector once.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path
from unittest.mock import patch

from batch_read import JARS, PEER, compared, fetch_jars, own_broker, timed

RESULTS = Path(__file__).with_name("pipelines.json")
SIDES = ("headrace", PEER)
TASKS = 2


@contextmanager
def on_connector() -> Iterator[None]:
    """Inside, the pipelines read and write by the format `kafka`."""
    from pyspark.sql import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

    from headrace.pipelines import reporting
    from headrace.spark.load.load import shape

    def renamed(kind):
        original = kind.format
        return patch.object(kind, "format", lambda self, name: original(self, PEER if name == "headrace" else name))

    def load(spark, bootstrap, table, topic, since):
        rows = spark.read.format(PEER).options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic}).load()
        shape(rows, reporting.TABLES[topic]).write.mode("append").parquet(str(table))

    with ExitStack() as stack:
        for kind in (DataFrameReader, DataStreamReader, DataStreamWriter):
            stack.enter_context(renamed(kind))
        stack.enter_context(patch.object(reporting, "load", load))
        stack.enter_context(patch.object(reporting.DeltaTable, "is_deltatable", lambda table: True))
        stack.enter_context(patch.object(reporting, "read_table", lambda spark, table: spark.read.parquet(str(table))))
        yield


def measure(arguments: argparse.Namespace) -> dict[str, object]:
    """All rounds, in the session of this process."""
    from headrace.pipelines.running import STATE_STORE, TOPICS, PipelineEnvironment, finish
    from headrace.pipelines.topics import count_of
    from headrace.spark.session import session

    jars = ",".join(map(str, sorted(JARS.glob("*.jar"))))
    settings = {**STATE_STORE, "spark.jars": jars, "spark.driver.memory": "2g"}
    spark = session("pipelines", master=f"local[{TASKS},4]", settings=settings)
    taken: dict[str, dict[str, list[tuple[float, float]]]] = {
        name: {side: [] for side in SIDES} for name in arguments.pipelines
    }
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(arguments.rounds + 1):
            for name in arguments.pipelines:
                for side in SIDES[:: 1 if number % 2 else -1]:
                    place = PipelineEnvironment(arguments.bootstrap, Path(scratch, side, str(number)))
                    with on_connector() if side == PEER else ExitStack():
                        run = timed(lambda name=name, place=place: finish(spark, [name], place))
                    if number:
                        taken[name][side].append(run)
    spark.stop()
    found: dict[str, object] = {}
    for name, runs in taken.items():
        events = count_of(arguments.bootstrap, TOPICS[name])
        if arguments.rounds:
            figures = {side: compared(runs[PEER], runs[side], events) for side in SIDES}
            found[name] = {"events": events, "rounds": arguments.rounds, **figures}
    return found


def main() -> None:
    from headrace.pipelines.running import PIPELINES

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=2000)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pipelines", nargs="+", default=PIPELINES, choices=PIPELINES)
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the figures go")
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.bootstrap:
        print(json.dumps(measure(arguments)))
        return
    from headrace.pipelines.site import Site
    from headrace.pipelines.topics import create_topics, produce

    fetch_jars()
    load_before = os.getloadavg()[0]
    with own_broker() as (bootstrap, _):
        create_topics(bootstrap)
        produce(bootstrap, Site(seconds=arguments.seconds, rate=arguments.rate).events())
        command = [sys.executable, __file__, "--bootstrap", bootstrap, "--rounds", str(arguments.rounds)]
        command += ["--pipelines", *arguments.pipelines]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr[-3000:])
        figures = json.loads(done.stdout.splitlines()[-1])
    known = json.loads(arguments.json.read_text())["figures"] if arguments.json.exists() else {}
    about = {
        "site": f"{arguments.rate} events/s for {arguments.seconds} s",
        "tasks": TASKS,
        "cores": os.cpu_count(),
        "load_before_and_after": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "pyspark": metadata.version("pyspark"),
    }
    text = json.dumps({"about": about, "figures": {**known, **figures}}, indent=1)
    arguments.json.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
