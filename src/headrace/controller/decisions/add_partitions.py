"""CreatePartitions: checks a request for more partitions and assigns their replicas. Pure.

    count        the number of partitions afterwards: more than now
    assignment   one list of replicas for each new partition, as many as partition 0 has, every broker alive; without
                 it, the algorithm of new topics continues where the topic's own assignment ended

Partitions are never removed, and records stay where they are, so a key may map to another partition from now on.
Source: Kafka's `AdminZkClient.addPartitions`, `ReplicationControlManager.createPartitions`.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from headrace.controller.decisions.assignment import Assignment, assign_replicas
from headrace.errors import ErrorCode, KafkaError
from headrace.limits import PARTITIONS_PER_TOPIC_MAX
from headrace.metadata.model import Broker, Topic
from headrace.types import BrokerId


class NewPartitions(NamedTuple):
    """A request. `assignments` are the replicas of the new partitions only, in order; None lets the controller assign
    them."""

    name: str
    num_partitions: int
    assignments: Sequence[tuple[BrokerId, ...]] | None = None


def plan_growth(
    request: NewPartitions, topics: Mapping[str, Topic], deleting: Collection[str], brokers: Mapping[BrokerId, Broker]
) -> Assignment:
    """The replicas of each new partition, by its number. Raises `KafkaError` with Kafka's code."""
    topic = topics.get(request.name)
    if topic is None:
        raise KafkaError("This server does not host this topic-partition.", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if request.name in deleting:
        raise KafkaError("The topic is queued for deletion.", ErrorCode.INVALID_TOPIC_EXCEPTION)
    if any(each.adding or each.removing for each in topic.partitions.values()):
        raise KafkaError(
            f"A partition reassignment is in progress for the topic '{request.name}'.",
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
        )
    first = len(topic.partitions)
    _check_count(request, first)
    factor = len(topic.partitions[0].replicas)
    if request.assignments is None:
        return _spread(topic, brokers, request.num_partitions - first)
    if len(request.assignments) != request.num_partitions - first:
        raise _bad_assignment(
            f"Attempted to add {request.num_partitions - first} additional partition(s), but only "
            f"{len(request.assignments)} assignment(s) were specified."
        )
    for replicas in request.assignments:
        _check_replicas(replicas, brokers, factor)
    return dict(enumerate(request.assignments, first))


def _spread(topic: Topic, brokers: Mapping[BrokerId, Broker], count: int) -> Assignment:
    """Starts at the preferred leader of partition 0, or the next live broker, so that the round robin continues."""
    leader, *others = topic.partitions[0].replicas
    start_index = next((index for index, broker in enumerate(sorted(brokers)) if broker >= leader), 0)
    racks = {broker.id: broker.rack for broker in brokers.values()}
    return assign_replicas(
        racks, count, 1 + len(others), start_index=start_index, start_partition=len(topic.partitions)
    )


def _check_count(request: NewPartitions, now: int) -> None:
    if request.num_partitions == now:
        message = f"Topic already has {now} partition(s)."
    elif request.num_partitions < now:
        message = (
            f"The topic {request.name} currently has {now} partition(s); "
            f"{request.num_partitions} would not be an increase."
        )
    elif request.num_partitions > PARTITIONS_PER_TOPIC_MAX:
        message = f"Number of partitions {request.num_partitions} is above the limit of {PARTITIONS_PER_TOPIC_MAX}."
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
    if len(set(replicas)) < len(replicas):
        broker = next(each for each, times in Counter(replicas).items() if times > 1)
        raise _bad_assignment(f"The manual partition assignment includes the broker {broker} more than once.")
    if len(replicas) != factor:
        raise _bad_assignment(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {factor} replica(s)."
        )


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(message, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
