"""Measures the modes of the Spark sink beside each other: plain, idempotent and transactional writes.

    python benchmarks/spark/sink.py                          # starts a headrace broker
    python benchmarks/spark/sink.py --bootstrap HOST:PORT    # any Kafka broker instead

One Spark session writes the same rows in each mode, one mode after the other, in rounds; the order rotates from round
to round. Each is compared with `plain` in the same round, so that other load affects all of them. Prints the medians of
the rounds' ratios and their spread: of a large batch, and of one of few rows, which costs what a batch costs at least.
CPU seconds are those of Spark's Java and Python processes. Writes `sink.json` beside this file (or to --json PATH).
"""

import argparse
import json
import os
import statistics
import time
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path

from batch_read import compared, own_broker, timed

RESULTS = Path(__file__).with_name("sink.json")
MODES = {"plain": {"idempotent": "false"}, "idempotent": {}, "transactional": {"transactional": "true"}}
PLAIN = "plain"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap")
    parser.add_argument("--rows", type=int, nargs="+", default=[600_000, 100])
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the figures go")
    arguments = parser.parse_args()
    load_before = os.getloadavg()[0]
    with nullcontext((arguments.bootstrap, "")) if arguments.bootstrap else own_broker() as (bootstrap, _):
        figures = {f"{rows} rows": compare(bootstrap, rows, arguments) for rows in arguments.rows}
    about = {
        "rounds": arguments.rounds,
        "value_bytes": arguments.value_bytes,
        "tasks": 2,
        "cores": os.cpu_count(),
        "load_before_and_after": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "pyspark": metadata.version("pyspark"),
    }
    text = json.dumps({"about": about, "figures": figures}, indent=1)
    arguments.json.write_text(text + "\n")
    print(text)


def compare(bootstrap: str, rows: int, arguments: argparse.Namespace) -> dict[str, object]:
    """The seconds of each mode in each round, and what follows from them."""
    from headrace.client.operations.admin import Admin, NewTopic
    from headrace.spark.session import session

    topic = f"sink-{time.time_ns()}"
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(topic, arguments.partitions)])
    spark = session("sink", master="local[2]", settings={"spark.driver.memory": "2g"})
    value = f"rpad(CAST(id AS STRING), {arguments.value_bytes}, 'x') AS value"
    frame = spark.range(0, rows, numPartitions=2).selectExpr("CAST(id AS STRING) AS key", value)
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}

    def write(mode: str) -> tuple[float, float]:
        return timed(frame.write.format("headrace").options(**options, **MODES[mode]).mode("append").save)

    for mode in MODES:  # the JVM compiles, Python workers start, internal topics are created
        write(mode)
    taken: dict[str, list[tuple[float, float]]] = {mode: [] for mode in MODES}
    for number in range(arguments.rounds):
        order = list(MODES)
        for mode in order[number % 3 :] + order[: number % 3]:
            taken[mode].append(write(mode))
    found: dict[str, object] = {}
    for mode, runs in taken.items():
        median_ms = round(statistics.median(seconds for seconds, _ in runs) * 1000)
        found[mode] = {"median_ms": median_ms, **compared(taken[PLAIN], runs, rows)}
    return found


if __name__ == "__main__":
    main()
