"""The values that coordination is about: brokers, topics, and who leads a partition. All immutable.

`PartitionLeadership` is what `/brokers/topics/T/partitions/P/state` holds, with the node's version as the
partition epoch: whoever changes leader or ISR names the epoch that it saw, and loses to who was first.
Source: Kafka's `LeaderAndIsr`, `ReplicaAssignment`, `Broker`, `EndPoint`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.types import NO_LEADER, BrokerId, LeaderEpoch

LEADER_DURING_DELETE = BrokerId(-2)
INITIAL_LEADER_EPOCH = LeaderEpoch(0)
NO_UUID = bytes(16)

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


class Endpoint(NamedTuple):
    """Where one listener of a broker is reached."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


class Broker(NamedTuple):
    """A live broker. `epoch` is the czxid of its registration: a restart makes it another one."""

    id: BrokerId
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = -1
    is_clean: bool = True
    """False when its last stop was a crash: its logs may have lost their ends, so it leaves every ISR."""
    directory: str | None = None
    """The id of its data directory, by which it knows its own registration; None from a broker that says none."""
    heeds_fencing: bool = False
    """Whether it registers anew when it is fenced; who does not is never fenced."""


class Replicas(NamedTuple):
    """The brokers of one partition, the preferred leader first; those coming and going in a reassignment."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()

    @property
    def is_moving(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """The replicas when the reassignment is done."""
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def origin(self) -> tuple[BrokerId, ...]:
        """The replicas if the reassignment is cancelled."""
        return tuple(each for each in self.replicas if each not in self.adding)


class Topic(NamedTuple):
    """A topic as `/brokers/topics/T` has it. `partitions` is keyed by partition number, from 0."""

    name: str
    id: bytes  # 16 bytes
    partitions: Mapping[int, Replicas]


class PartitionLeadership(NamedTuple):
    """Who leads a partition and who has all that is committed."""

    leader: BrokerId  # NO_LEADER when no replica that may lead is alive
    leader_epoch: LeaderEpoch  # grows with each change of leader, and when a leader comes back
    isr: tuple[BrokerId, ...]
    controller_epoch: int
    partition_epoch: int = 0  # the node's version
    mzxid: int = 0  # when the node was last written
    is_recovering: bool = False  # elected uncleanly

    @property
    def has_leader(self) -> bool:
        """Whether some broker leads it."""
        return self.leader != NO_LEADER
