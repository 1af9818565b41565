"""The metadata model: brokers, topics, replicas and partition leaderships. All values are immutable.

`PartitionLeadership` is the content of `/brokers/topics/T/partitions/P/state`, with the node's version as the
partition epoch. A change of leader or ISR names the partition epoch that it is based on, and fails if it is outdated.
Source: Kafka's `LeaderAndIsr`, `ReplicaAssignment`, `Broker`, `EndPoint`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.types import NO_LEADER, BrokerId, LeaderEpoch

LEADER_DURING_DELETE = BrokerId(-2)
INITIAL_LEADER_EPOCH = LeaderEpoch(0)
NO_UUID = bytes(16)
FULL_UPDATE = 2
"""The type of an UpdateMetadata that names every topic there is (KIP-866)."""

SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
SECURITY_PROTOCOLS = {number: name for name, number in SECURITY_PROTOCOL_IDS.items()}


class Endpoint(NamedTuple):
    """The address of one listener of a broker."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


class Broker(NamedTuple):
    """A live broker. `epoch`, the broker epoch, is the czxid of its registration, so each registration has its own."""

    id: BrokerId
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = -1
    is_clean: bool = True
    """False after a crash: the ends of its logs may be lost, so the broker leaves every ISR."""
    directory: str | None = None
    """The id of its data directory, by which it recognises its own registration; None from Apache Kafka's brokers."""
    supports_fencing: bool = False
    """Whether the broker registers anew when it is fenced. Other brokers are never fenced."""
    min_insync_replicas: int = 1
    """Its `min.insync.replicas` at the start: what it goes by for a topic for which nothing else is set."""


class Replicas(NamedTuple):
    """The replicas of one partition, the preferred leader first, and those that a reassignment adds and removes."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()

    @property
    def is_moving(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """The replicas after the reassignment."""
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def origin(self) -> tuple[BrokerId, ...]:
        """The replicas if the reassignment is cancelled."""
        return tuple(each for each in self.replicas if each not in self.adding)


class Topic(NamedTuple):
    """A topic as in `/brokers/topics/T`. `partitions` is keyed by partition number, from 0."""

    name: str
    id: bytes  # 16 bytes
    partitions: Mapping[int, Replicas]


class PartitionLeadership(NamedTuple):
    """The leader and the ISR of a partition."""

    leader: BrokerId  # NO_LEADER if no replica that may lead is alive
    leader_epoch: LeaderEpoch  # raised by each election, and when a leader registers anew
    isr: tuple[BrokerId, ...]
    controller_epoch: int
    partition_epoch: int = 0  # the node's version
    mzxid: int = 0  # the transaction of the node's last write
    is_recovering: bool = False  # elected uncleanly
    eligible: tuple[BrokerId, ...] = ()  # KIP-966: not in the ISR, but with every committed record

    @property
    def has_leader(self) -> bool:
        """Whether the partition has a leader."""
        return self.leader != NO_LEADER
