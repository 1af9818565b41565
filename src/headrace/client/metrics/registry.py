"""The values of one client by group and name, as Kafka's clients name them; each is computed when it is read.

    {"producer-metrics": {"record-send-total": 12.0, ...}, "producer-topic-metrics.orders": {...}, ...}

A group that is one of several has its topic, partition or broker behind a dot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from headrace.client.metrics.meters import Clock, Meter

Read = Callable[[], float]
Resource = Callable[[], Mapping[str, str | None]]
"""Attributes of a client that go with each push; those that are None are left out."""


class GroupName(NamedTuple):
    """The name of a group, and of which thing it is: a tag's name and value, or nothing."""

    group: str
    tag: str = ""
    value: str = ""

    def __str__(self) -> str:
        return f"{self.group}.{self.value}" if self.tag else self.group


class MetricGroup:
    """The values of one group."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.values: dict[str, Read] = {}

    def gauge(self, name: str, read: Read) -> None:
        """A value that is read where it is."""
        self.values[name] = read

    def totalled(self, stem: str) -> Meter:
        """`stem`-total and -rate."""
        meter = Meter(self._clock)
        self.values[f"{stem}-total"] = lambda: meter.total
        self.values[f"{stem}-rate"] = lambda: meter.rate
        return meter

    def timed(self, stem: str, counted: str = "") -> Meter:
        """`stem`-avg and -max, and `counted`-total and -rate: how often it happened."""
        meter = Meter(self._clock)
        self.values[f"{stem}-avg"] = lambda: meter.average
        self.values[f"{stem}-max"] = lambda: meter.most
        if counted:
            self.values[f"{counted}-total"] = lambda: float(meter.count)
            self.values[f"{counted}-rate"] = lambda: meter.frequency
        return meter


class Registry:
    """The groups of one client."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.clock: Clock = clock
        self._groups: dict[GroupName, MetricGroup] = {}

    def group(self, group: str, tag: str = "", value: str = "") -> MetricGroup:
        """The group of that name; it stays the same one."""
        name = GroupName(group, tag, value)
        found = self._groups.get(name)
        return found if found is not None else self._groups.setdefault(name, MetricGroup(self.clock))

    def read(self) -> dict[str, dict[str, float]]:
        """Every value."""
        return {str(name): {known: float(read()) for known, read in group.items()} for name, group in self._copied()}

    def points(self) -> Iterator[tuple[GroupName, str, float]]:
        """Every value with its group and name."""
        for name, group in self._copied():
            for known, read in group.items():
                yield name, known, float(read())

    def _copied(self) -> list[tuple[GroupName, dict[str, Read]]]:
        """The values; another thread may add to them meanwhile."""
        return [(name, group.values.copy()) for name, group in self._groups.copy().items()]
