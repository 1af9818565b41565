"""Renders metric families in Prometheus' text format, with prometheus-client, imported at the first request.

Runs on a thread: the import takes about 50 ms, and rendering ten thousand partitions takes longer.
"""

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from headrace.broker.metrics.family import Family


class _Snapshot(Collector):
    """A snapshot of families, as a collector of prometheus-client."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Converts each family to prometheus-client's class."""
        for family in self._families:
            metric = Metric(family.name, family.help, family.kind)
            for suffix, labels, value in family.samples:
                metric.add_sample(family.name + suffix, dict(labels), value)
            yield metric


def render(families: Sequence[Family], accept: str) -> tuple[bytes, str]:
    """The page and its content type, in the format of the `Accept` header, with memory and CPU of the process."""
    registry = CollectorRegistry()
    registry.register(_Snapshot(families))
    ProcessCollector(registry=registry)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
