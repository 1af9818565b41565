"""Leader election: chooses leader and ISR from a partition's replicas, its ISR and the live brokers. Pure.

    case         condition                   new state
    new          no state yet                the first live replica leads; the ISR is every live replica
    keep         leader and ISR alive        unchanged
    shrink       a follower gone             it leaves the ISR; next leader epoch
    restart      leader registered anew      same leader, next leader epoch
                 since the state was written
    offline      leader gone                 the first live replica, in assignment order, that is in the ISR
    eligible     no live replica in ISR      the first live eligible replica (see `eligible_replicas`), as the only
                                             ISR member
    unclean      none of these               with `unclean.leader.election.enable`: the first live replica, as the
                                             only ISR member; records that only the old ISR had are lost
    none         no candidate                leader -1; the ISR is kept, because it names the replicas that have every
                                             committed record
    preferred    on request                  the first replica, if it is alive, not suspected and in the ISR; the ISR
                                             is kept
    shutdown     leader stopping             another live member of the ISR; the old leader leaves the ISR

A broker that the controller suspects (`fencing`), and that is not fenced, is elected only where no other may lead: it
counts as alive until its session ends, but nobody can tell it that it leads.

Each leadership has a leader epoch of its own. Apache Kafka keeps the epoch when a leader returns before the controller
noticed its absence. headrace raises it: a leader that returns from a crash may have lost the end of its log, and
clients and followers can detect that only by a new epoch (KIP-320, KIP-101).

For the same reason a broker that registers after a crash leaves the ISR until it has caught up: as leader it could make
followers truncate committed records. It stays only if no other member of the ISR is alive, and then alone; and not even
then if there are eligible replicas: these are the ISR from then on, alive or not. The time at which a state was written
does not show whether the crash was taken into account: a write that was decided before the controller saw the
registration may happen after it. So a broker counts as unclean until every state was elected again and a note of that
is in the metadata store (`leader_manager`).
Source: Kafka's `PartitionStateMachine`, `PartitionLeaderElectionAlgorithms`, `ReplicaStateMachine`; KIP-966.
"""

from collections.abc import Collection, Mapping, Sequence

from headrace.controller.decisions.eligible_replicas import eligible_after, still_eligible
from headrace.metadata.model import INITIAL_LEADER_EPOCH, Broker, PartitionLeadership, Replicas
from headrace.types import NO_LEADER, BrokerId, LeaderEpoch, TopicPartition

Live = Mapping[BrokerId, Broker]
"""The live brokers without those whose replica of the partition is on a failed log directory."""


def elect_new(
    replicas: Replicas,
    live: Live,
    controller_epoch: int,
    leaving: Collection[BrokerId] = (),
    suspected: Collection[BrokerId] = (),
) -> PartitionLeadership | None:
    """The first state of a partition, or None while no replica is alive."""
    alive = tuple(broker for broker in replicas.replicas if broker in live and broker not in leaving)
    if not alive:
        return None
    return PartitionLeadership(_reachable_first(alive, suspected)[0], INITIAL_LEADER_EPOCH, alive, controller_epoch)


def elect_all_new(
    topic: str,
    partitions: Mapping[int, Replicas],
    live: Live,
    controller_epoch: int,
    leaving: Collection[BrokerId] = (),
    suspected: Collection[BrokerId] = (),
) -> dict[TopicPartition, PartitionLeadership]:
    """`elect_new` for partitions of one topic, without those that have no live replica yet."""
    elected = {
        TopicPartition(topic, number): elect_new(replicas, live, controller_epoch, leaving, suspected)
        for number, replicas in partitions.items()
    }
    return {partition: leadership for partition, leadership in elected.items() if leadership is not None}


