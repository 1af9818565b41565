"""The settings and the services of a replica fetcher."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headrace.broker.metrics.traffic import Traffic
    from headrace.broker.partitions.partition import Partition
    from headrace.broker.replication.replication_quota import ReplicationQuota
    from headrace.network.peers.peers import PeerAddress, Peers
    from headrace.types import BrokerId, TopicPartition

BYTES_PER_TURN = 256 << 10
"""Bytes appended in one turn of the event loop."""

BACKOFF_MIN_S = 0.02
"""The first back-off; each further one is twice as long, up to `replica.fetch.backoff.ms`."""


class FetchSettings(NamedTuple):
    """The settings of a fetcher: `replica.fetch.…` and `replica.socket.timeout.ms`."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1 << 20
    response_max_bytes: int = 10 << 20
    backoff_ms: int = 1000
    socket_timeout_ms: int = 30_000

    def backoff_s(self, failures: int) -> float:
        """Returns the back-off after this number of failures in a row.

        The first back-off is short, since most failures end within milliseconds: the new leader has not received its
        LeaderAndIsr yet, or is restarting.
        """
        return min(self.backoff_ms / 1000, BACKOFF_MIN_S * (1 << min(failures - 1, 16)))


class FetcherServices(NamedTuple):
    """The services that all fetchers of a broker share."""

    broker_id: BrokerId
    broker_epoch: Callable[[], int]
    peers: Peers
    address_of: Callable[[BrokerId], PeerAddress | None]
    settings: FetchSettings
    quota: ReplicationQuota
    now_ms: Callable[[], int]
    advanced: Callable[[Partition], None]
    """Called with a partition whose high watermark advanced."""
    watched: Mapping[Hashable, object]
    """The keys of partitions for which `advanced` does anything."""
    received: Callable[[TopicPartition, int], None]
    """Called with the number of bytes appended to a partition."""
    incoming: Traffic
    """Counts these bytes, where no quota does."""
