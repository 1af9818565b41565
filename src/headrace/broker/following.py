"""What a fetcher follows, and what it has around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.broker.partition import Partition
    from headrace.broker.replication_quota import ReplicationQuota
    from headrace.coordination.peers import PeerAddress, Peers
    from headrace.types import BrokerId

BACKOFF_MIN_S = 0.02
"""The first back-off; each one that follows is twice as long, up to `replica.fetch.backoff.ms`."""


class FetchSettings(NamedTuple):
    """The settings of the same names, `replica.fetch.…` and `replica.socket.timeout.ms`."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1 << 20
    response_max_bytes: int = 10 << 20
    backoff_ms: int = 1000
    socket_timeout_ms: int = 30_000

    def backoff_s(self, failures: int) -> float:
        """How long to wait after so many failures one after the other. Most end within milliseconds: the leader has
        not heard yet that it is one, or is about to listen again."""
        return min(self.backoff_ms / 1000, BACKOFF_MIN_S * (1 << min(failures - 1, 16)))


class Followed:
    """A partition that a fetcher keeps up with its leader, in one leader epoch."""

    __slots__ = ("is_checked", "lag", "leader_epoch", "partition", "refusals", "retry_at")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.retry_at = 0.0
        self.refusals = 0  # since an answer that could be used
        self.is_checked = False  # by an older leader that does not tell with Fetch where logs part
        self.lag = 0


class Surroundings(NamedTuple):
    """What every fetcher of a broker has."""

    broker_id: BrokerId
    broker_epoch: Callable[[], int]
    peers: Peers
    address_of: Callable[[BrokerId], PeerAddress | None]
    settings: FetchSettings
    quota: ReplicationQuota
    now_ms: Callable[[], int]
    advanced: Callable[[Partition], None]
    """Called of a partition whose high watermark moved."""
    received: Callable[[TopicPartition, int], None]
    """Called with how many bytes of a partition were appended."""
