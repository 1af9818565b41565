"""Moves of replicas to other brokers: plans, their progress, and their cancellation.

A plan has each partition's new replicas, the preferred leader first. `ReplicaAdmin.reassign` starts it.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from time import sleep
from typing import TypeAlias

from headrace.client.core.metadata import ClusterView
from headrace.client.operations.health import partitions_of
from headrace.client.operations.placement import plan_move
from headrace.client.operations.replica_admin import ReplicaAdmin
from headrace.client.operations.selection import NotThere, check_brokers
from headrace.errors import ErrorCode, KafkaError
from headrace.types import BrokerId, TopicPartition

Plan: TypeAlias = Mapping[TopicPartition, Sequence[int]]

_LOOK_SECONDS = 0.5
_PLAN_FORM = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'


def plan_on(
    view: ClusterView,
    allowed: Collection[BrokerId],
    moving: Collection[TopicPartition],
    replication_factor: int | None = None,
) -> dict[TopicPartition, list[BrokerId]]:
    """A plan that uses only brokers of `allowed`, with the partitions that change. Raises NotThere and NoRoom.

    Partitions keep their number of replicas if `replication_factor` is None.
    """
    check_brokers(view, allowed)
    current = {partition: info.replicas for partition, info in partitions_of(view)}
    return plan_move(current, allowed, view.racks, moving=moving, replication_factor=replication_factor)


def plan_drain(view: ClusterView, broker: int) -> dict[TopicPartition, list[BrokerId]]:
    """A plan that moves every replica of a broker, live or not, to the others. Raises NotThere and NoRoom."""
    held = {partition for partition, info in partitions_of(view) if broker in info.replicas}
    if broker not in view.brokers and not held:
        raise NotThere(f"broker {broker} does not exist, and no partition has a replica on it")
    return plan_on(view, set(view.brokers) - {BrokerId(broker)}, held)


def parse_plan(text: str) -> dict[TopicPartition, list[int]]:
    """A plan in the format of kafka-reassign-partitions. Raises ValueError with the reason."""
    try:
        return {
            TopicPartition(str(each["topic"]), int(each["partition"])): [int(broker) for broker in each["replicas"]]
            for each in json.loads(text)["partitions"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{error!r}; expected {_PLAN_FORM}") from None


def wait_until_moved(
    admin: ReplicaAdmin, partitions: Collection[TopicPartition], on_moved: Callable[[int], None] = lambda count: None
) -> None:
    """Return when all moves have completed. Calls `on_moved` with the number of completed moves when it grows."""
    wanted, done = set(partitions), 0
    while moving := admin.reassignments().keys() & wanted:
        if len(wanted) - len(moving) > done:
            done = len(wanted) - len(moving)
            on_moved(done)
        sleep(_LOOK_SECONDS)
    on_moved(len(wanted))


def moves_under_way(admin: ReplicaAdmin, chosen: Collection[TopicPartition] | None = None) -> list[TopicPartition]:
    """The partitions that are being moved, in order; only those of `chosen` unless it is None."""
    return sorted(each for each in admin.reassignments() if chosen is None or each in chosen)


def cancel_moves(admin: ReplicaAdmin, moving: Collection[TopicPartition]) -> None:
    """Cancel these moves: the partitions return to their old brokers. Ignores moves that completed meanwhile."""
    if not moving:
        return
    try:
        admin.reassign(dict.fromkeys(moving))
    except KafkaError as error:
        if error.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
            raise
