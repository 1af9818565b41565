"""Families to the text that Prometheus reads, with prometheus-client, which is imported when somebody asks first.

Runs on a thread: importing takes some 50 ms, and writing out ten thousand partitions takes longer.
"""

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from headrace.broker.metrics.family import Family


class _Snapshot(Collector):
    """Families as they were a moment ago."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Each as one of prometheus-client's."""
        for family in self._families:
            metric = Metric(family.name, family.help, family.kind)
            for suffix, labels, value in family.samples:
                metric.add_sample(family.name + suffix, dict(labels), value)
            yield metric


def render(families: Sequence[Family], accept: str) -> tuple[bytes, str]:
    """The page and its content type, in the form that the asker prefers; memory and CPU of the process are added."""
    registry = CollectorRegistry()
    registry.register(_Snapshot(families))
    ProcessCollector(registry=registry)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
