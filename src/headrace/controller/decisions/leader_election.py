"""ElectLeaders: preferred and unclean elections on request, and the controller's own leader balancing.

    preferred    elects the first replica; PREFERRED_LEADER_NOT_AVAILABLE unless it is alive, not suspected and in
                 the ISR
    unclean      elects any live replica of a partition without a live leader, although records are lost;
                 ELIGIBLE_LEADERS_NOT_AVAILABLE if no replica is alive
    balance      elects preferred leaders for brokers of whose partitions other brokers lead more than a percentage

Pure. Source: Kafka's `KafkaController.processReplicaLeaderElection`, `checkAndTriggerAutoLeaderRebalance`.
"""

from collections.abc import Iterable
from enum import IntEnum

from headrace.controller.decisions.cluster_state import ClusterState
from headrace.controller.decisions.elections import elect, elect_preferred
from headrace.errors import ErrorCode, KafkaError
from headrace.metadata.model import PartitionLeadership
from headrace.types import BrokerId, TopicPartition


class ElectionKind(IntEnum):
    """The election types of ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


def plan_election(
    state: ClusterState, partition: TopicPartition, kind: ElectionKind, controller_epoch: int
) -> PartitionLeadership:
    """The state to write. Raises `KafkaError` with Kafka's code if no election is needed or no replica may lead."""
    replicas = state.replicas(partition)
    if replicas is None:
        raise KafkaError("The partition does not exist.", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if partition.topic in state.deleting:
        raise KafkaError(f"Topic '{partition.topic}' is being deleted.", ErrorCode.INVALID_TOPIC_EXCEPTION)
    current = state.leadership.get(partition)
    live = state.online(partition)
    if kind is ElectionKind.PREFERRED:
        if current is not None and current.leader == replicas.replicas[0]:
            raise _not_needed(partition)
        elected = current and elect_preferred(
            replicas, current, live, controller_epoch, state.not_preferred, min_isr=state.min_isr(partition)
        )
        code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    else:
        if current is not None and current.leader in live:
            raise _not_needed(partition)
        elected = current and elect(
            replicas,
            current,
            live,
            controller_epoch,
            min_isr=state.min_isr(partition),
            unclean=True,
            leaving=state.shutting_down,
            suspected=state.suspected,
        )
        code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    if elected is None or not elected.has_leader:
        isr = () if current is None else current.isr
        raise KafkaError(f"Failed to elect leader for partition {partition}: the ISR is {list(isr)}.", code)
    return elected


def _not_needed(partition: TopicPartition) -> KafkaError:
    return KafkaError(f"Leader election not needed for partition {partition}.", ErrorCode.ELECTION_NOT_NEEDED)


def imbalanced(state: ClusterState, percentage: int) -> list[TopicPartition]:
    """The partitions to return to their preferred leaders, for brokers that lead too few of their partitions.

    Empty while any partition is being reassigned, because a reassignment moves leaders too.
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
    """The partitions whose preferred leader is alive, not suspected and in the ISR."""
    found, not_preferred = [], state.not_preferred
    for partition in partitions:
        current, replicas = state.leadership.get(partition), state.replicas(partition)
        if current is None or replicas is None:
            continue
        if elect_preferred(replicas, current, state.online(partition), 0, not_preferred) is not None:
            found.append(partition)
    return found
