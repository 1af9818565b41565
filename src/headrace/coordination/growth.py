"""May a topic get more partitions, and with which replicas: a decision without IO.

    count        how many there are to be afterwards: more than now
    assignment   one list of replicas for each new partition, as many as partition 0 has, every broker alive; or none,
                 and the new ones are spread by the algorithm of new topics, going on where the topic's own ended

Partitions are never taken away, and records stay where they are: from now on a key may go to another partition.
Source: Kafka's `AdminZkClient.addPartitions`, `ReplicationControlManager.createPartitions`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from headrace.coordination.assignment import Assignment, assign_replicas
from headrace.coordination.model import Broker, Topic
from headrace.errors import ErrorCode, KafkaError
from headrace.limits import PARTITIONS_PER_TOPIC_MAX
from headrace.types import BrokerId


class MorePartitions(NamedTuple):
    """A wish. `assignments` are the replicas of the new partitions alone, in their order; None leaves it to us."""

    name: str
    num_partitions: int
    assignments: Sequence[tuple[BrokerId, ...]] | None = None


def plan_growth(
    wish: MorePartitions, topics: Mapping[str, Topic], deleting: Collection[str], brokers: Mapping[BrokerId, Broker]
) -> Assignment:
    """The replicas of each new partition, by its number. Raises `KafkaError` with Kafka's code."""
    topic = topics.get(wish.name)
    if topic is None:
        raise KafkaError("This server does not host this topic-partition.", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if wish.name in deleting:
        raise KafkaError("The topic is queued for deletion.", ErrorCode.INVALID_TOPIC_EXCEPTION)
    if any(each.adding or each.removing for each in topic.partitions.values()):
        raise KafkaError(
            f"A partition reassignment is in progress for the topic '{wish.name}'.", ErrorCode.REASSIGNMENT_IN_PROGRESS
        )
    first = len(topic.partitions)
    _check_count(wish, first)
    factor = len(topic.partitions[0].replicas)
    if wish.assignments is None:
        return _spread(topic, brokers, wish.num_partitions - first)
    if len(wish.assignments) != wish.num_partitions - first:
        raise _bad_assignment(
            f"Attempted to add {wish.num_partitions - first} additional partition(s), but only {len(wish.assignments)} "
            "assignment(s) were specified."
        )
    for replicas in wish.assignments:
        _check_replicas(replicas, brokers, factor)
    return dict(enumerate(wish.assignments, first))


def _spread(topic: Topic, brokers: Mapping[BrokerId, Broker], count: int) -> Assignment:
    """Begins at the broker that leads partition 0, or the next that is there, so that the rows of all go on."""
    leader, *others = topic.partitions[0].replicas
    start_index = next((index for index, broker in enumerate(sorted(brokers)) if broker >= leader), 0)
    racks = {broker.id: broker.rack for broker in brokers.values()}
    return assign_replicas(
        racks, count, 1 + len(others), start_index=start_index, start_partition=len(topic.partitions)
    )


def _check_count(wish: MorePartitions, now: int) -> None:
    if wish.num_partitions == now:
        message = f"Topic already has {now} partition(s)."
    elif wish.num_partitions < now:
        message = (
            f"The topic {wish.name} currently has {now} partition(s); {wish.num_partitions} would not be an increase."
        )
    elif wish.num_partitions > PARTITIONS_PER_TOPIC_MAX:
        message = f"Number of partitions {wish.num_partitions} is above the limit of {PARTITIONS_PER_TOPIC_MAX}."
    else:
        return
    raise KafkaError(message, ErrorCode.INVALID_PARTITIONS)


def _check_replicas(replicas: tuple[BrokerId, ...], brokers: Mapping[BrokerId, Broker], factor: int) -> None:
    if not replicas:
        raise _bad_assignment("The manual partition assignment includes an empty replica list.")
    for broker in replicas:
        if broker not in brokers:
            raise _bad_assignment(
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            )
        if replicas.count(broker) > 1:
            raise _bad_assignment(f"The manual partition assignment includes the broker {broker} more than once.")
    if len(replicas) != factor:
        raise _bad_assignment(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {factor} replica(s)."
        )


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(message, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
