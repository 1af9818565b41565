"""The flights of the demo in a topic, read as columns: real data for the pipelines' functions, as a batch.

origin, tailnum    the airport, and the aircraft's number
date               the local day of the schedule
time               the scheduled hour, UTC: the record's timestamp
departed           the local time of the departure, on `date`; null if it was cancelled
dep_delay          minutes; null if it was cancelled
"""

from array import array
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from headrace.client.operations.admin import Admin, NewTopic
from headrace.client.producer.producer import Producer
from headrace.demo.flights import PARTITIONS, FlightEvent, read_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC: Final = "flights"
FIELDS: Final = "origin STRING, tailnum STRING, year INT, month INT, day INT, dep_time INT, dep_delay DOUBLE"
_CHUNK: Final = 20_000


def produce_flights(bootstrap: str) -> None:
    """Make the topic and send all flights."""
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, configs={"retention.ms": "-1"})])
    with Producer(bootstrap, compression_type="lz4") as producer:
        for chunk in _chunks(read_events()):
            producer.send_columns(
                TOPIC,
                keys=[event.key for event in chunk],
                values=[event.value for event in chunk],
                timestamps_ms=array("q", (event.timestamp_ms for event in chunk)),
            )


def _chunks(events: Iterator[FlightEvent]) -> Iterator[list[FlightEvent]]:
    while chunk := list(islice(events, _CHUNK)):
        yield chunk


def read_flights(spark: "SparkSession", bootstrap: str) -> "DataFrame":
    """All flights of the topic."""
    source = spark.read.format("headrace").option("kafka.bootstrap.servers", bootstrap)
    records = source.options(subscribe=TOPIC, columns="value,timestamp").load()
    value = F.from_json(F.col("value").cast("string"), FIELDS).alias("value")
    flights = records.select(F.col("timestamp").alias("time"), value).select("time", "value.*")
    date = F.make_date("year", "month", "day")
    minutes = F.floor(F.col("dep_time") / 100) * 60 + F.col("dep_time") % 100  # 2400 is midnight
    departed = date.cast("timestamp") + F.make_dt_interval(mins=minutes.cast("int"))
    return flights.select("origin", "tailnum", "time", "dep_delay", date.alias("date"), departed.alias("departed"))
