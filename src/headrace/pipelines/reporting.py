"""Reporting: each hour, what is new goes into lake tables, and SQL over the tables makes the reports.

    site.members ──┐
    site.views ────┤  load: records and offsets       DIRECTORY/site.views, …   SQL    DIRECTORY/activity
    site.searches ─┼▶ in one commit of each table  ─▶                          ─────▶  DIRECTORY/top_items
    site.clicks ───┘

The tables are Delta tables of `headrace load`, a column for each field: DuckDB, Trino and others read them as well. A
report is a Delta table too. Each hour writes it anew in one commit, so its older versions are the reports of before.

    activity    by hour and country, and of all countries: members, items shown, clicks, and clicks for 100 shown
    top_items   by hour and country, the three items that were clicked most

Guarantees
    Each record is in its table once, after a kill of the driver, a task or the broker, too.
    A report has all events that are in the tables, each `id` once, in the hour in which it happened, however late it
    came. It is a function of the tables: made again, it has the same rows. Readers see the old one or the new one.
    Those who are no members, such as crawlers, are in no report.
    A re-run from a point in time (`since`) loads what arrived from then on into tables of its own. Its reports have the
    same rows for all hours from then on. The topics must still have these records, and all members.
    Each hour the reports read the whole tables, a few columns of them: that is what late events cost.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import StructType

from headrace.pipelines.events import not_ahead, with_time
from headrace.spark.load.load import LoadJob, run_load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MEMBERS: Final = "site.members"
TABLES: Final[Mapping[str, str]] = {
    MEMBERS: "id STRING, time_ms LONG, member STRING, country STRING",
    "site.views": "id STRING, time_ms LONG, member STRING, items ARRAY<STRING>",
    "site.searches": "id STRING, time_ms LONG, member STRING, items ARRAY<STRING>",
    "site.clicks": "id STRING, time_ms LONG, member STRING, item STRING",
}
"""The fields that are columns."""
COUNTRIES: Final = "SELECT member, max_by(country, time) AS country FROM members GROUP BY member"
"""One row for each member: what the newest event says."""

REPORTS: Final[Mapping[str, str]] = {
    "activity": """
        WITH happened AS (
            SELECT time, member, size(items) AS shown, 0 AS clicked FROM views
            UNION ALL SELECT time, member, size(items), 0 FROM searches
            UNION ALL SELECT time, member, 0, 1 FROM clicks
        )
        SELECT date_trunc('HOUR', time) AS hour, coalesce(country, 'all') AS country,
               count(DISTINCT member) AS members, sum(shown) AS shown, sum(clicked) AS clicked,
               round(try_divide(100 * sum(clicked), sum(shown)), 1) AS clicked_of_100
        FROM happened JOIN countries USING (member)
        GROUP BY GROUPING SETS ((date_trunc('HOUR', time), country), (date_trunc('HOUR', time)))
        ORDER BY hour, country
    """,
    "top_items": """
        WITH counted AS (
            SELECT date_trunc('HOUR', time) AS hour, country, item, count(*) AS clicked
            FROM clicks JOIN countries USING (member)
            GROUP BY ALL
        ), ranked AS (
            SELECT *, row_number() OVER (PARTITION BY hour, country ORDER BY clicked DESC, item) AS place FROM counted
        )
        SELECT hour, country, place, item, clicked FROM ranked WHERE place <= 3 ORDER BY hour, country, place
    """,
}


def run_hour(spark: "SparkSession", bootstrap: str, directory: Path, *, since: datetime | None = None) -> None:
    """Load what is new into the tables in `directory`, and make the reports. Raises the errors of a load.

    `since`, a time with a zone, counts where a table does not exist yet: it begins with what arrived at that time.
    """
    for topic in TABLES:
        load(spark, bootstrap, directory / topic, topic, None if topic == MEMBERS else since)
    for topic in TABLES:
        read_events(spark, directory / topic, topic).createOrReplaceTempView(topic.removeprefix("site."))
    spark.sql(COUNTRIES).createOrReplaceTempView("countries")
    for name, query in REPORTS.items():
        write_deltalake(directory / name, spark.sql(query).toArrow(), mode="overwrite")


def load(spark: "SparkSession", bootstrap: str, table: Path, topic: str, since: datetime | None) -> None:
    """Append the topic's new records to its table, exactly once. A new field becomes a column, null in older rows."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    if since is not None:
        options["startingTimestamp"] = str(int(since.timestamp() * 1000))
        options["startingOffsetsByTimestampStrategy"] = "latest"
    master = spark.sparkContext.master
    run_load(LoadJob(table, options, value_json=TABLES[topic], adds_columns=True, master=master))


def read_events(spark: "SparkSession", table: Path, topic: str) -> "DataFrame":
    """The events of a table, each once: the fields, and `time`."""
    rows = read_table(spark, table) if DeltaTable.is_deltatable(str(table)) else nothing(spark, topic)
    events = with_time(rows.withColumnRenamed("timestamp", "arrived"))
    return not_ahead(events).dropDuplicates(["id"])


def read_table(spark: "SparkSession", table: Path) -> "DataFrame":
    """The newest version of a Delta table, without a jar: the Parquet files that its log names, with its columns."""
    newest = DeltaTable(table)
    schema = StructType.fromJson(json.loads(newest.schema().to_json()))
    return spark.read.schema(schema).parquet(*newest.file_uris())


def nothing(spark: "SparkSession", topic: str) -> "DataFrame":
    """The rows of a topic that has no records yet."""
    return spark.createDataFrame([], f"timestamp TIMESTAMP, {TABLES[topic]}")
