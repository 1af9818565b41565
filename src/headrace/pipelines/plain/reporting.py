"""The reports over the tables, in plain Python."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from headrace.pipelines.plain.on_time import each_once
from headrace.pipelines.site import SiteEvent

HOUR_MS = 3_600_000


class Activity(NamedTuple):
    """One row of the report `activity`."""

    hour_ms: int
    country: str
    members: int
    shown: int
    clicked: int
    clicked_of_100: float | None


class TopItem(NamedTuple):
    """One row of the report `top_items`."""

    hour_ms: int
    country: str
    place: int
    item: str
    clicked: int


def activity(events: Iterable[SiteEvent]) -> list[Activity]:
    """By hour and country, and of all countries."""
    members: dict[tuple[int, str], set[str]] = defaultdict(set)
    shown: Counter[tuple[int, str]] = Counter()
    clicked: Counter[tuple[int, str]] = Counter()
    for hour_ms, country, event in _of_members(events):
        for group in ((hour_ms, country), (hour_ms, "all")):
            members[group].add(event.value["member"])
            shown[group] += len(event.value.get("items", ()))
            clicked[group] += event.topic == "site.clicks"
    return [
        Activity(*group, len(members[group]), shown[group], clicked[group], _of_100(clicked[group], shown[group]))
        for group in sorted(members)
    ]


def _of_100(clicked: int, shown: int) -> float | None:
    """Rounded as in SQL: a half goes up. None if nothing was shown."""
    return int(1000 * clicked / shown + 0.5) / 10 if shown else None


def top_items(events: Iterable[SiteEvent]) -> list[TopItem]:
    """By hour and country, the three items that were clicked most."""
    counted: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
    for hour_ms, country, event in _of_members(events):
        if event.topic == "site.clicks":
            counted[hour_ms, country][event.value["item"]] += 1
    return [
        TopItem(*group, place, item, clicked)
        for group, items in sorted(counted.items())
        for place, (item, clicked) in enumerate(sorted(items.items(), key=lambda each: (-each[1], each[0]))[:3], 1)
    ]


def _of_members(events: Iterable[SiteEvent]) -> list[tuple[int, str, SiteEvent]]:
    """(hour, country, event) of each view, search and click of a member."""
    found = each_once(events, "site.members", "site.views", "site.searches", "site.clicks", late_max_ms=None)
    joined = sorted((event for event in found if event.topic == "site.members"), key=lambda each: each.value["time_ms"])
    country_of = {event.value["member"]: event.value["country"] for event in joined}
    return [
        (event.value["time_ms"] // HOUR_MS * HOUR_MS, country_of[event.value["member"]], event)
        for event in found
        if event.topic != "site.members" and event.value["member"] in country_of
    ]
