"""Each pipeline's result, beside what plain Python finds in the same events: two values that must be equal.

found, expected = COMPARISONS["security"](place, events)
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from headrace.pipelines import news_feed, operations, relevance, security
from headrace.pipelines.plain import news_feed as plain_news_feed
from headrace.pipelines.plain import operations as plain_operations
from headrace.pipelines.plain import relevance as plain_relevance
from headrace.pipelines.plain import reporting as plain_reporting
from headrace.pipelines.plain import security as plain_security
from headrace.pipelines.running import PipelineEnvironment
from headrace.pipelines.site import SiteEvent
from headrace.pipelines.topics import latest_of, values_of


class Compared(NamedTuple):
    """What a pipeline wrote, and what it must have written."""

    found: Any
    expected: Any


def compare_operations(place: PipelineEnvironment, events: Iterable[SiteEvent]) -> Compared:
    """All windows, by service and time; percentiles to a billionth."""
    found = sorted(values_of(place.bootstrap, operations.OUTPUT), key=lambda row: (row["service"], row["window"]))
    return Compared([_rounded(row) for row in found], [_rounded(row) for row in plain_operations.windows(events)])


def compare_security(place: PipelineEnvironment, events: Iterable[SiteEvent]) -> Compared:
    """All verdicts, and the rate limiter's list."""
    verdicts = plain_security.verdicts(events)
    found = sorted(
        (each["rule"], each["subject"], milliseconds(each["minute"]))
        for each in values_of(place.bootstrap, security.VERDICTS)
    )
    listed = latest_of(place.bootstrap, security.BLOCKED)
    return Compared((found, listed), ([each[:3] for each in verdicts], plain_security.blocked(verdicts)))


def compare_relevance(place: PipelineEnvironment, events: Iterable[SiteEvent]) -> Compared:
    """All counts of items, and the scores of the ranking."""
    windows = plain_relevance.windows(events)
    found = sorted(
        (each["item"], milliseconds(each["window"]), each["shown"], each["clicked"])
        for each in values_of(place.bootstrap, relevance.WINDOWS)
    )
    scores = {item: round(score, 9) for item, score in relevance.ranking(place.bootstrap)}
    expected = {item: round(score, 9) for item, score in plain_relevance.scores(windows).items()}
    return Compared((found, scores), ([tuple(each) for each in windows], expected))


def compare_news_feed(place: PipelineEnvironment, events: Iterable[SiteEvent]) -> Compared:
    """All feeds that have posts."""
    found = {member: feed for member, feed in latest_of(place.bootstrap, news_feed.FEEDS).items() if feed}
    return Compared(found, plain_news_feed.feeds(events))


def compare_reporting(place: PipelineEnvironment, events: Iterable[SiteEvent]) -> Compared:
    """Both reports."""
    kept = list(events)
    tables = place.of("reporting")
    expected = [*plain_reporting.activity(kept), *plain_reporting.top_items(kept)]
    return Compared([*rows_of(tables / "activity"), *rows_of(tables / "top_items")], [tuple(row) for row in expected])


COMPARISONS: Final[Mapping[str, Callable[[PipelineEnvironment, Iterable[SiteEvent]], Compared]]] = {
    "operations": compare_operations,
    "security": compare_security,
    "relevance": compare_relevance,
    "news_feed": compare_news_feed,
    "reporting": compare_reporting,
}


def rows_of(report: Path) -> list[tuple[Any, ...]]:
    """The rows of a report in order, read without Spark; hours in milliseconds since 1970."""
    found = QueryBuilder().register("report", DeltaTable(report)).execute("SELECT * FROM report")
    rows = [tuple(row.values()) for row in pa.table(found).to_pylist()]
    return sorted((int(hour.timestamp() * 1000), *rest) for hour, *rest in rows)


def milliseconds(text: str) -> int:
    """A time as milliseconds since 1970."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 9) if isinstance(value, float) else value for name, value in row.items()}