def elect(
    replicas: Replicas,
    state: PartitionLeadership,
    live: Live,
    controller_epoch: int,
    *,
    min_isr: int = 1,
    unclean: bool = False,
    leaving: Collection[BrokerId] = (),
    suspected: Collection[BrokerId] = (),
) -> PartitionLeadership | None:
    """The state to write over `state` (same `partition_epoch`, for the version check), or None to keep it.

    `min_isr`: `min.insync.replicas`, but at most the number of replicas. `leaving` are live brokers that have requested
    a controlled shutdown: they keep leading, but are not elected. `suspected` ones are elected only where no other may
    lead.
    """
    order = replicas.replicas
    eligible = still_eligible(state, replicas=order, live=live, min_isr=min_isr)

    def elected(broker: BrokerId, isr: tuple[BrokerId, ...]) -> PartitionLeadership:
        before = state if eligible == state.eligible else state._replace(eligible=eligible)
        left = eligible_after(before, broker, isr, replicas=order, live=live, min_isr=min_isr)
        return _next(state, broker, isr, controller_epoch, left)

    in_sync = _trusted(state, live, order, eligible)
    leader = live.get(state.leader)
    if leader is not None and state.leader in in_sync:
        if in_sync == state.isr and leader.is_clean and leader.epoch <= state.mzxid:
            if eligible == state.eligible:
                return None
            return state._replace(eligible=eligible, controller_epoch=controller_epoch)
        return elected(state.leader, in_sync)
    candidates = [broker for broker in _reachable_first(order, suspected) if broker in live and broker not in leaving]
    for broker in candidates:
        if broker in in_sync:
            return elected(broker, in_sync)
    for broker in candidates:
        if broker in eligible and live[broker].directory is not None:
            return elected(broker, (broker,))
    if unclean and candidates:
        return _next(state, candidates[0], (candidates[0],), controller_epoch)._replace(is_recovering=True)
    if eligible and any(broker in live and not live[broker].is_clean for broker in state.isr):
        rest = (*(each for each in state.isr if each not in live or live[each].is_clean), *eligible)
        return _next(state, NO_LEADER, rest, controller_epoch)
    if state.has_leader:
        return _next(state, NO_LEADER, state.isr, controller_epoch, eligible)
    return state._replace(eligible=eligible, controller_epoch=controller_epoch) if eligible != state.eligible else None


class SameElections:
    """`elect` of many partitions by one view of the live brokers. Many have the same replicas, leader and ISR, so each
    case is decided once: what follows from it differs in the epochs only."""

    def __init__(
        self,
        live: Live,
        controller_epoch: int,
        *,
        leaving: Collection[BrokerId] = (),
        suspected: Collection[BrokerId] = (),
    ) -> None:
        self._live, self._controller_epoch = live, controller_epoch
        self._leaving, self._suspected = leaving, suspected
        self._known: dict[tuple[object, ...], _Outcome | None] = {}

    def elect(self, replicas: Replicas, state: PartitionLeadership, *, min_isr: int = 1) -> PartitionLeadership | None:
        """See the function `elect`."""
        leader, leader_epoch, isr, _, partition_epoch, mzxid, is_recovering, eligible = state
        broker = self._live.get(leader)
        is_registered_since = broker is not None and broker.epoch > mzxid
        case = replicas.replicas, leader, isr, is_recovering, eligible, min_isr, is_registered_since
        if case in self._known:
            outcome = self._known[case]
        else:
            outcome = self._known[case] = self._decided(replicas, state, min_isr)
        if outcome is None:
            return None
        leader, raised, isr, is_recovering, eligible = outcome
        return PartitionLeadership(
            leader,
            LeaderEpoch(leader_epoch + raised),
            isr,
            self._controller_epoch,
            partition_epoch,
            mzxid,
            is_recovering,
            eligible,
        )

    def _decided(self, replicas: Replicas, state: PartitionLeadership, min_isr: int) -> "_Outcome | None":
        new = elect(
            replicas,
            state,
            self._live,
            self._controller_epoch,
            min_isr=min_isr,
            leaving=self._leaving,
            suspected=self._suspected,
        )
        if new is None:
            return None
        return new.leader, new.leader_epoch - state.leader_epoch, new.isr, new.is_recovering, new.eligible


_Outcome = tuple[BrokerId, int, tuple[BrokerId, ...], bool, tuple[BrokerId, ...]]
"""(leader, by how much the leader epoch is raised, ISR, whether it recovers, eligible replicas)."""


