"""What the metrics of every kind of client have in common: the registry, the connections, and the push if it is on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.client.core.cluster import Cluster
from headrace.client.metrics.meters import Clock
from headrace.client.metrics.network import NetworkMetrics
from headrace.client.metrics.registry import Registry, Resource

if TYPE_CHECKING:
    from headrace.client.metrics.telemetry import Telemetry


class ClientMetrics:
    """The metrics of one client."""

    def __init__(self, cluster: Cluster, kind: str, clock: Clock, resource: Resource | None) -> None:
        """`kind`: producer or consumer. The cluster's connections are measured. No `resource`: nothing is pushed."""
        self.registry: Registry = Registry(clock)
        self._cluster = cluster
        self._resource = resource
        self._telemetry: Telemetry | None = None
        cluster.metrics = NetworkMetrics(self.registry, kind, cluster.in_flight)

    def begin(self) -> None:
        """Push to the brokers, if that is on, and has not begun."""
        if self._resource is None or self._telemetry is not None:
            return
        from headrace.client.metrics.telemetry import Telemetry  # not for those who push nothing

        self._telemetry = Telemetry(self._cluster, self.registry, self._resource)

    def end(self) -> None:
        """Push for the last time; the connections are still open."""
        if self._telemetry is not None:
            self._telemetry.close()
