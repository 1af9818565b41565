"""Leaves out late and doubled events, and tells which windows are finished."""

from collections.abc import Iterable, Iterator

from headrace.pipelines.site import SiteEvent

LATE_MAX_MS = 30_000
WATERMARK_MS = 90_000


def each_once(events: Iterable[SiteEvent], *topics: str, late_max_ms: int | None = LATE_MAX_MS) -> list[SiteEvent]:
    """The events of these topics that arrived in time, each `id` once, in order of arrival. None: any time."""
    found: dict[str, SiteEvent] = {}
    for event in events:
        late_ms = event.arrival_ms - event.value["time_ms"]
        if event.topic in topics and (late_max_ms is None or late_ms <= late_max_ms):
            found.setdefault(event.value["id"], event)
    return list(found.values())


def by_finished_window(events: list[SiteEvent], window_ms: int) -> Iterator[tuple[int, list[SiteEvent]]]:
    """(start, events) of each window that the watermark has passed, in order."""
    watermark_ms = max(event.value["time_ms"] for event in events) - WATERMARK_MS
    windows: dict[int, list[SiteEvent]] = {}
    for event in events:
        time_ms = event.value["time_ms"]
        windows.setdefault(time_ms - time_ms % window_ms, []).append(event)
    yield from sorted((start, inside) for start, inside in windows.items() if start + window_ms <= watermark_ms)
