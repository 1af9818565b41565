"""A metric with its samples, as plain values: what is read from the broker on its loop and written out elsewhere."""

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
    """What only grows."""
    return Family(name, COUNTER, text, [Sample("_total", labels, value) for labels, value in samples])


def gauge(name: str, text: str, samples: Sequence[tuple[Mapping[str, str], float]]) -> Family:
    """What is so at this moment."""
    return Family(name, GAUGE, text, [Sample("", labels, value) for labels, value in samples])


def number(name: str, text: str, value: float) -> Family:
    """A gauge without labels."""
    return gauge(name, text, [({}, value)])
