"""The health of a cluster, from its metadata: partitions that are offline or under-replicated, and why. Pure.

    offline            it has no leader: it cannot be written or read
    under min ISR      acks=all is refused (NOT_ENOUGH_REPLICAS)
    under-replicated   fewer in sync than there are replicas
    led elsewhere      its preferred replica is in sync, and another leads

Source: the metrics of those names of Apache Kafka.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from headrace.client.core.metadata import ClusterView, PartitionInfo
from headrace.types import NO_LEADER, BrokerId, TopicPartition


class BrokerShare(NamedTuple):
    """The partitions that one broker leads and holds."""

    leaders: int
    replicas: int
    in_sync: int


class Health(NamedTuple):
    """The partitions with each problem, in order."""

    offline: tuple[TopicPartition, ...]
    under_min_isr: tuple[TopicPartition, ...]
    under_replicated: tuple[TopicPartition, ...]
    led_elsewhere: tuple[TopicPartition, ...]
    missing_brokers: tuple[BrokerId, ...]
    """Brokers that have replicas and are not there."""

    @property
    def is_ready(self) -> bool:
        """Whether every partition has all its replicas in sync."""
        return not (self.offline or self.under_replicated or self.missing_brokers)


def partitions_of(view: ClusterView) -> Iterator[tuple[TopicPartition, PartitionInfo]]:
    """Every partition, by topic and number."""
    for name in sorted(view.topics):
        for info in view.topics[name].partitions:
            yield TopicPartition(name, info.partition), info


def health_of(view: ClusterView, min_isr: Mapping[str, int]) -> Health:
    """The health of a cluster. `min_isr` is each topic's `min.insync.replicas`, with 1 as the default."""
    offline, below, under, elsewhere = [], [], [], []
    assigned: set[BrokerId] = set()
    for partition, info in partitions_of(view):
        assigned.update(info.replicas)
        if info.leader == NO_LEADER:
            offline.append(partition)
        if len(info.isr) < len(info.replicas):
            under.append(partition)
        if info.leader != NO_LEADER and len(info.isr) < min(min_isr.get(partition.topic, 1), len(info.replicas)):
            below.append(partition)
        if info.replicas and info.leader not in (NO_LEADER, info.replicas[0]) and info.replicas[0] in info.isr:
            elsewhere.append(partition)
    missing = tuple(sorted(assigned - view.brokers.keys()))
    return Health(tuple(offline), tuple(below), tuple(under), tuple(elsewhere), missing)


def shares_of(view: ClusterView) -> dict[BrokerId, BrokerShare]:
    """The share of each live broker and of each broker that has replicas."""
    infos = [info for _, info in partitions_of(view)]
    brokers = set(view.brokers).union(*(info.replicas for info in infos))
    return {
        broker: BrokerShare(
            sum(info.leader == broker for info in infos),
            sum(broker in info.replicas for info in infos),
            sum(broker in info.isr for info in infos),
        )
        for broker in sorted(brokers)
    }


def reasons(
    view: ClusterView,
    bytes_of: Mapping[tuple[BrokerId, TopicPartition], int],
    failed_directories: Mapping[BrokerId, Collection[str]],
) -> dict[TopicPartition, str]:
    """For each partition that is not fully in sync, the reason and what to do.

    `bytes_of` has the known sizes of replicas, `failed_directories` the log directories that are offline.
    """
    return {
        partition: "; ".join(_reason(view, partition, info, broker, bytes_of, failed_directories) for broker in behind)
        for partition, info in partitions_of(view)
        if (behind := [broker for broker in info.replicas if broker not in info.isr or info.leader == NO_LEADER])
    }


def _reason(
    view: ClusterView,
    partition: TopicPartition,
    info: PartitionInfo,
    broker: BrokerId,
    bytes_of: Mapping[tuple[BrokerId, TopicPartition], int],
    failed_directories: Mapping[BrokerId, Collection[str]],
) -> str:
    if broker not in view.brokers:
        if info.leader == NO_LEADER and broker in info.isr:
            return f"broker {broker} is down and has all committed records: start it"
        return f"broker {broker} is down: start it, or move its replicas away with: headrace cluster drain {broker}"
    here = bytes_of.get((broker, partition))
    if here is None and failed_directories.get(broker):
        where = ", ".join(sorted(failed_directories[broker]))
        return f"broker {broker} has lost the log directory {where}: replace the disk and restart the broker"
    if info.leader == NO_LEADER:
        if broker in info.isr:
            return f"broker {broker} is up and can lead: wait for the controller, or see the controller's log"
        return f"broker {broker} is up but not in sync, so it cannot lead"
    there = bytes_of.get((info.leader, partition))
    if here is None or there is None:
        return f"broker {broker} has not reported its log end offset"
    return f"broker {broker} is catching up: about {max(0, there - here)} bytes behind leader {info.leader}"
