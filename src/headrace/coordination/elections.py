"""Who leads a partition: decisions from its replicas, its ISR and the brokers that are alive. Pure.

    new          no state yet      the first live replica leads; the ISR is every live replica
    keep         leader alive      and the ISR too: nothing
    shrink       leader alive      who went leaves the ISR, in the next leader epoch
    restart      leader alive, but registered anew since the state was written: same leader, next leader epoch
    offline      leader gone       the first live replica, in the order of the replicas, that is in the ISR
    unclean      none such         only where `unclean.leader.election.enable` says so: the first live replica,
                                   the ISR is that one alone, and what only the old ISR had is lost
    none         none at all       leader -1; the ISR is kept, for it says who has what is committed
    preferred    the first of the replicas, if it is alive and in the ISR; the ISR is kept
    shutdown     leader stopping   another live member of the ISR, which the leader leaves

A leader epoch never repeats for two terms. Apache Kafka keeps the epoch when a leader is back before anybody noticed
it gone; we raise it, because a leader that came back from a crash may have lost the end of its log, and clients and
followers can see that (KIP-320, KIP-101) only by a new epoch.

For the same reason a broker that has registered after a crash leaves the ISR, until it has caught up: as leader it
could make the others cut off what was committed. Only where nobody else of the ISR lives it stays, and alone.
Source: Kafka's `PartitionStateMachine`, `PartitionLeaderElectionAlgorithms`, `ReplicaStateMachine`; KIP-966.
"""

from collections.abc import Collection, Mapping, Sequence

from headrace.coordination.model import INITIAL_LEADER_EPOCH, Broker, PartitionLeadership, Replicas
from headrace.types import NO_LEADER, BrokerId, LeaderEpoch, TopicPartition

Live = Mapping[BrokerId, Broker]
"""The brokers that are alive, and whose disks work as far as the partition in question goes."""


def elect_new(
    replicas: Replicas, live: Live, controller_epoch: int, leaving: Collection[BrokerId] = ()
) -> PartitionLeadership | None:
    """The first state of a partition, or None while no replica is alive."""
    alive = tuple(broker for broker in replicas.replicas if broker in live and broker not in leaving)
    return PartitionLeadership(alive[0], INITIAL_LEADER_EPOCH, alive, controller_epoch) if alive else None


def elect_all_new(
    topic: str,
    partitions: Mapping[int, Replicas],
    live: Live,
    controller_epoch: int,
    leaving: Collection[BrokerId] = (),
) -> dict[TopicPartition, PartitionLeadership]:
    """`elect_new` for partitions of one topic, without those that nobody can lead yet."""
    elected = {
        TopicPartition(topic, number): elect_new(replicas, live, controller_epoch, leaving)
        for number, replicas in partitions.items()
    }
    return {partition: leadership for partition, leadership in elected.items() if leadership is not None}


def elect(
    replicas: Replicas,
    state: PartitionLeadership,
    live: Live,
    controller_epoch: int,
    *,
    unclean: bool = False,
    leaving: Collection[BrokerId] = (),
) -> PartitionLeadership | None:
    """The state to write over `state` (same `partition_epoch`, for the version check), or None to keep it.

    `leaving` are live brokers that have asked to stop: they go on leading, and are not elected.
    """
    in_sync = _trusted(state, live, replicas.replicas)
    leader = live.get(state.leader)
    if leader is not None and state.leader in in_sync:
        if in_sync == state.isr and leader.epoch <= state.mzxid:
            return None
        return _next(state, state.leader, in_sync, controller_epoch)
    candidates = [broker for broker in replicas.replicas if broker in live and broker not in leaving]
    for broker in candidates:
        if broker in in_sync:
            return _next(state, broker, in_sync, controller_epoch)
    if unclean and candidates:
        return _next(state, candidates[0], (candidates[0],), controller_epoch)._replace(is_recovering=True)
    return _next(state, NO_LEADER, state.isr, controller_epoch) if state.has_leader else None


def elect_preferred(
    replicas: Replicas,
    state: PartitionLeadership,
    live: Live,
    controller_epoch: int,
    leaving: Collection[BrokerId] = (),
) -> PartitionLeadership | None:
    """Has the first of the replicas lead; None when it is not alive, not in the ISR, or about to stop."""
    preferred = replicas.replicas[0]
    if preferred not in live or preferred not in state.isr or preferred in leaving:
        return None
    return _next(state, preferred, state.isr, controller_epoch)


def elect_for_shutdown(
    replicas: Replicas, state: PartitionLeadership, live: Live, controller_epoch: int, leaving: Collection[BrokerId]
) -> PartitionLeadership | None:
    """Has a broker lead that is not about to stop, and takes those that are from the ISR; None when there is none."""
    in_sync = tuple(broker for broker in state.isr if broker in live and broker not in leaving)
    for broker in replicas.replicas:
        if broker in in_sync:
            return _next(state, broker, in_sync, controller_epoch)
    return None


def leave_isr(state: PartitionLeadership, broker: BrokerId, controller_epoch: int) -> PartitionLeadership | None:
    """The ISR without a follower; None when it is not in it, or alone."""
    if broker not in state.isr or len(state.isr) == 1 or broker == state.leader:
        return None
    return _next(state, state.leader, tuple(each for each in state.isr if each != broker), controller_epoch)


def elect_among(
    target: Sequence[BrokerId], state: PartitionLeadership, live: Live, controller_epoch: int
) -> PartitionLeadership | None:
    """Leader and ISR when only `target` are replicas, in the next epoch; None when nobody of them may lead."""
    in_sync = tuple(broker for broker in state.isr if broker in target)
    if state.leader in in_sync and state.leader in live:
        return _next(state, state.leader, in_sync, controller_epoch)
    for broker in target:
        if broker in in_sync and broker in live:
            return _next(state, broker, in_sync, controller_epoch)
    return None


def raise_epoch(state: PartitionLeadership, controller_epoch: int) -> PartitionLeadership:
    """The same leader and ISR in the next leader epoch."""
    return _next(state, state.leader, state.isr, controller_epoch)


def _trusted(state: PartitionLeadership, live: Live, order: Sequence[BrokerId]) -> tuple[BrokerId, ...]:
    """Who is alive of the ISR, without those that came back from a crash since the state was written."""
    alive = [broker for broker in state.isr if broker in live]
    whole = tuple(broker for broker in alive if live[broker].is_clean or live[broker].epoch <= state.mzxid)
    if whole or not alive:
        return whole
    if state.leader in alive:
        return (state.leader,)
    return tuple(broker for broker in order if broker in alive)[:1]


def _next(
    state: PartitionLeadership, leader: BrokerId, isr: tuple[BrokerId, ...], controller_epoch: int
) -> PartitionLeadership:
    return state._replace(
        leader=leader,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        isr=isr,
        controller_epoch=controller_epoch,
        is_recovering=state.is_recovering and leader in (NO_LEADER, state.leader),  # a clean election ends it
    )
