"""Elections that somebody asks for: of preferred leaders, and unclean ones; and which the controller asks for itself.

    preferred    first of the replicas; PREFERRED_LEADER_NOT_AVAILABLE unless it is alive and in the ISR
    unclean      for a partition without a live leader: whoever is alive, though records are lost;
                 ELIGIBLE_LEADERS_NOT_AVAILABLE when nobody is
    balance      brokers of which more than a percentage of the partitions that they should lead is led by others

Pure. Source: Kafka's `KafkaController.processReplicaLeaderElection`, `checkAndTriggerAutoLeaderRebalance`.
"""

from collections.abc import Iterable
from enum import IntEnum

from headrace.coordination.cluster import ClusterState
from headrace.coordination.elections import elect, elect_preferred
from headrace.coordination.model import PartitionLeadership
from headrace.errors import ErrorCode, KafkaError
from headrace.types import BrokerId, TopicPartition


class ElectionKind(IntEnum):
    """ElectLeaders' numbers."""

    PREFERRED = 0
    UNCLEAN = 1


def plan_election(
    state: ClusterState, partition: TopicPartition, kind: ElectionKind, controller_epoch: int
) -> PartitionLeadership:
    """The state to write. Raises `KafkaError` with Kafka's code when there is nothing to do or nobody to do it."""
    replicas = state.replicas(partition)
    if replicas is None:
        raise KafkaError("The partition does not exist.", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if partition.topic in state.deleting:
        raise KafkaError("The topic is being deleted", ErrorCode.INVALID_TOPIC_EXCEPTION)
    current = state.leadership.get(partition)
    live = state.online(partition)
    if kind is ElectionKind.PREFERRED:
        if current is not None and current.leader == replicas.replicas[0]:
            raise _not_needed(partition)
        elected = current and elect_preferred(replicas, current, live, controller_epoch, state.shutting_down)
        code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    else:
        if current is not None and current.leader in live:
            raise _not_needed(partition)
        elected = current and elect(
            replicas, current, live, controller_epoch, unclean=True, leaving=state.shutting_down
        )
        code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    if elected is None or not elected.has_leader:
        isr = () if current is None else current.isr
        raise KafkaError(f"Failed to elect leader for partition {partition}: the ISR is {list(isr)}.", code)
    return elected


def _not_needed(partition: TopicPartition) -> KafkaError:
    return KafkaError(f"Leader election not needed for partition {partition}.", ErrorCode.ELECTION_NOT_NEEDED)


def imbalanced(state: ClusterState, percentage: int) -> list[TopicPartition]:
    """The partitions to give back to their preferred leaders, of brokers that lead too few of those that are theirs.

    None while partitions are being reassigned: that moves leaders too.
    """
    preferred: dict[BrokerId, list[TopicPartition]] = {}
    for partition, replicas in state.partitions():
        if partition.topic not in state.deleting:
            preferred.setdefault(replicas.replicas[0], []).append(partition)
        if replicas.is_moving:
            return []
    wanted: list[TopicPartition] = []
    for broker, partitions in preferred.items():
        elsewhere = [each for each in partitions if _is_led_by_another(state, each, broker)]
        if broker in state.brokers and len(elsewhere) * 100 > percentage * len(partitions):
            wanted += elsewhere
    return wanted


def _is_led_by_another(state: ClusterState, partition: TopicPartition, preferred: BrokerId) -> bool:
    current = state.leadership.get(partition)
    return current is not None and current.leader != preferred


def electable(state: ClusterState, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Those of the partitions whose preferred leader could lead now."""
    found = []
    for partition in partitions:
        current, replicas = state.leadership.get(partition), state.replicas(partition)
        if current is None or replicas is None:
            continue
        if elect_preferred(replicas, current, state.online(partition), 0, state.shutting_down) is not None:
            found.append(partition)
    return found