def elect_preferred(
    replicas: Replicas,
    state: PartitionLeadership,
    live: Live,
    controller_epoch: int,
    leaving: Collection[BrokerId] = (),
    *,
    min_isr: int = 1,
) -> PartitionLeadership | None:
    """Elects the first replica; None if it is not alive, not in the ISR, or in `leaving` (stopping or suspected)."""
    preferred = replicas.replicas[0]
    if preferred not in live or preferred not in state.isr or preferred in leaving:
        return None
    eligible = eligible_after(state, preferred, state.isr, replicas=replicas.replicas, live=live, min_isr=min_isr)
    return _next(state, preferred, state.isr, controller_epoch, eligible)


def elect_for_shutdown(
    replicas: Replicas,
    state: PartitionLeadership,
    live: Live,
    controller_epoch: int,
    leaving: Collection[BrokerId],
    *,
    min_isr: int = 1,
    suspected: Collection[BrokerId] = (),
) -> PartitionLeadership | None:
    """Elects a broker that is not about to stop, and removes those that are from the ISR; None without candidate."""
    in_sync = tuple(broker for broker in state.isr if broker in live and broker not in leaving)
    for broker in _reachable_first(replicas.replicas, suspected):
        if broker in in_sync:
            eligible = eligible_after(state, broker, in_sync, replicas=replicas.replicas, live=live, min_isr=min_isr)
            return _next(state, broker, in_sync, controller_epoch, eligible)
    return None


def leave_isr(
    replicas: Replicas,
    state: PartitionLeadership,
    live: Live,
    controller_epoch: int,
    broker: BrokerId,
    *,
    min_isr: int = 1,
) -> PartitionLeadership | None:
    """The ISR without a follower; None if it is not in the ISR, or is its only member."""
    if broker not in state.isr or len(state.isr) == 1 or broker == state.leader:
        return None
    isr = tuple(each for each in state.isr if each != broker)
    eligible = eligible_after(state, state.leader, isr, replicas=replicas.replicas, live=live, min_isr=min_isr)
    return _next(state, state.leader, isr, controller_epoch, eligible)


def elect_among(
    target: Sequence[BrokerId],
    state: PartitionLeadership,
    live: Live,
    controller_epoch: int,
    *,
    min_isr: int = 1,
    suspected: Collection[BrokerId] = (),
) -> PartitionLeadership | None:
    """Leader and ISR, in the next epoch, if only `target` are replicas; None if none of them may lead."""
    in_sync = tuple(broker for broker in state.isr if broker in target)
    for broker in (state.leader, *_reachable_first(target, suspected)):
        if broker in in_sync and broker in live:
            eligible = eligible_after(state, broker, in_sync, replicas=target, live=live, min_isr=min_isr)
            return _next(state, broker, in_sync, controller_epoch, eligible)
    return None


def raise_epoch(state: PartitionLeadership, controller_epoch: int) -> PartitionLeadership:
    """The same leader, ISR and eligible replicas in the next leader epoch."""
    return _next(state, state.leader, state.isr, controller_epoch, state.eligible)


def _reachable_first(brokers: Sequence[BrokerId], suspected: Collection[BrokerId]) -> Sequence[BrokerId]:
    """The brokers in their order, the suspected ones behind the others."""
    return sorted(brokers, key=suspected.__contains__) if suspected else brokers


def _trusted(
    state: PartitionLeadership, live: Live, order: Sequence[BrokerId], eligible: Sequence[BrokerId]
) -> tuple[BrokerId, ...]:
    """The live members of the ISR without those that returned from a crash. If all did, and no replica is eligible, the
    leader alone, or the first in assignment order."""
    alive = [broker for broker in state.isr if broker in live]
    whole = tuple(broker for broker in alive if live[broker].is_clean)
    if whole or not alive or eligible:
        return whole
    if state.leader in alive:
        return (state.leader,)
    return tuple(broker for broker in order if broker in alive)[:1]


def _next(
    state: PartitionLeadership,
    leader: BrokerId,
    isr: tuple[BrokerId, ...],
    controller_epoch: int,
    eligible: tuple[BrokerId, ...] = (),
) -> PartitionLeadership:
    is_recovering = state.is_recovering and leader in (NO_LEADER, state.leader)  # a clean election ends it
    return PartitionLeadership(
        leader,
        LeaderEpoch(state.leader_epoch + 1),
        isr,
        controller_epoch,
        state.partition_epoch,
        state.mzxid,
        is_recovering,
        eligible,
    )
