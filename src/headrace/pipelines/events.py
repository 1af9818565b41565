"""Reads the site's topics as columns, and makes late and doubled events harmless.

An event whose clock is ahead (`AHEAD_MAX`) is left out as well: one alone would push the watermark past all others.
An event that arrived more than `LATE_MAX` after it happened is left out, whenever it is read: the record has both
times. So the result does not depend on how Spark cuts the stream into batches, and a run after a crash, or over the
history, gives the same. The watermark only decides how long Spark keeps state. It is `SKEW_MAX` behind that, for
partitions that are read at different speeds; what is even later, Spark drops and counts (`numRowsDroppedByWatermark`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LATE_MAX_MS: Final = 30_000
AHEAD_MAX_MS: Final = 60_000
SKEW_MAX_MS: Final = 60_000
WATERMARK_MS: Final = LATE_MAX_MS + SKEW_MAX_MS
_YEAR_2100_MS: Final = 4_102_444_800_000
PER_BATCH: Final = 200_000
"""Records of a batch at most, so that a long backlog is read in steps, all partitions alike."""


def read_events(
    spark: "SparkSession", bootstrap: str, topics: Sequence[str], fields: str, *, per_batch: int = PER_BATCH
) -> "DataFrame":
    """A stream of the topics from their beginnings: `id`, `time`, `arrived`, `topic` and the fields, a Spark schema.

    A value that is no such JSON object, or has no time of this age, is left out.
    """
    records = spark.readStream.format("headrace").option("kafka.bootstrap.servers", bootstrap)
    records = records.options(subscribe=",".join(topics), startingOffsets="earliest")
    records = records.options(maxOffsetsPerTrigger=str(per_batch), columns="value,topic,timestamp")
    return with_fields(records.load(), fields)


def with_fields(records: "DataFrame", fields: str) -> "DataFrame":
    """The columns of `read_events`, of records that may be a batch or a stream."""
    value = F.from_json(F.col("value").cast("string"), f"id STRING, time_ms LONG, {fields}")
    parsed = records.select("topic", F.col("timestamp").alias("arrived"), value.alias("value"))
    return with_time(parsed.select("topic", "arrived", "value.*"))


def with_time(events: "DataFrame") -> "DataFrame":
    """`time` instead of `time_ms`. Events without an id, or without a time of this age, are left out."""
    has_time = F.col("time_ms").between(0, _YEAR_2100_MS)  # beyond, the conversion may fail, and the query with it
    time = F.when(has_time, F.timestamp_millis("time_ms"))
    return events.withColumn("time", time).drop("time_ms").where("id IS NOT NULL AND time IS NOT NULL")


def not_ahead(events: "DataFrame") -> "DataFrame":
    """The events that had happened when they arrived, by a clock that may be a bit ahead."""
    return events.where(_late_ms() >= -AHEAD_MAX_MS)


def in_time(events: "DataFrame") -> "DataFrame":
    """The events that were not too late, and not ahead."""
    return not_ahead(events).where(_late_ms() <= LATE_MAX_MS)


def _late_ms() -> "Column":
    return F.unix_millis("arrived") - F.unix_millis("time")


def each_once(events: "DataFrame") -> "DataFrame":
    """The events in time, each `id` once. Spark keeps an id for `WATERMARK_MS` of the stream's time."""
    kept = in_time(events).withWatermark("time", f"{WATERMARK_MS} milliseconds")
    return kept.dropDuplicatesWithinWatermark(["id"])
