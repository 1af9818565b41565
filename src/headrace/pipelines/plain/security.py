"""Verdicts and the rate limiter's list, in plain Python."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.pipelines.plain.on_time import each_once
from headrace.pipelines.site import SiteEvent

LIMITS = {"crawler": 200, "api": 120, "spam": 10, "login": 30}


class Verdict(NamedTuple):
    """One verdict. `reached_ms` is when the event that reached the limit arrived."""

    rule: str
    subject: str
    minute_ms: int
    reached_ms: int


def verdicts(events: Iterable[SiteEvent]) -> list[Verdict]:
    """All verdicts, by rule, subject and minute."""
    seen: dict[tuple[str, str, int, str], list[int]] = defaultdict(list)
    for event in each_once(events, "site.views", "site.searches", "site.posts", "site.logins"):
        value = event.value
        minute_ms = value["time_ms"] - value["time_ms"] % 60_000
        if event.topic == "site.views":
            seen["crawler", value["ip"], minute_ms, ""].append(event.arrival_ms)
        elif event.topic == "site.searches":
            seen["api", value["member"], minute_ms, ""].append(event.arrival_ms)
        elif event.topic == "site.posts":
            seen["spam", value["author"], minute_ms, value["text"]].append(event.arrival_ms)
        elif not value["is_ok"]:
            seen["login", value["ip"], minute_ms, ""].append(event.arrival_ms)
    found = {
        (rule, subject, minute_ms): arrivals[LIMITS[rule] - 1]
        for (rule, subject, minute_ms, _), arrivals in seen.items()
        if len(arrivals) >= LIMITS[rule]
    }
    return sorted(Verdict(*about, reached_ms) for about, reached_ms in found.items())


def blocked(found: Iterable[Verdict]) -> dict[str, dict[str, Any]]:
    """The list: ten minutes from the end of the last minute of each rule and subject."""
    last: dict[tuple[str, str], int] = {}
    for verdict in found:
        about = verdict.rule, verdict.subject
        last[about] = max(last.get(about, 0), verdict.minute_ms)
    return {
        f"{rule} {subject}": {"rule": rule, "subject": subject, "until_ms": minute_ms + 660_000}
        for (rule, subject), minute_ms in last.items()
    }
