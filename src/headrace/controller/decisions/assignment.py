"""Replica assignment: Kafka's algorithm that places the replicas of new partitions on brokers.

Without racks, five brokers, ten partitions, three replicas, start index 0, shift 0:

    broker-0  broker-1  broker-2  broker-3  broker-4
    p0        p1        p2        p3        p4         first replica: round the brokers
    p5        p6        p7        p8        p9
    p4        p0        p1        p2        p3         second: shifted by one
    p8        p9        p5        p6        p7         ... by one more on each round of the brokers
    p3        p4        p0        p1        p2         third
    p7        p8        p9        p5        p6

Each broker leads the same number of partitions and follows the same number. The followers of one broker's partitions
are spread over all other brokers. With racks, the order of the brokers alternates racks, the shift is a whole round of
racks, and a broker is skipped while its rack has a replica and another rack has none.
Source: Kafka's `AdminUtils`. The caller passes the random start, so that decisions can be repeated.
"""

from collections.abc import Mapping, Sequence

from headrace.errors import ErrorCode, KafkaError
from headrace.types import BrokerId

Assignment = dict[int, tuple[BrokerId, ...]]


def assign_replicas(
    brokers: Mapping[BrokerId, str | None],
    partition_count: int,
    replication_factor: int,
    *,
    start_index: int,
    shift: int | None = None,
    start_partition: int = 0,
) -> Assignment:
    """The replicas of each partition, the preferred leader first.

    `brokers` maps ids to racks; racks count only when every broker has one. `start_index` and `shift` (by default
    the same) are any numbers >= 0. `start_partition` is the first new number when partitions are added to a topic.
    Raises INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR.
    """
    check_counts(len(brokers), partition_count, replication_factor)
    racks = {broker: rack for broker, rack in brokers.items() if rack is not None}
    rack_aware = len(racks) == len(brokers)
    order = alternate_racks(racks) if rack_aware else sorted(brokers)
    shift = start_index if shift is None else shift
    made: Assignment = {}
    for partition in range(start_partition, start_partition + partition_count):
        if partition > 0 and partition % len(order) == 0:
            shift += 1
        first = (partition + start_index) % len(order)
        if rack_aware:
            made[partition] = _spread_over_racks(order, racks, first, shift, replication_factor)
        else:
            others = (order[_replica_index(first, shift, j, len(order))] for j in range(replication_factor - 1))
            made[partition] = (order[first], *others)
    return made


def check_counts(broker_count: int, partition_count: int, replication_factor: int) -> None:
    """Raises INVALID_PARTITIONS or INVALID_REPLICATION_FACTOR, in Kafka's words."""
    if partition_count <= 0:
        raise KafkaError("Number of partitions must be larger than 0.", ErrorCode.INVALID_PARTITIONS)
    if replication_factor <= 0:
        raise KafkaError("Replication factor must be larger than 0.", ErrorCode.INVALID_REPLICATION_FACTOR)
    if replication_factor > broker_count:
        raise KafkaError(
            f"Replication factor: {replication_factor} larger than available brokers: {broker_count}.",
            ErrorCode.INVALID_REPLICATION_FACTOR,
        )


def alternate_racks(racks: Mapping[BrokerId, str]) -> list[BrokerId]:
    """All brokers, ordered so that neighbours are in different racks while more than one rack has brokers left.

    rack1: 0, 1, 2   rack2: 3, 4, 5   rack3: 6, 7, 8   gives   0, 3, 6, 1, 4, 7, 2, 5, 8
    """
    by_rack: dict[str, list[BrokerId]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max((len(column) for column in columns), default=0)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def _replica_index(first: int, shift: int, replica: int, broker_count: int) -> int:
    """The index of the `replica`-th follower: never the leader's, and distinct for each replica < broker_count - 1."""
    return (first + 1 + (shift + replica) % (broker_count - 1)) % broker_count


def _spread_over_racks(
    order: Sequence[BrokerId], racks: Mapping[BrokerId, str], first: int, shift: int, replication_factor: int
) -> tuple[BrokerId, ...]:
    rack_count = len(set(racks.values()))
    chosen = [order[first]]
    racks_used = {racks[order[first]]}
    tried = 0
    while len(chosen) < replication_factor:
        broker = order[_replica_index(first, shift * rack_count, tried, len(order))]
        tried += 1
        rack_is_free = racks[broker] not in racks_used or len(racks_used) == rack_count
        if rack_is_free and broker not in chosen:
            chosen.append(broker)
            racks_used.add(racks[broker])
    return tuple(chosen)
