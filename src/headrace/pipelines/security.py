"""Security: finds crawlers, API abuse, spamming and log-in attacks, and blocks those who do it.

    site.views ────▶ crawler:  200 pages in a minute by one address              security.verdicts  each verdict
    site.searches ─▶ api:      120 searches in a minute by one member      ─┬─▶  security.blocked   compacted: the
    site.posts ────▶ spam:     the same text 10 times in a minute           │         │             rate limiter's list
    site.logins ───▶ login:    30 failures in a minute from one address    ─┘         └─▶ rate_limiter.py

A verdict has the subject (an address or a member) as its key, and the minute in which the limit was reached:

    {"rule": "login", "subject": "198.51.100.9", "minute": "2026-01-05T08:05:00Z"}

An entry of the list, by rule and subject, says until when to refuse requests: ten minutes after the last such minute.

    {"rule": "login", "subject": "198.51.100.9", "until_ms": 1767600960000}

Guarantees
    A verdict is made in the batch in which the event that reaches the limit is read, without waiting for the minute to
    end; with small batches that is a second or two after the event.
    Each verdict is in its topic once, and the list's last entry of a key is the latest one, after a kill of the driver,
    a task or the broker, too.
    Late events count for the minute in which they happened, doubled ones once. Events that arrive later than
    `LATE_MAX_MS` do not count.
    For each subject, Spark keeps the ids of a minute up to the limit, until the watermark has passed the minute.
    One who stays below the limits is not found. Minutes do not overlap: of a burst across two
    of them each half counts for itself.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.window import Window

from headrace.pipelines.events import PER_BATCH, WATERMARK_MS, in_time, read_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

VERDICTS: Final = "security.verdicts"
BLOCKED: Final = "security.blocked"
TOPICS: Final = ("site.views", "site.searches", "site.posts", "site.logins")
FIELDS: Final = "ip STRING, member STRING, author STRING, text STRING, is_ok BOOLEAN"
LIMITS: Final = {"crawler": 200, "api": 120, "spam": 10, "login": 30}
"""Events of one subject in a minute."""
MINUTE_MS: Final = 60_000
BLOCK_MS: Final = 600_000


def pipeline(spark: "SparkSession", bootstrap: str, *, per_batch: int = PER_BATCH) -> "DataStreamWriter":
    """The stream, ready to start once it has a checkpoint and a trigger."""
    events = in_time(read_events(spark, bootstrap, TOPICS, FIELDS, per_batch=per_batch))
    by_subject = actions(events.withWatermark("time", f"{WATERMARK_MS} milliseconds")).groupBy("rule", "subject")
    records = by_subject.transformWithState(_Limits(), "topic STRING, key STRING, value STRING", "Append", "EventTime")
    sink = records.writeStream.format("headrace").outputMode("append").queryName("security")
    return sink.option("kafka.bootstrap.servers", bootstrap)


def actions(events: "DataFrame") -> "DataFrame":
    """What each rule counts: rule, subject, `what` (posts with different texts count apart), id, time."""
    is_from = {topic: F.col("topic") == topic for topic in TOPICS}
    views, searches, posts, logins = (is_from[topic] for topic in TOPICS)
    rule = F.when(views, "crawler").when(searches, "api").when(posts, "spam").when(logins & ~F.col("is_ok"), "login")
    subject = F.when(views | logins, F.col("ip")).when(searches, F.col("member")).otherwise(F.col("author"))
    what = F.when(posts, F.md5("text")).otherwise("")
    counted = events.select(rule.alias("rule"), subject.alias("subject"), what.alias("what"), "id", "time")
    return counted.where("rule IS NOT NULL AND subject IS NOT NULL")


class _Limits(StatefulProcessor):
    """For one rule and subject: the ids of each minute until they reach the limit."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._minutes = handle.getMapState(
            "minutes", "minute_ms LONG, what STRING", "ids ARRAY<STRING>, is_over BOOLEAN"
        )
        self._until = handle.getValueState("until", "until_ms LONG")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        rule, subject = key
        new: dict[tuple[int, str], set[str]] = defaultdict(set)
        for row in rows:
            time_ms = int(row.time.timestamp() * 1000)
            new[time_ms - time_ms % MINUTE_MS, row.what].add(row.id)
        over = sorted(
            {minute_ms for (minute_ms, what), ids in new.items() if self._reaches(rule, minute_ms, what, ids)}
        )
        for minute_ms in over:
            minute = datetime.fromtimestamp(minute_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            yield _record(VERDICTS, subject, {"rule": rule, "subject": subject, "minute": minute})
        if over and self._is_longer(until_ms := over[-1] + MINUTE_MS + BLOCK_MS):
            entry = {"rule": rule, "subject": subject, "until_ms": until_ms}
            yield _record(BLOCKED, f"{rule} {subject}", entry)

    def _reaches(self, rule: str, minute_ms: int, what: str, ids: set[str]) -> bool:
        """Count these, and tell whether they are the ones that reach the limit."""
        place = (minute_ms, what)
        stored = self._minutes.getValue(place) if self._minutes.containsKey(place) else None
        if stored is None:
            self._handle.registerTimer(minute_ms + MINUTE_MS)
        elif stored[1]:
            return False
        else:
            ids = ids.union(stored[0])
        is_over = len(ids) >= LIMITS[rule]
        self._minutes.updateValue(place, ([] if is_over else sorted(ids), is_over))
        return is_over

    def _is_longer(self, until_ms: int) -> bool:
        """Whether a block is new, or longer than the last one, and remember it. A late event may come after it."""
        stored = self._until.get()
        if stored is not None and stored[0] >= until_ms:
            return False
        self._until.update((until_ms,))
        return True

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """The watermark has passed a minute: forget it."""
        now_ms = timerValues.getCurrentWatermarkInMs()
        for minute_ms, what in [place for place, _ in self._minutes.iterator() if place[0] + MINUTE_MS <= now_ms]:
            self._minutes.removeKey((minute_ms, what))
        return iter(())

    def close(self) -> None:
        """Nothing is open."""


def _record(topic: str, key: str, value: dict[str, Any]) -> Row:
    return Row(topic=topic, key=key, value=json.dumps(value))


def left_again_too_soon(flights: "DataFrame") -> "DataFrame":
    """Departures of an aircraft that left the same airport up to 20 minutes ago, or another one up to 60 minutes ago.

    `is_same` tells which. One of them has another aircraft's number: the same check as for a member who is in two
    places at once.
    """
    before = Window.partitionBy("tailnum").orderBy("departed", "origin")
    known = flights.where("tailnum IS NOT NULL AND departed IS NOT NULL")
    pairs = known.withColumns({"last": F.lag("departed").over(before), "last_origin": F.lag("origin").over(before)})
    minutes = (F.unix_seconds("departed") - F.unix_seconds("last")) / 60
    is_same = F.col("origin") == F.col("last_origin")
    suspects = pairs.select("tailnum", "origin", "departed", minutes.alias("minutes"), is_same.alias("is_same"))
    return suspects.where("minutes <= IF(is_same, 20, 60)")
