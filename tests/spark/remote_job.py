"""Counts a topic in a cluster of Spark's with one worker, in a process of its own: arguments are a broker and a topic.

Prints the number of records, the driver's address, and the Python of the workers, as JSON.
"""

import json
import os
import sys

from headrace.spark.session import session


def main(bootstrap: str, topic: str, master: str | None) -> None:
    """Run the job and print what it found."""
    spark = session("remote job", master=master, settings={"spark.ui.enabled": "false"})
    try:
        frame = spark.read.format("headrace").options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
        found = {
            "records": frame.load().count(),
            "master": spark.sparkContext.master,
            "host": spark.conf.get("spark.driver.host"),
            "python": spark.sparkContext.parallelize([0], 1).map(lambda _: os.environ.get("PYSPARK_PYTHON")).first(),
        }
        print(json.dumps(found))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)
