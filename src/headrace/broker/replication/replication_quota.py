"""Replication quotas: limit the replication traffic of partitions that an operator named (KIP-73).

    rate       `leader.` or `follower.replication.throttled.rate` of the broker, bytes/s
    partitions `leader.` or `follower.replication.throttled.replicas` of the topic: `partition:broker,...`, `*`, nothing

Only replicas outside the ISR are throttled, so that a quota never shrinks an ISR. Traffic is counted against a token
bucket that fills with the rate and holds one second's worth; while it is overdrawn, throttled partitions get no
records. Source: Kafka's ReplicationQuotaManager.
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
        """`rate` returns bytes/s; `replicas_of` returns the list in a topic's setting."""
        self._broker_id, self._rate, self._replicas_of = broker_id, rate, replicas_of
        self._left, self._filled_at = 0.0, 0.0
        self.bytes_passed = 0
        """Bytes of throttled partitions since the start."""

    def is_throttled(self, key: TopicPartition) -> bool:
        """Whether the settings throttle the partition."""
        replicas = self._replicas_of(key.topic)
        return bool(replicas) and names(replicas, key.partition, self._broker_id)

    def is_exceeded(self, now: float) -> bool:
        """Whether throttled partitions have to wait now."""
        rate = self._rate()
        self._left = min(rate, self._left + (now - self._filled_at) * rate)
        self._filled_at = now
        return self._left < 0

    def record(self, key: TopicPartition, size: int) -> None:
        """Counts bytes of a partition."""
        if size and self.is_throttled(key):
            self.bytes_passed += size
            self._left -= size
