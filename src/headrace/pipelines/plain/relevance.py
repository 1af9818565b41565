"""Counts of items and their scores, in plain Python."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from headrace.pipelines.plain.on_time import by_finished_window, each_once
from headrace.pipelines.site import SiteEvent


class ItemWindow(NamedTuple):
    """An item's counts in a minute that begins at `start_ms`."""

    item: str
    start_ms: int
    shown: int
    clicked: int


def windows(events: Iterable[SiteEvent]) -> list[ItemWindow]:
    """All finished windows, by item and time."""
    found = []
    for start_ms, inside in by_finished_window(each_once(events, "site.views", "site.searches", "site.clicks"), 60_000):
        shown = Counter(item for event in inside for item in event.value.get("items", ()))
        clicked = Counter(event.value["item"] for event in inside if event.topic == "site.clicks")
        found += [ItemWindow(item, start_ms, shown[item], clicked[item]) for item in shown.keys() | clicked.keys()]
    return sorted(found)


def scores(found: Iterable[ItemWindow]) -> dict[str, float]:
    """The score of each item after its last window; counts halve in two minutes."""
    counts: dict[str, tuple[int, float, float]] = {}
    for item, start_ms, shown, clicked in found:
        last_ms, shown_before, clicked_before = counts.get(item, (start_ms, 0.0, 0.0))
        weight = 0.5 ** ((start_ms - last_ms) / 120_000)
        counts[item] = (start_ms, shown_before * weight + shown, clicked_before * weight + clicked)
    return {item: (clicked + 1) / (shown + 10) for item, (_, shown, clicked) in counts.items()}
