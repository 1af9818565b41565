"""Who leads a partition: decisions from its replicas, its ISR and the brokers that are alive. Pure.

    new        no state yet      the first live replica leads; the ISR is every live replica
    keep       leader alive      nothing
    restart    leader alive, but registered anew since the state was written: same leader, next leader epoch
    offline    leader gone       the first live replica, in the order of the replicas, that is in the ISR
    unclean    none such         only where `unclean.leader.election.enable` says so: the first live replica,
                                 the ISR is that one alone, and what only the old ISR had is lost
    none       none at all       leader -1; the ISR is kept, for it says who has what is committed

A leader epoch never repeats for two terms. Apache Kafka keeps the epoch when a leader is back before anybody noticed
it gone; we raise it, because a leader that came back from a crash may have lost the end of its log, and clients and
followers can see that (KIP-320, KIP-101) only by a new epoch.
Source: Kafka's `PartitionStateMachine`, `PartitionLeaderElectionAlgorithms`.
"""

from collections.abc import Mapping

from headrace.coordination.model import INITIAL_LEADER_EPOCH, Broker, PartitionLeadership, Replicas
from headrace.types import NO_LEADER, BrokerId, LeaderEpoch, TopicPartition


def elect_new(replicas: Replicas, live: Mapping[BrokerId, Broker], controller_epoch: int) -> PartitionLeadership | None:
    """The first state of a partition, or None while no replica is alive."""
    alive = tuple(broker for broker in replicas.replicas if broker in live)
    return PartitionLeadership(alive[0], INITIAL_LEADER_EPOCH, alive, controller_epoch) if alive else None


def elect_all_new(
    topic: str, partitions: Mapping[int, Replicas], live: Mapping[BrokerId, Broker], controller_epoch: int
) -> dict[TopicPartition, PartitionLeadership]:
    """`elect_new` for partitions of one topic, without those that nobody can lead yet."""
    elected = {
        TopicPartition(topic, number): elect_new(replicas, live, controller_epoch)
        for number, replicas in partitions.items()
    }
    return {partition: leadership for partition, leadership in elected.items() if leadership is not None}


def elect(
    replicas: Replicas,
    state: PartitionLeadership,
    live: Mapping[BrokerId, Broker],
    controller_epoch: int,
    *,
    unclean: bool = False,
) -> PartitionLeadership | None:
    """The state to write over `state` (same `partition_epoch`, for the version check), or None to keep it."""
    leader = live.get(state.leader)
    if leader is not None and leader.epoch <= state.mzxid:
        return None
    alive = [broker for broker in replicas.replicas if broker in live]
    in_sync = tuple(broker for broker in state.isr if broker in live)
    if leader is not None and state.leader in in_sync:
        return _next(state, state.leader, in_sync, controller_epoch)
    for broker in alive:
        if broker in in_sync:
            return _next(state, broker, in_sync, controller_epoch)
    if unclean and alive:
        return _next(state, alive[0], (alive[0],), controller_epoch)._replace(is_recovering=True)
    return _next(state, NO_LEADER, state.isr, controller_epoch) if state.has_leader else None


def _next(
    state: PartitionLeadership, leader: BrokerId, isr: tuple[BrokerId, ...], controller_epoch: int
) -> PartitionLeadership:
    return state._replace(
        leader=leader,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        isr=isr,
        controller_epoch=controller_epoch,
        is_recovering=state.is_recovering and leader == NO_LEADER,  # a clean election ends it
    )
