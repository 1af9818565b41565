"""What a broker that asks to stop (ControlledShutdown) leaves to others. Pure.

    it leads       another live member of the ISR leads; it leaves the ISR and follows
    it follows     it leaves the ISR and lets go of the replica, unless it is all of the ISR
    nobody else    it goes on leading: such partitions are what remains, and the broker asks again

Partitions of one replica are not counted: nobody could take them over.
Source: Kafka's `KafkaController.doControlledShutdown`.
"""

from dataclasses import dataclass, field

from headrace.coordination.cluster import ClusterState
from headrace.coordination.elections import elect_for_shutdown, leave_isr
from headrace.coordination.model import PartitionLeadership
from headrace.types import BrokerId, TopicPartition


@dataclass(slots=True)
class Departure:
    """What is to be written, and which of the broker's replicas it stops following."""

    changes: dict[TopicPartition, PartitionLeadership] = field(default_factory=dict)
    stopped: list[TopicPartition] = field(default_factory=list)


def plan_departure(state: ClusterState, broker: BrokerId, controller_epoch: int) -> Departure:
    """`broker` must be in `shutting_down` already."""
    departure = Departure()
    for partition in _replicated(state, broker):
        current = state.leadership[partition]
        replicas = state.topics[partition.topic].partitions[partition.partition]
        if current.leader == broker:
            live = state.online(partition)
            changed = elect_for_shutdown(replicas, current, live, controller_epoch, state.shutting_down)
        else:
            departure.stopped.append(partition)
            changed = leave_isr(current, broker, controller_epoch)
        if changed is not None:
            departure.changes[partition] = changed
    return departure


def remaining(state: ClusterState, broker: BrokerId) -> list[TopicPartition]:
    """The replicated partitions that the broker leads still."""
    return [each for each in _replicated(state, broker) if state.leadership[each].leader == broker]


def _replicated(state: ClusterState, broker: BrokerId) -> list[TopicPartition]:
    return [
        partition
        for partition, replicas in state.partitions()
        if broker in replicas.replicas
        and len(replicas.replicas) > 1
        and partition in state.leadership
        and partition.topic not in state.deleting
    ]
