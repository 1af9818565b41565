"""The partitions and the services of a replica fetcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from headrace.metadata.model import NO_UUID
from headrace.replication.follower import comparison_start
from headrace.types import NO_EPOCH, TopicPartition

if TYPE_CHECKING:
    from headrace.broker.partitions.partition import Partition
    from headrace.broker.replication.replication_quota import ReplicationQuota
    from headrace.network.peers.peers import PeerAddress, Peers
    from headrace.types import BrokerId

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


class Followed:
    """A partition that a fetcher replicates from its leader, in one leader epoch."""

    __slots__ = (
        "compared", "has_epochs", "is_checked", "lag", "leader_epoch", "partition", "refusals", "retry_at", "topic_id",
    )  # fmt: skip

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.topic_id = partition.log.topic_id or NO_UUID
        self.leader_epoch = partition.leader_epoch
        self.retry_at = 0.0
        self.refusals = 0  # in a row
        self.has_epochs = True  # False if the leader's log has none there
        self.is_checked = False  # by an older leader, whose Fetch response has no diverging epoch
        self.lag = 0
        self.compared: int | None = None
        """The end of what is compared with the leader's log; None if no comparison is necessary, or it has ended."""
        self.compare_if_unknown()

    @property
    def fetch_offset(self) -> int:
        """The end of what is known to be the same in the leader's log, from which the follower fetches."""
        return self.partition.log.log_end_offset if self.compared is None else self.compared

    @property
    def last_fetched_epoch(self) -> int:
        """The epoch of the last record before `fetch_offset`; -1 if it cannot be compared."""
        return self.partition.log.leader_epochs.latest if self.has_epochs and self.compared is None else NO_EPOCH

    def compare_if_unknown(self) -> None:
        """Begins a comparison if the log ends with records without epochs above the high watermark."""
        log = self.partition.log
        self.compared = comparison_start(log.leader_epochs.latest, log.log_end_offset, self.partition.high_watermark)

    def compare_from(self, offset: int) -> None:
        """Sets the end of what is compared, or the end of the comparison if it is the log end offset."""
        self.compared = offset if offset < self.partition.log.log_end_offset else None


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
    received: Callable[[TopicPartition, int], None]
    """Called with the number of bytes appended to a partition."""
