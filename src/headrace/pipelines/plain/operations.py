"""The windows of services with their percentiles and alerts, in plain Python."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from headrace.pipelines.plain.on_time import by_finished_window, each_once
from headrace.pipelines.site import SiteEvent


def windows(events: Iterable[SiteEvent]) -> list[dict[str, Any]]:
    """The values that `operations.windows` must have, by service and time."""
    by_service: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for start_ms, inside in by_finished_window(each_once(events, "site.metrics"), 10_000):
        for service in {event.value["service"] for event in inside}:
            values = [event.value for event in inside if event.value["service"] == service]
            by_service[service].append(_window(service, start_ms, values))
    for rows in by_service.values():
        _add_alerts(rows)
    return [row for service in sorted(by_service) for row in by_service[service]]


def percentile(values: Sequence[float], share: float) -> float:
    """Between the two nearest values, in proportion."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def _window(service: str, start_ms: int, values: list[dict[str, Any]]) -> dict[str, Any]:
    durations = [value["duration_ms"] for value in values]
    found = {f"p{share}": percentile(durations, share / 100) for share in (50, 95, 99)}
    window = datetime.fromtimestamp(start_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    errors = sum(value["is_error"] for value in values)
    return {"service": service, "window": window, "requests": len(values), "errors": errors, **found}


def _add_alerts(rows: list[dict[str, Any]]) -> None:
    """Raised by two windows above 200 ms in a row, cleared by three below 130 ms."""
    state = "ok"
    changed_at = 0
    for at, row in enumerate(rows):
        last = [each["p95"] for each in rows[changed_at : at + 1]]
        before = state
        if state == "ok" and len(last) >= 2 and min(last[-2:]) > 200:
            state = "alert"
        elif state == "alert" and len(last) >= 3 and max(last[-3:]) < 130:
            state = "ok"
        row["state"], row["change"] = state, None
        if state != before:
            changed_at = at + 1
            row["change"] = "raised" if state == "alert" else "cleared"
