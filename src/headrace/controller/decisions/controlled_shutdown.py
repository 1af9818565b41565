"""ControlledShutdown: moves leadership and ISR membership away from a broker that stops. Pure.

    the broker leads       another live member of the ISR becomes leader; the broker leaves the ISR
    the broker follows     it leaves the ISR and stops the replica, unless it is the only member of the ISR
    no other candidate     the broker keeps leading; the response names such partitions, and the broker asks again

Partitions with one replica are ignored, because no other broker could take them over.
Source: Kafka's `KafkaController.doControlledShutdown`.
"""

from dataclasses import dataclass, field

from headrace.controller.decisions.cluster_state import ClusterState
from headrace.controller.decisions.elections import elect_for_shutdown, leave_isr
from headrace.metadata.model import PartitionLeadership
from headrace.types import BrokerId, TopicPartition


@dataclass(slots=True)
class Departure:
    """The states to write, and the partitions of which the broker stops its replica."""

    changes: dict[TopicPartition, PartitionLeadership] = field(default_factory=dict)
    stopped: list[TopicPartition] = field(default_factory=list)


def plan_departure(state: ClusterState, broker: BrokerId, controller_epoch: int) -> Departure:
    """`broker` must be in `shutting_down` already."""
    departure = Departure()
    for partition in _replicated(state, broker):
        current = state.leadership[partition]
        replicas = state.topics[partition.topic].partitions[partition.partition]
        live, min_isr = state.online(partition), state.min_isr(partition)
        if current.leader == broker:
            changed = elect_for_shutdown(
                replicas,
                current,
                live,
                controller_epoch,
                state.shutting_down,
                min_isr=min_isr,
                suspected=state.suspected,
            )
        else:
            departure.stopped.append(partition)
            changed = leave_isr(replicas, current, live, controller_epoch, broker, min_isr=min_isr)
        if changed is not None:
            departure.changes[partition] = changed
    return departure


def remaining(state: ClusterState, broker: BrokerId) -> list[TopicPartition]:
    """The replicated partitions that the broker still leads."""
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
