"""Operations: percentiles of each service's durations in windows of 10 s, and alerts that do not flap.

    site.metrics ─▶ in time, each once ─▶ percentiles of a window ─▶ alerts ─▶ operations.windows
                                                                                 │
                                                            operations_page.py ◀─┘  a live page

A record of `operations.windows` has the service as its key and one finished window as its value:

    {"service": "search", "window": "2026-01-05T08:02:30Z", "requests": 41, "errors": 2, "p50": 361.0, "p95": 799.0,
     "p99": 802.5, "state": "alert", "change": "raised"}

`change` is null unless the state is another than in the window before. An alert is raised when p95 was above `HIGH_MS`
for `RAISE_AFTER` windows one after the other, and cleared when it was below `LOW_MS` for `CLEAR_AFTER`. Between the two
levels nothing changes, so a service at the edge alerts once.

Guarantees
    Each window of a service is in the topic once, after a kill of the driver, a task or the broker, too: the sink finds
    what an earlier run of a batch has written.
    Percentiles are exact (Spark's `percentile`; state grows with the number of different durations in a window). With
    very many values, use `approx_percentile`.
    Windows of a service come in order. A window without requests is not written, and interrupts no alert.
    A window is finished `WATERMARK_MS` of the stream's time after its end. Events that arrive later than `LATE_MAX_MS`
    do not count.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headrace.pipelines.events import PER_BATCH, each_once, read_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TOPICS: Final = ("site.metrics",)
OUTPUT: Final = "operations.windows"
FIELDS: Final = "server STRING, service STRING, duration_ms LONG, is_error BOOLEAN"
WINDOW: Final = "10 seconds"
HIGH_MS, LOW_MS = 200.0, 130.0
RAISE_AFTER, CLEAR_AFTER = 2, 3


def pipeline(spark: "SparkSession", bootstrap: str, *, per_batch: int = PER_BATCH) -> "DataStreamWriter":
    """The stream, ready to start once it has a checkpoint and a trigger."""
    metrics = each_once(read_events(spark, bootstrap, TOPICS, FIELDS, per_batch=per_batch))
    watched = with_alerts(percentiles(metrics, WINDOW))
    value = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
    records = watched.select(F.col("service").alias("key"), value.alias("value"))
    sink = records.writeStream.format("headrace").outputMode("append").queryName("operations")
    return sink.option("kafka.bootstrap.servers", bootstrap).option("topic", OUTPUT)


def percentiles(requests: "DataFrame", window: str) -> "DataFrame":
    """One row for each window and service: `window` (its start), requests, errors, p50, p95, p99.

    `requests` has time, service, duration_ms and is_error, and may be a stream or a batch.
    """
    in_windows = requests.groupBy(F.window("time", window), "service")
    counted = in_windows.agg(
        F.count("*").alias("requests"),
        F.count_if("is_error").alias("errors"),
        F.percentile("duration_ms", [0.5, 0.95, 0.99]).alias("p"),
    )
    each = [F.col("p")[at].alias(name) for at, name in enumerate(("p50", "p95", "p99"))]
    return counted.select("service", F.col("window.start").alias("window"), "requests", "errors", *each)


def with_alerts(windows: "DataFrame") -> "DataFrame":
    """The windows with `state` and `change`."""
    schema = "service STRING, window TIMESTAMP, requests LONG, errors LONG, p50 DOUBLE, p95 DOUBLE, p99 DOUBLE"
    watched = f"{schema}, state STRING, change STRING"
    return windows.groupBy("service").transformWithState(_Alerts(), watched, "Append", "None")


def late_airport_hours(flights: "DataFrame") -> "DataFrame":
    """The hours of an airport in which at least 20 flights left, and a twentieth of them two hours late."""
    delays = F.col("dep_delay").alias("duration_ms")  # minutes, as it happens
    requests = flights.select("time", F.col("origin").alias("service"), delays, F.isnull("departed").alias("is_error"))
    return percentiles(requests, "1 hour").where("requests - errors >= 20 AND p95 > 120")


def cancelled_airport_days(flights: "DataFrame") -> "DataFrame":
    """The days of an airport on which more than 30 % of its flights were cancelled."""
    days = flights.groupBy("origin", "date").agg(F.avg(F.isnull("departed").cast("int")).alias("cancelled"))
    return days.where("cancelled > 0.3")


class Alert(NamedTuple):
    """The state of one service: how many windows in a row were past the level that would change it."""

    is_raised: bool = False
    streak: int = 0

    def after(self, p95: float) -> "Alert":
        """The state after one more window."""
        is_past = p95 < LOW_MS if self.is_raised else p95 > HIGH_MS
        streak = self.streak + 1 if is_past else 0
        if streak == (CLEAR_AFTER if self.is_raised else RAISE_AFTER):
            return Alert(not self.is_raised)
        return Alert(self.is_raised, streak)

    def change_from(self, before: "Alert") -> str | None:
        if self.is_raised == before.is_raised:
            return None
        return "raised" if self.is_raised else "cleared"


class _Alerts(StatefulProcessor):
    """Keeps an `Alert` for each service."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("alert", "is_raised BOOLEAN, streak INT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        stored = self._state.get()
        alert = Alert(*stored) if stored is not None else Alert()
        for row in sorted(rows, key=lambda each: each.window):
            before, alert = alert, alert.after(row.p95)
            state = "alert" if alert.is_raised else "ok"
            yield Row(**row.asDict(), state=state, change=alert.change_from(before))
        self._state.update(tuple(alert))

    def close(self) -> None:
        """Nothing is open."""
