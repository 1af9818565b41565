"""Leaders and ISRs, as events change them: a broker that came or went, a disk that failed, a leader's wish.

Each method decides on the term's state by the pure modules, writes, remembers, and tells; it does not wait for the
brokers. Source: Kafka's `KafkaController`, `PartitionStateMachine`, `ReplicaStateMachine`.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.coordination.configs import TopicConfigs
from headrace.coordination.elections import elect, elect_new
from headrace.coordination.isr_changes import IsrChange, Judgement, is_from_the_living, judge
from headrace.coordination.model import Broker, PartitionLeadership
from headrace.coordination.preferred import ElectionKind, electable, imbalanced, plan_election
from headrace.coordination.shutdown import plan_departure, remaining
from headrace.coordination.term import Term
from headrace.coordination.tree import NodeExists, NoNode
from headrace.errors import ErrorCode, KafkaError
from headrace.types import BrokerId, TopicPartition

log = logging.getLogger(__name__)

TRIES_MAX = 5
UNKNOWN_BROKER_EPOCH = -1

Elected = dict[TopicPartition, KafkaError | None]


class _Plan(NamedTuple):
    """What an election writes."""

    first: dict[TopicPartition, PartitionLeadership]  # of partitions without a state
    changes: dict[TopicPartition, PartitionLeadership]
    leaderless: list[TopicPartition]  # with a live replica that could lead uncleanly


class LeaderManager:
    """Leaders and ISRs in one term."""

    def __init__(self, term: Term, configs: TopicConfigs) -> None:
        self._term = term
        self._configs = configs

    # What the brokers' comings and goings ask for

    async def take_over(self) -> None:
        """Elects wherever it is due, and tells every broker everything."""
        self._term.meet(self._term.state.brokers)
        await self.elect()
        self._term.tell([partition for partition, _ in self._term.state.partitions()])

    async def brokers_changed(self, brokers: Mapping[BrokerId, Broker]) -> list[Broker]:
        """These are alive now; those of them that were not, or are registered anew. Everybody is told."""
        term = self._term
        before = len(term.state.brokers)
        came = term.meet(brokers)
        if not came and len(brokers) == before:
            return []
        changed = await self.elect()
        arrived = {broker.id for broker in came}
        term.tell([partition for partition, _ in term.state.partitions()], to=came)
        term.tell(changed, to=[broker for number, broker in brokers.items() if number not in arrived])
        return came

    async def elect(self, among: Iterable[TopicPartition] | None = None) -> list[TopicPartition]:
        """Elects where the brokers that are alive ask for it; the partitions whose state changed. Tells nobody."""
        changed: dict[TopicPartition, None] = {}
        for _ in range(TRIES_MAX):
            plan = await self._plan(among)
            try:
                await self._term.create_states(plan.first)
            except (NodeExists, NoNode) as error:
                log.info("%s was made or deleted by somebody else", error.path)
                await self._term.reload(plan.first)
                continue
            written = await self._term.change(plan.changes)
            changed |= dict.fromkeys(plan.first) | dict.fromkeys(each for each in plan.changes if each in written)
            among = [partition for partition in plan.changes if partition not in written]
            if not among:
                return list(changed)
        raise KafkaError("partition states keep changing under the controller")

    async def _plan(self, among: Iterable[TopicPartition] | None) -> _Plan:
        wanted = None if among is None else list(among)
        plan = self._plan_cleanly(wanted)
        if plan.leaderless:
            await self._configs.load(dict.fromkeys(partition.topic for partition in plan.leaderless))
            allowed = [p for p in plan.leaderless if self._configs.get(p.topic).unclean_leader_election_enable]
            plan.changes.update(self._plan_uncleanly(allowed))
        return plan

    def _plan_cleanly(self, among: Sequence[TopicPartition] | None) -> _Plan:
        state, epoch = self._term.state, self._term.epoch
        plan = _Plan({}, {}, [])
        wanted = (
            state.partitions()
            if among is None
            else ((each, replicas) for each in among if (replicas := state.replicas(each)) is not None)
        )
        for partition, replicas in wanted:
            current, live = state.leadership.get(partition), state.online(partition)
            if current is None:
                if partition.topic not in state.deleting:
                    first = elect_new(replicas, live, epoch, state.shutting_down)
                    if first is not None:
                        plan.first[partition] = first
                continue
            new = elect(replicas, current, live, epoch, leaving=state.shutting_down)
            if new is not None:
                plan.changes[partition] = new
            if not (new or current).has_leader and any(broker in live for broker in replicas.replicas):
                plan.leaderless.append(partition)
        return plan

    def _plan_uncleanly(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionLeadership]:
        state = self._term.state
        changes = {}
        for partition in partitions:
            replicas, current = (
                state.topics[partition.topic].partitions[partition.partition],
                state.leadership[partition],
            )
            live = state.online(partition)
            new = elect(replicas, current, live, self._term.epoch, unclean=True, leaving=state.shutting_down)
            if new is not None and new.has_leader:
                log.warning("%s: unclean election of broker %d; the ISR was %s", partition, new.leader, current.isr)
                changes[partition] = new
        return changes

    async def replicas_online(
        self, broker: BrokerId, offline: Collection[TopicPartition], online: Collection[TopicPartition]
    ) -> None:
        """What a broker has found of its log directories: replicas that it cannot serve, and that it serves again."""
        failed = self._term.state.offline_replicas.setdefault(broker, set())
        failed |= set(offline)
        failed -= set(online)
        if not failed:
            del self._term.state.offline_replicas[broker]
        concerned = dict.fromkeys((*offline, *online))
        await self.elect(concerned)
        self._term.tell(concerned)

    def look_at_disks(self, broker: BrokerId) -> None:
        """A log directory of a broker failed: asks which replicas it has still, by telling it all leaders again."""
        found = self._term.state.brokers.get(broker)
        if found is not None:
            self._term.tell(self._term.state.at(broker), to=[found])

    # What brokers ask for

    async def change_isrs(self, sender: BrokerId, changes: Sequence[IsrChange]) -> dict[TopicPartition, Judgement]:
        """A leader's wishes, each with what became of it."""
        term = self._term
        judged = {each.partition: judge(term.state, sender, each, term.epoch) for each in changes}
        wanted = {each: one.state for each, one in judged.items() if one.is_changed and one.state is not None}
        written = await term.change(wanted)
        for partition in wanted:
            judged[partition] = (
                Judgement(ErrorCode.NONE, term.state.leadership[partition], is_changed=True)
                if partition in written
                else Judgement(ErrorCode.INVALID_UPDATE_VERSION)
            )
        if written:
            term.tell(written, leaders=False)
        return judged

    async def controlled_shutdown(self, broker: BrokerId, broker_epoch: int) -> list[TopicPartition]:
        """A broker asks to stop: what it leads still. Raises STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE."""
        term = self._term
        if broker not in term.state.brokers:
            raise KafkaError(f"Broker id {broker} does not exist.", ErrorCode.BROKER_NOT_AVAILABLE)
        if broker_epoch != UNKNOWN_BROKER_EPOCH and not is_from_the_living(term.state, broker, broker_epoch):
            raise KafkaError(
                f"broker {broker} is registered with another epoch than {broker_epoch}", ErrorCode.STALE_BROKER_EPOCH
            )
        term.state.shutting_down.add(broker)
        departure = plan_departure(term.state, broker, term.epoch)
        term.tell(await term.change(departure.changes))  # what somebody else changed is what remains: it asks again
        for partition in departure.stopped:
            term.stop(partition, [broker], delete=False)
        return remaining(term.state, broker)

    # What administrators ask for, and the controller itself

    async def elect_leaders(self, partitions: Sequence[TopicPartition] | None, kind: ElectionKind) -> Elected:
        """What became of each, or of all; None: it has the leader that was asked for."""
        term = self._term
        wanted = partitions if partitions is not None else [partition for partition, _ in term.state.partitions()]
        outcomes: Elected = {}
        changes: dict[TopicPartition, PartitionLeadership] = {}
        for partition in wanted:
            try:
                changes[partition] = plan_election(term.state, partition, kind, term.epoch)
            except KafkaError as error:
                outcomes[partition] = error
        written = await term.change(changes)
        for partition in changes:
            changed = KafkaError(f"{partition} changed during the election.", ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
            outcomes[partition] = None if partition in written else changed
        if written:
            term.tell(written)
        return outcomes

    async def rebalance(self, percentage: int) -> None:
        """Gives leaders back to brokers that lead too few of those that they should."""
        wanted = electable(self._term.state, imbalanced(self._term.state, percentage))
        if wanted:
            log.info("preferred leaders of %d partitions are elected", len(wanted))
            await self.elect_leaders(wanted, ElectionKind.PREFERRED)
