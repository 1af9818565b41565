"""A picture of each pipeline's result, drawn from its topics and tables.

    PICTURES["operations"](place)    the SVG

The documentation shows those of the tests, which kill the pipelines on the way.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from headrace.pipelines import news_feed, operations, relevance, security
from headrace.pipelines.compare import milliseconds, rows_of
from headrace.pipelines.running import PipelineEnvironment
from headrace.pipelines.site import Site
from headrace.pipelines.svg import COLOURS, GRID, INK, Drawing
from headrace.pipelines.topics import latest_of, values_of

LEFT, TOP, WIDTH, HEIGHT = 60, 40, 600, 190


def draw_operations(place: PipelineEnvironment) -> str:
    """p95 of each service by time, the two levels, and the alert as an area."""
    rows = sorted(values_of(place.bootstrap, operations.OUTPUT), key=lambda row: str(row["window"]))
    times = [milliseconds(row["window"]) for row in rows]
    first, last = min(times), max(times) + 10_000
    highest: float = max(row["p95"] for row in rows)
    drawing = Drawing(LEFT + WIDTH + 20, TOP + HEIGHT + 50, "operations: p95 of each service, and an alert")

    def x(time_ms: float) -> float:
        return LEFT + WIDTH * (time_ms - first) / (last - first)

    def y(value: float) -> float:
        return TOP + HEIGHT * (1 - value / highest)

    for row, time_ms in zip(rows, times, strict=True):
        if row["state"] == "alert":
            drawing.box(x(time_ms), TOP, x(time_ms + 10_000) - x(time_ms), HEIGHT, COLOURS[4], opacity=0.15)
    for level, name in ((operations.HIGH_MS, "raised above"), (operations.LOW_MS, "cleared below")):
        drawing.line([(LEFT, y(level)), (LEFT + WIDTH, y(level))], INK, width=1, dash="4")
        drawing.text(LEFT + WIDTH, y(level) - 3, f"{name} {level:.0f} ms", "end")
    for at, service in enumerate(sorted({row["service"] for row in rows})):
        points = [(x(t), y(row["p95"])) for row, t in zip(rows, times, strict=True) if row["service"] == service]
        drawing.line(points, COLOURS[at])
        drawing.box(LEFT + 110 * at, TOP + HEIGHT + 34, 10, 10, COLOURS[at])
        drawing.text(LEFT + 110 * at + 15, TOP + HEIGHT + 43, service)
    _frame(drawing, "p95 of a service's requests, in windows of 10 s; red: an alert")
    for minute_ms in range(first - first % 60_000 + 60_000, last, 60_000):
        drawing.text(x(minute_ms), TOP + HEIGHT + 16, _clock(minute_ms), "middle")
    for value in range(0, int(highest), 200):
        drawing.text(LEFT - 6, y(value) + 4, f"{value} ms", "end")
    return str(drawing)


def draw_security(place: PipelineEnvironment) -> str:
    """The minutes with verdicts on each subject, and until when it is blocked."""
    verdicts = sorted(
        (each["rule"], each["subject"], milliseconds(each["minute"]))
        for each in values_of(place.bootstrap, security.VERDICTS)
    )
    until = {key: entry["until_ms"] for key, entry in latest_of(place.bootstrap, security.BLOCKED).items()}
    subjects = sorted({(rule, subject) for rule, subject, _ in verdicts})
    first: int = min(minute for *_, minute in verdicts) - 60_000
    last: int = max(until.values())
    left, height = 150, 26 * len(subjects)
    drawing = Drawing(left + WIDTH + 20, TOP + height + 40, "security: verdicts, and who is blocked until when")

    def x(time_ms: float) -> float:
        return left + WIDTH * (time_ms - first) / (last - first)

    drawing.text(left, TOP - 16, "minutes in which a limit was reached, and how long the subject is blocked")
    for at, (rule, subject) in enumerate(subjects):
        y, colour = TOP + 26 * at + 13, COLOURS[at % len(COLOURS)]
        minutes = [minute for *about, minute in verdicts if about == [rule, subject]]
        drawing.text(left - 8, y + 4, f"{rule} {subject}", "end")
        drawing.box(x(minutes[0]), y - 5, x(until[f"{rule} {subject}"]) - x(minutes[0]), 10, colour, opacity=0.25)
        for minute in minutes:
            drawing.dot(x(minute), y, colour)
    for minute_ms in range(first, last + 1, 180_000):
        drawing.text(x(minute_ms), TOP + height + 20, _clock(minute_ms), "middle")
    return str(drawing)


def draw_relevance(place: PipelineEnvironment, site: Site | None = None) -> str:
    """The score of each item by how much the simulated members like it."""
    site = site or Site()
    drawing = Drawing(LEFT + WIDTH + 20, TOP + HEIGHT + 40, "relevance: the ranking finds what members like")
    found = [
        (site.click_rate(int(item.removeprefix("item"))), score) for item, score in relevance.ranking(place.bootstrap)
    ]
    highest = max(score for _, score in found)
    for liked, score in found:
        drawing.dot(LEFT + WIDTH * liked / 0.34, TOP + HEIGHT * (1 - score / highest), COLOURS[0])
    _frame(drawing, "score of each item in the ranking")
    for percent in (0, 10, 20, 30):
        drawing.text(LEFT + WIDTH * percent / 34, TOP + HEIGHT + 16, f"{percent} %", "middle")
        if percent / 100 <= highest:
            drawing.text(LEFT - 6, TOP + HEIGHT * (1 - percent / 100 / highest) + 4, f"{percent / 100}", "end")
    drawing.text(LEFT + WIDTH, TOP + HEIGHT + 32, "probability that a member clicks on it when it is shown", "end")
    return str(drawing)


def draw_news_feed(place: PipelineEnvironment) -> str:
    """The newest posts of one feed, and how long all feeds are."""
    feeds = {member: feed for member, feed in latest_of(place.bootstrap, news_feed.FEEDS).items() if feed}
    reader = min(feeds, key=lambda member: (-len(feeds[member]), member))
    drawing = Drawing(LEFT + WIDTH + 20, TOP + HEIGHT + 40, "news feed: one member's feed, and the lengths of all")
    drawing.text(20, TOP - 16, f"the feed of {reader}, the newest first")
    for at, post in enumerate(feeds[reader][:10]):
        y = TOP + 19 * at + 10
        drawing.text(20, y, _clock(post["time_ms"], "%H:%M:%S"))
        drawing.text(85, y, post["author"])
        drawing.text(140, y, post["text"])
    lengths = [len(feed) for feed in feeds.values()]
    counted = [lengths.count(length) for length in range(1, news_feed.POSTS_MAX + 1)]
    left, step = 330, 16
    drawing.text(left, TOP - 16, f"the lengths of {len(feeds)} feeds")
    for at, count in enumerate(counted):
        height = HEIGHT * count / max(counted)
        drawing.box(left + step * at, TOP + HEIGHT - height, step - 3, height, COLOURS[0])
        if at % 5 == 4 or at == 0:
            drawing.text(left + step * at + 6, TOP + HEIGHT + 16, at + 1, "middle")
    drawing.text(left + step * len(counted), TOP + HEIGHT + 32, "posts", "end")
    return str(drawing)


def draw_reporting(place: PipelineEnvironment) -> str:
    """Both reports: clicks by hour and country, and the top items of the last hour."""
    tables = place.of("reporting")
    activity = [row for row in rows_of(tables / "activity") if row[1] != "all"]
    top = rows_of(tables / "top_items")
    countries = sorted({row[1] for row in activity})
    most = max(row[4] for row in activity)
    drawing = Drawing(LEFT + WIDTH + 20, TOP + HEIGHT + 40, "reporting: clicks by hour and country, and top items")
    drawing.text(20, TOP - 16, "activity: clicks of members by hour and country")
    hours = sorted({row[0] for row in activity})
    for hour_ms, country, _, _, clicked, _ in activity:
        at = hours.index(hour_ms)
        x, height = 20 + 130 * at + 26 * countries.index(country), HEIGHT * clicked / most
        drawing.box(x, TOP + HEIGHT - height, 22, height, COLOURS[countries.index(country)])
        drawing.text(x + 11, TOP + HEIGHT + 14, country, "middle")
    for at, hour_ms in enumerate(hours):
        drawing.text(20 + 130 * at + 50, TOP + HEIGHT + 32, _clock(hour_ms), "middle")
    drawing.text(330, TOP - 16, f"top_items at {_clock(hours[-1])}")
    last = [row for row in top if row[0] == hours[-1]]
    clicked_most = max(row[4] for row in last)
    for at, (_, country, place_, item, clicked) in enumerate(last):
        y, colour = TOP + 16 * at, COLOURS[countries.index(country)]
        drawing.text(330, y + 10, f"{country} {place_}")
        drawing.text(362, y + 10, item)
        drawing.box(410, y, 200 * clicked / clicked_most, 12, colour)
        drawing.text(416 + 200 * clicked / clicked_most, y + 10, clicked)
    return str(drawing)


PICTURES: Final[Mapping[str, Callable[[PipelineEnvironment], str]]] = {
    "operations": draw_operations,
    "security": draw_security,
    "relevance": draw_relevance,
    "news_feed": draw_news_feed,
    "reporting": draw_reporting,
}


def _frame(drawing: Drawing, title: str) -> None:
    drawing.text(LEFT, TOP - 16, title)
    drawing.line([(LEFT, TOP), (LEFT, TOP + HEIGHT), (LEFT + WIDTH, TOP + HEIGHT)], GRID, width=1)


def _clock(time_ms: int, form: str = "%H:%M") -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime(form)
