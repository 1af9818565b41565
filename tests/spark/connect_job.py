"""A streaming query and a load through Spark Connect, in a process of its own: arguments are a broker, a topic, a
checkpoint and a table.

The query's progress is committed to the groups `connect-watched` and `connect-committed`.
"""

import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.client.core.cluster import Cluster
from headrace.client.operations.group_admin import GroupAdmin
from headrace.spark.java import find_java_home
from headrace.spark.load.load import LoadJob, run_load
from headrace.spark.progress import commit_progress, watch_progress
from headrace.spark.whole_topic import topic as topic_and_table

WITHIN_SECONDS = 60


def main(bootstrap: str, topic: str, checkpoint: str, table: str) -> None:
    """Run the query, and wait for the listener."""
    os.environ["JAVA_HOME"] = str(find_java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.remote("local[1]").getOrCreate()
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    watch_progress(spark, {**options, "kafka.group.id": "connect-watched"})
    rows = spark.readStream.format("headrace").options(**options).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    try:
        commit_progress(query)
    except ValueError as refused:
        assert "OPTIONS of the source" in str(refused)
    assert commit_progress(query, {**options, "kafka.group.id": "connect-committed"})
    deadline = time.monotonic() + WITHIN_SECONDS
    with Cluster(bootstrap) as cluster:
        while not GroupAdmin(cluster).committed("connect-watched") and time.monotonic() < deadline:
            time.sleep(0.1)
    reading = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    job = LoadJob(Path(table), reading, value_json="n LONG", partition_by="day")
    print(run_load(job, spark=spark).rows)
    whole = topic_and_table(spark, topic, {"kafka.bootstrap.servers": bootstrap}, table=table)
    print(whole.count())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
