"""How much replication may take of a network, for partitions that an operator named (KIP-73).

    rate       `leader.` or `follower.replication.throttled.rate` of the broker, bytes/s
    partitions `leader.` or `follower.replication.throttled.replicas` of the topic: `partition:broker,...`, `*`, nothing

Only replicas that are not in sync are held back, so that the cluster stays whole while one catches up. What passes is
counted against a bucket that fills with the rate and holds one second's worth; while it is overdrawn, partitions that
are throttled get nothing. Source: Kafka's ReplicationQuotaManager.
"""

from collections.abc import Callable, Sequence

from headrace.config.throttled_replicas import names
from headrace.types import BrokerId, TopicPartition


class ReplicationQuota:
    """One direction's quota of one broker. Pure: the time, in seconds, is an argument."""

    __slots__ = ("_broker_id", "_filled_at", "_left", "_rate", "_replicas_of", "bytes_passed")

    def __init__(
        self, broker_id: BrokerId, rate: Callable[[], float], replicas_of: Callable[[str], Sequence[str]]
    ) -> None:
        """`rate` is in bytes/s; `replicas_of` a topic is the list that its setting holds."""
        self._broker_id, self._rate, self._replicas_of = broker_id, rate, replicas_of
        self._left, self._filled_at = 0.0, 0.0
        self.bytes_passed = 0
        """Of partitions that are throttled, since the start."""

    def is_throttled(self, key: TopicPartition) -> bool:
        """Whether the partition was named."""
        replicas = self._replicas_of(key.topic)
        return bool(replicas) and names(replicas, key.partition, self._broker_id)

    def is_exceeded(self, now: float) -> bool:
        """Whether throttled partitions get nothing now."""
        rate = self._rate()
        self._left = min(rate, self._left + (now - self._filled_at) * rate)
        self._filled_at = now
        return self._left < 0

    def record(self, key: TopicPartition, size: int) -> None:
        """So many bytes of a partition have passed."""
        if size and self.is_throttled(key):
            self.bytes_passed += size
            self._left -= size
