"""Relevance: how often each item is shown and clicked, and a ranking by click-through rate of late.

    site.views, site.searches ─▶ items shown ─┐
    site.clicks ───────────────▶ clicks ──────┴▶ counts by item and minute ─▶ rate with decay ─┬▶ relevance.windows
                                                                                              └▶ relevance.ranking

`relevance.windows` has an item's counts in each finished minute. `relevance.ranking` is compacted and has its score:

    {"item": "item7", "window": "2026-01-05T08:02:00Z", "shown": 31, "clicked": 9}
    {"item": "item7", "score": 0.2874, "shown": 88.4, "clicked": 26.1}

Counts lose half of their weight in `HALF_LIFE_MS`. The score is (clicked + 1) / (shown + 10), so that an item with few
counts is ranked neither first nor last by chance.

Guarantees
    Each window of an item is in its topic once, and the ranking's last entry of an item is of its last finished window,
    after a kill of the driver, a task or the broker, too.
    Events that come twice count once, late ones in the minute in which they happened. A click counts in its own minute,
    not in that of the page.
    A window is finished `WATERMARK_MS` of the stream's time after its end. Events that arrive later than `LATE_MAX_MS`
    do not count.
"""

import json
from collections.abc import Iterator
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headrace.pipelines.events import PER_BATCH, each_once, read_events
from headrace.pipelines.topics import latest_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

WINDOWS: Final = "relevance.windows"
RANKING: Final = "relevance.ranking"
TOPICS: Final = ("site.views", "site.searches", "site.clicks")
FIELDS: Final = "items ARRAY<STRING>, item STRING"
WINDOW: Final = "1 minute"
HALF_LIFE_MS: Final = 120_000
CLICKED_BEFORE, SHOWN_BEFORE = 1.0, 10.0


def pipeline(spark: "SparkSession", bootstrap: str, *, per_batch: int = PER_BATCH) -> "DataStreamWriter":
    """The stream, ready to start once it has a checkpoint and a trigger."""
    events = each_once(read_events(spark, bootstrap, TOPICS, FIELDS, per_batch=per_batch))
    windows = counts(events, WINDOW)
    records = windows.groupBy("item").transformWithState(
        _Scores(), "topic STRING, key STRING, value STRING", "Append", "None"
    )
    sink = records.writeStream.format("headrace").outputMode("append").queryName("relevance")
    return sink.option("kafka.bootstrap.servers", bootstrap)


def counts(events: "DataFrame", window: str) -> "DataFrame":
    """One row for each window and item that was shown or clicked: item, window (its start), shown, clicked."""
    is_click = F.col("topic") == "site.clicks"
    items = F.when(is_click, F.array("item")).otherwise(F.col("items"))
    happened = events.select("time", is_click.alias("is_click"), F.explode(items).alias("item")).where(
        "item IS NOT NULL"
    )
    counted = happened.groupBy(F.window("time", window), "item").agg(
        F.count_if(~F.col("is_click")).alias("shown"), F.count_if("is_click").alias("clicked")
    )
    return counted.select("item", F.col("window.start").alias("window"), "shown", "clicked")


class _Scores(StatefulProcessor):
    """The weighted counts of each item, at the start of its last window."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("counts", "window_ms LONG, shown DOUBLE, clicked DOUBLE")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        (item,) = key
        last_ms, shown, clicked = self._state.get() or (0, 0.0, 0.0)
        for row in sorted(rows, key=lambda each: each.window):
            window = row.window.astimezone(UTC)
            window_ms = int(window.timestamp() * 1000)
            weight = 0.5 ** ((window_ms - last_ms) / HALF_LIFE_MS)
            last_ms, shown, clicked = window_ms, shown * weight + row.shown, clicked * weight + row.clicked
            counted = {"window": window.strftime("%Y-%m-%dT%H:%M:%SZ"), "shown": row.shown, "clicked": row.clicked}
            yield _record(WINDOWS, item, counted)
        self._state.update((last_ms, shown, clicked))
        score = (clicked + CLICKED_BEFORE) / (shown + SHOWN_BEFORE)
        yield _record(RANKING, item, {"score": score, "shown": shown, "clicked": clicked})

    def close(self) -> None:
        """Nothing is open."""


def _record(topic: str, item: str, value: dict[str, Any]) -> Row:
    return Row(topic=topic, key=item, value=json.dumps({"item": item, **value}))


def ranking(bootstrap: str) -> list[tuple[str, float]]:
    """(item, score), the best first."""
    entries = latest_of(bootstrap, RANKING).values()
    return sorted(((entry["item"], entry["score"]) for entry in entries), key=lambda entry: (-entry[1], entry[0]))
