"""What a leader asks of its ISR (AlterPartition), judged from what the controller knows. Pure.

    the controller's state is older than the leader's        NOT_CONTROLLER: another one decides by now
    an older leader epoch                                    FENCED_LEADER_EPOCH
    the leader, the ISR and its recovery as they are         granted, nothing written: the question was asked twice
    an older partition epoch                                 INVALID_UPDATE_VERSION
    from a broker that does not lead; an ISR without its
    leader or with what is no replica; a recovery of more
    than the leader, or begun by it                          INVALID_REQUEST
    a member that is not alive, about to stop, on a failed
    disk, or registered anew since it fetched (KIP-903)      INELIGIBLE_REPLICA

Source: Kafka's `KafkaController.processAlterPartition`; of KRaft's `ReplicationControlManager` what the former leaves
to the sender. KIP-497, KIP-704, KIP-841, KIP-903.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.coordination.cluster import ClusterState
from headrace.coordination.model import PartitionLeadership
from headrace.errors import ErrorCode
from headrace.types import BrokerId, LeaderEpoch, TopicPartition

ANY_EPOCH = -1
"""In place of a broker epoch that the sender does not tell."""


class IsrMember(NamedTuple):
    """A broker, and the epoch of the registration with which it fetched."""

    id: BrokerId
    epoch: int = ANY_EPOCH


class IsrChange(NamedTuple):
    """One partition's wish, as the leader saw it in `partition_epoch`."""

    partition: TopicPartition
    leader_epoch: LeaderEpoch
    isr: Sequence[IsrMember]
    partition_epoch: int
    is_recovering: bool = False


class Judgement(NamedTuple):
    """A refusal, or the state of the partition: to be written, or as it is."""

    error: ErrorCode
    state: PartitionLeadership | None = None
    is_changed: bool = False


def is_from_the_living(state: ClusterState, broker_id: BrokerId, broker_epoch: int) -> bool:
    """Whether a request was sent by a broker in its present registration."""
    broker = state.brokers.get(broker_id)
    return broker is not None and broker.epoch == broker_epoch


def judge(state: ClusterState, sender: BrokerId, change: IsrChange, controller_epoch: int) -> Judgement:
    """What becomes of one partition's wish."""
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
    changed = current._replace(isr=isr, is_recovering=change.is_recovering, controller_epoch=controller_epoch)
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
