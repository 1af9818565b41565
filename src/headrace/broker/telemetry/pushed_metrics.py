"""The values that clients pushed, by client, for the metrics page.

A delta is added to what the client pushed before, since Prometheus' counters only grow; another value replaces it. The
numbers of series of one client and of all together are bounded: further series are dropped and counted. A client's
series go with its instance. Pure.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headrace.broker.telemetry.otlp import Attributes, Metric

SERIES_PER_CLIENT_MAX = 2_000
SERIES_MAX = 50_000
NAME_CHARS_MAX = 200
LABELS_MAX = 16
LABEL_CHARS_MAX = 250


class Series(NamedTuple):
    """The identity of one value of a client."""

    name: str
    is_counter: bool
    attributes: Attributes


class PushedMetrics:
    """Every client's series."""

    def __init__(self) -> None:
        self._clients: dict[bytes, dict[Series, float]] = {}
        self._resources: dict[bytes, Attributes] = {}
        self._count = 0
        self.dropped = 0
        """Values that were dropped for a limit."""
        self.received = 0
        """Values that clients pushed."""

    def take(self, client: bytes, metric: Metric) -> None:
        """Takes in one metric of a client."""
        own = self._clients.setdefault(client, {})
        if len(metric.resource) <= LABELS_MAX:
            self._resources[client] = tuple(
                (key[:LABEL_CHARS_MAX], text[:LABEL_CHARS_MAX]) for key, text in metric.resource
            )
        for attributes, value in metric.points:
            self.received += 1
            series = Series(metric.name, metric.is_counter, attributes)
            before = own.get(series)
            if before is None:
                is_full = len(own) >= SERIES_PER_CLIENT_MAX or self._count >= SERIES_MAX
                if is_full or not _is_fitting(series):
                    self.dropped += 1
                    continue
                self._count += 1
            own[series] = value + (before or 0.0) if metric.is_delta else value

    def forget(self, client: bytes) -> None:
        """Drops a client's series."""
        self._resources.pop(client, None)
        self._count -= len(self._clients.pop(client, ()))

    def of(self, client: bytes) -> Iterator[tuple[Series, float]]:
        """A client's series with their values."""
        yield from self._clients.get(client, {}).items()

    def resource(self, client: bytes) -> Attributes:
        """The attributes that a client gives itself."""
        return self._resources.get(client, ())

    def __len__(self) -> int:
        return self._count


def _is_fitting(series: Series) -> bool:
    return (
        0 < len(series.name) <= NAME_CHARS_MAX
        and len(series.attributes) <= LABELS_MAX
        and all(len(key) <= LABEL_CHARS_MAX and len(text) <= LABEL_CHARS_MAX for key, text in series.attributes)
    )
