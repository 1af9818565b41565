"""ISR changes (AlterPartition): grants or refuses a leader's change of its ISR. Pure.

    the leader's epochs are newer than the controller's      NOT_CONTROLLER: there is a newer controller
    an older leader epoch                                    FENCED_LEADER_EPOCH
    leader, ISR and recovery state unchanged                 granted, nothing written: the request was repeated
    an older partition epoch                                 INVALID_UPDATE_VERSION
    the sender is not the leader; the ISR lacks the leader
    or has a broker that is no replica; a recovering ISR
    has more than the leader, or the leader starts the
    recovery                                                 INVALID_REQUEST
    a member is not alive, about to stop, on a failed log
    directory, or registered anew since it fetched           INELIGIBLE_REPLICA

Source: Kafka's `KafkaController.processAlterPartition`, and the checks of KRaft's `ReplicationControlManager` that the
former leaves to the sender. KIP-497, KIP-704, KIP-841, KIP-903.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.controller.decisions.cluster_state import ClusterState
from headrace.controller.decisions.eligible_replicas import eligible_after
from headrace.errors import ErrorCode
from headrace.metadata.model import PartitionLeadership
from headrace.types import BrokerId, LeaderEpoch, TopicPartition

ANY_EPOCH = -1
"""The broker epoch of a sender that does not know it (before AlterPartition 3)."""


class IsrMember(NamedTuple):
    """A member of the ISR, and the broker epoch with which it fetched."""

    id: BrokerId
    epoch: int = ANY_EPOCH


class IsrChange(NamedTuple):
    """The requested ISR of one partition, over the state of `partition_epoch`."""

    partition: TopicPartition
    leader_epoch: LeaderEpoch
    isr: Sequence[IsrMember]
    partition_epoch: int
    is_recovering: bool = False


class Judgement(NamedTuple):
    """A refusal, or the partition's state: to be written if `is_changed`, else the current one."""

    error: ErrorCode
    state: PartitionLeadership | None = None
    is_changed: bool = False


def has_current_epoch(state: ClusterState, broker_id: BrokerId, broker_epoch: int) -> bool:
    """Whether a request comes from a live broker in its current registration."""
    broker = state.brokers.get(broker_id)
    return broker is not None and broker.epoch == broker_epoch


def judge(state: ClusterState, sender: BrokerId, change: IsrChange, controller_epoch: int) -> Judgement:
    """Grants or refuses the ISR change of one partition."""
    current = state.leadership.get(change.partition)
    replicas = state.replicas(change.partition)
    if current is None or replicas is None or change.partition.topic in state.deleting:
        return Judgement(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    isr = tuple(member.id for member in change.isr)
    if change.leader_epoch > current.leader_epoch or change.partition_epoch > current.partition_epoch:
        return Judgement(ErrorCode.NOT_CONTROLLER)
    if change.leader_epoch < current.leader_epoch:
        return Judgement(ErrorCode.FENCED_LEADER_EPOCH)
    if sender == current.leader and isr == current.isr and change.is_recovering == current.is_recovering:
        return Judgement(ErrorCode.NONE, current)
    if change.partition_epoch < current.partition_epoch:
        return Judgement(ErrorCode.INVALID_UPDATE_VERSION)
    is_fitting = sender == current.leader and sender in isr and set(isr) <= set(replicas.replicas)
    begins_recovery = change.is_recovering and (len(isr) > 1 or not current.is_recovering)
    if not is_fitting or begins_recovery or len(set(isr)) < len(isr):
        return Judgement(ErrorCode.INVALID_REQUEST)
    if not all(_is_eligible(state, change.partition, member, current) for member in change.isr):
        return Judgement(ErrorCode.INELIGIBLE_REPLICA)
    changed = current._replace(
        isr=isr,
        is_recovering=change.is_recovering,
        controller_epoch=controller_epoch,
        eligible=eligible_after(
            current,
            sender,
            isr,
            replicas=replicas.replicas,
            live=state.brokers,
            min_isr=state.min_isr(change.partition),
        ),
    )
    return Judgement(ErrorCode.NONE, changed, is_changed=True)


def _is_eligible(
    state: ClusterState, partition: TopicPartition, member: IsrMember, current: PartitionLeadership
) -> bool:
    if member.id == current.leader:
        return True
    broker = state.online(partition).get(member.id)
    if broker is None or member.id in state.shutting_down:
        return False
    return member.epoch in (ANY_EPOCH, broker.epoch)
