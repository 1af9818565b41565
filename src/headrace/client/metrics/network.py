"""What the connections of a client do: bytes, requests, how long brokers take."""

from __future__ import annotations

from collections.abc import Callable

from headrace.client.metrics.meters import Clock, Meter, record_each
from headrace.client.metrics.registry import Registry


class NetworkMetrics:
    """The connections of one client."""

    def __init__(self, registry: Registry, kind: str, in_flight: Callable[[], int]) -> None:
        """`kind`: producer, consumer, or another that begins the names of the groups. `in_flight`: requests without an
        answer."""
        self._registry = registry
        self.clock: Clock = registry.clock
        self._kind = kind
        self._nodes: dict[int, Meter] = {}
        group = registry.group(f"{kind}-metrics")
        self.created: Meter = group.totalled("connection-creation")
        self.closed: Meter = group.totalled("connection-close")
        self.outgoing: Meter = group.totalled("outgoing-byte")
        self.incoming: Meter = group.totalled("incoming-byte")
        self.requests: Meter = group.timed("request-size", "request")
        self.latency: Meter = group.timed("request-latency", "response")
        group.gauge("requests-in-flight", in_flight)
        group.gauge("connection-count", lambda: self.created.total - self.closed.total)

    def node(self, broker: int) -> Meter:
        """The latency of one broker's answers, in milliseconds."""
        found = self._nodes.get(broker)
        if found is None:
            group = self._registry.group(f"{self._kind}-node-metrics", "node-id", f"node-{broker}")
            found = self._nodes.setdefault(broker, group.timed("request-latency"))
        return found


class ConnectionMetrics:
    """One connection."""

    __slots__ = ("_clock", "_network", "_sent", "node")

    def __init__(self, network: NetworkMetrics) -> None:
        self._network, self._clock = network, network.clock
        self._sent = (network.requests, network.outgoing)
        self.node: Meter | None = None
        """The broker's own latency, where it is known which one it is."""
        network.created.record()

    def sent(self, size: int) -> float:
        """A request of so many bytes was sent; returns the time."""
        record_each(self._sent, (size, size))
        return self._clock()

    def received(self, size: int) -> None:
        """So many bytes were received."""
        self._network.incoming.record(size)

    def answered(self, sent_s: float) -> None:
        """A request that was sent at that time was answered."""
        took_ms = (self._clock() - sent_s) * 1000
        self._network.latency.record(took_ms)
        if self.node is not None:
            self.node.record(took_ms)

    def closed(self) -> None:
        """The connection has ended."""
        self._network.closed.record()
