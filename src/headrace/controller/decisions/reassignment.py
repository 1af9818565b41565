"""Partition reassignment: computes the state to write at each step. Pure.

    replicas  = target, then the replicas of the origin that are not in the target
    adding    = target - origin            these copy the partition
    removing  = origin - target            these keep the partition until the others have it

    begin      writes the replicas and raises the leader epoch; all brokers get the state, and new replicas fetch
    replace    sets another target before the first is reached; replicas added only for the first are dropped
    cancel     makes the origin the target again
    finish     once every replica of the target is in the ISR, writes the target alone, with ISR and leader within
               it, in the next leader epoch; removed replicas are deleted

One multi writes the topic's node and the partition's state, so a controller that takes over finds one step or the
next. Source: Kafka's `KafkaController.onPartitionReassignment`, `ReplicaAssignment`; KIP-455.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.controller.decisions.cluster_state import ClusterState
from headrace.controller.decisions.elections import elect_among, raise_epoch
from headrace.errors import ErrorCode, KafkaError
from headrace.metadata.model import PartitionLeadership, Replicas
from headrace.types import BrokerId, TopicPartition


class ReassignmentStep(NamedTuple):
    """One step of one partition: the state to write, and the replicas to drop and to add."""

    replicas: Replicas
    leadership: PartitionLeadership | None  # None while the partition has never had a leader
    dropped: tuple[BrokerId, ...] = ()
    added: tuple[BrokerId, ...] = ()


def plan_reassignment(
    state: ClusterState,
    partition: TopicPartition,
    target: Sequence[BrokerId] | None,
    controller_epoch: int,
    *,
    keep_factor: bool = False,
) -> ReassignmentStep:
    """The first step to `target`, or back to the origin of the reassignment under way if `target` is None.

    `keep_factor` refuses another replication factor. Raises UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR, NO_REASSIGNMENT_IN_PROGRESS.
    """
    now = state.replicas(partition)
    if now is None:
        raise KafkaError("The partition does not exist.", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if partition.topic in state.deleting:
        raise KafkaError("The topic is queued for deletion.", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if target is None:
        if not now.is_moving:
            raise KafkaError("There is no reassignment to cancel.", ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        target = now.origin
    else:
        _check_target(state, now, target)
        if keep_factor and len(target) != len(now.target):
            raise KafkaError(
                f"The replication factor would change from {len(now.target)} to {len(target)}.",
                ErrorCode.INVALID_REPLICATION_FACTOR,
            )
    after = towards(now.origin, tuple(target))
    dropped = tuple(each for each in now.replicas if each not in after.replicas)
    added = tuple(each for each in after.adding if each not in now.replicas)
    current = state.leadership.get(partition)
    if current is None:
        return ReassignmentStep(after, None, dropped, added)
    if not dropped:
        return ReassignmentStep(after, raise_epoch(current, controller_epoch), dropped, added)
    kept = [each for each in after.replicas if each not in dropped]
    live, min_isr = state.online(partition), min(state.min_insync_replicas(partition.topic), len(kept))
    leadership = elect_among(kept, current, live, controller_epoch, min_isr=min_isr, suspected=state.suspected)
    if leadership is None:
        raise KafkaError(
            f"Partition {partition} cannot leave brokers {list(dropped)}: its ISR {list(current.isr)} has no other "
            "live broker.",
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        )
    return ReassignmentStep(after, leadership, dropped, added)


def towards(origin: Sequence[BrokerId], target: tuple[BrokerId, ...]) -> Replicas:
    """The replicas while `target` takes over from `origin`; the target alone if both are the same brokers."""
    removing = tuple(each for each in origin if each not in target)
    return Replicas((*target, *removing), tuple(each for each in target if each not in origin), removing)


def is_complete(state: ClusterState, partition: TopicPartition) -> bool:
    """Whether every replica of a reassignment's target is in the ISR."""
    replicas, current = state.replicas(partition), state.leadership.get(partition)
    if replicas is None or current is None or not replicas.is_moving or partition.topic in state.deleting:
        return False
    return set(replicas.target) <= set(current.isr)


def finish(state: ClusterState, partition: TopicPartition, controller_epoch: int) -> ReassignmentStep | None:
    """The last step; None while no replica of the target may lead."""
    replicas = state.topics[partition.topic].partitions[partition.partition]
    current = state.leadership[partition]
    live, min_isr = state.online(partition), min(state.min_insync_replicas(partition.topic), len(replicas.target))
    leadership = elect_among(
        replicas.target, current, live, controller_epoch, min_isr=min_isr, suspected=state.suspected
    )
    return None if leadership is None else ReassignmentStep(Replicas(replicas.target), leadership, replicas.removing)


def _check_target(state: ClusterState, now: Replicas, target: Sequence[BrokerId]) -> None:
    if not target:
        raise _refused("Empty replica list specified in partition reassignment.")
    if min(target) < 0:
        raise _refused(f"Invalid broker id in replica list {list(target)}.")
    if len(set(target)) < len(target):
        raise _refused(f"Duplicate replica ids in partition reassignment replica list: {list(target)}.")
    dead = [each for each in target if each not in now.origin and each not in state.brokers]
    if dead:
        raise _refused(
            f"Replica assignment {list(target)} has brokers that are not alive: {dead}. "
            f"The live brokers are {sorted(state.brokers)}."
        )


def _refused(message: str) -> KafkaError:
    return KafkaError(message, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
