"""Measures how soon `security` finds abuse: from the arrival of the event that reaches a limit to its verdict's record.

    python benchmarks/spark/verdicts.py [--rate 2000] [--seconds 180]

Starts a broker and the pipeline, and sends a simulated site's events at their own pace, from a full minute on, because
limits are for each minute. Plain Python knows when each limit was reached. Site, broker and Spark share this machine.
Writes `verdicts.json` beside this file.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path

from batch_read import own_broker

RESULTS = Path(__file__).with_name("verdicts.json")
WARM_UP_S = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=2000)
    parser.add_argument("--seconds", type=int, default=180)
    arguments = parser.parse_args()
    from headrace.pipelines.compare import milliseconds
    from headrace.pipelines.plain.security import verdicts
    from headrace.pipelines.running import STATE_STORE, PipelineEnvironment, start
    from headrace.pipelines.security import VERDICTS
    from headrace.pipelines.site import Site
    from headrace.pipelines.topics import create_topics, produce, records_of
    from headrace.spark.session import session

    load_before = os.getloadavg()[0]
    with own_broker() as (bootstrap, _), tempfile.TemporaryDirectory() as scratch:
        create_topics(bootstrap)
        spark = session("verdicts", master="local[2,4]", settings=STATE_STORE)
        query = start(spark, "security", PipelineEnvironment(bootstrap, Path(scratch)))
        warm = datetime.now(UTC) + timedelta(seconds=WARM_UP_S)
        start_at = warm.replace(second=0, microsecond=0) + timedelta(minutes=1)
        site = Site(seconds=arguments.seconds, rate=arguments.rate, start=start_at)
        with ThreadPoolExecutor() as sender:
            sending = sender.submit(produce, bootstrap, site.events(), as_they_come=True)
            expected = {each[:3]: each.reached_ms for each in verdicts(site.events())}
            sending.result()
        if not expected:
            raise SystemExit("nobody reaches a limit in so short a time: give more --seconds")
        found: dict[tuple[str, str, int], int] = {}
        while len(found) < len(expected):
            time.sleep(1)
            for record in records_of(bootstrap, VERDICTS):
                value = json.loads(record.value)
                found[value["rule"], value["subject"], milliseconds(value["minute"])] = record.timestamp_ms
        query.stop()
        batches = [each.batchDuration for each in query.recentProgress if each.numInputRows]
        spark.stop()
    delays_ms = sorted(found[about] - reached_ms for about, reached_ms in expected.items())
    figures = {
        "verdicts": len(delays_ms),
        "median_ms": round(statistics.median(delays_ms)),
        "longest_ms": delays_ms[-1],
        "batch_median_ms": round(statistics.median(batches)),
        "site": f"{arguments.rate} events/s for {arguments.seconds} s",
        "cores": os.cpu_count(),
        "load_before_and_after": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "pyspark": metadata.version("pyspark"),
    }
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
