"""Metrics with their samples as plain values, which are read on the event loop and rendered on a thread."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

COUNTER, GAUGE, SUMMARY, HISTOGRAM = "counter", "gauge", "summary", "histogram"
"""Prometheus' types."""


class Sample(NamedTuple):
    """One number; its name is the family's and `suffix`."""

    suffix: str
    labels: Mapping[str, str]
    value: float


class Family(NamedTuple):
    """One metric."""

    name: str
    kind: str
    help: str
    samples: Sequence[Sample]


def counter(name: str, text: str, samples: Sequence[tuple[Mapping[str, str], float]]) -> Family:
    """A metric that only grows."""
    return Family(name, COUNTER, text, [Sample("_total", labels, value) for labels, value in samples])


def gauge(name: str, text: str, samples: Sequence[tuple[Mapping[str, str], float]]) -> Family:
    """A metric of the current state."""
    return Family(name, GAUGE, text, [Sample("", labels, value) for labels, value in samples])


def number(name: str, text: str, value: float) -> Family:
    """A gauge without labels."""
    return gauge(name, text, [({}, value)])
