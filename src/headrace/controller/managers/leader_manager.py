"""Leaders and ISRs: changes them when brokers come or go, a disk fails, a leader asks, or an election is requested.

Each method decides by the pure modules, writes, updates the cluster state, and sends; it does not wait for brokers.
Source: Kafka's `KafkaController`, `PartitionStateMachine`, `ReplicaStateMachine`.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.controller.controller_epoch import ControllerEpoch
from headrace.controller.decisions.controlled_shutdown import plan_departure, remaining
from headrace.controller.decisions.elections import SameElections, elect, elect_new
from headrace.controller.decisions.isr_changes import IsrChange, Judgement, has_current_epoch, judge
from headrace.controller.decisions.leader_election import ElectionKind, electable, imbalanced, plan_election
from headrace.errors import ErrorCode, KafkaError
from headrace.in_slices import in_slices
from headrace.metadata import znodes
from headrace.metadata.entity_configs import BROKERS, DEFAULT
from headrace.metadata.model import Broker, PartitionLeadership
from headrace.metadata.topic_configs import TopicConfigs
from headrace.metastore.store import BadVersion, Create, NodeExists, NoNode, Set, ensure_path
from headrace.types import BrokerId, TopicPartition

log = logging.getLogger(__name__)

TRIES_MAX = 5
UNKNOWN_BROKER_EPOCH = -1
_RELIABLE = (
    "{} is of a reliable topic, which has no unclean elections: start a broker of its ISR, or set "
    "headrace.reliable=false first and lose records."
)

Elected = dict[TopicPartition, KafkaError | None]


class _Plan(NamedTuple):
    """The writes of one election."""

    first: dict[TopicPartition, PartitionLeadership]  # of partitions without a state
    changes: dict[TopicPartition, PartitionLeadership]
    leaderless: list[TopicPartition]  # with a live replica that could lead uncleanly


class LeaderManager:
    """Leaders and ISRs in one controller epoch."""

    def __init__(self, controller_epoch: ControllerEpoch, configs: TopicConfigs) -> None:
        self._controller_epoch = controller_epoch
        self._configs = configs
        self._unsent: dict[TopicPartition, None] = {}
        """Partitions that a failed election may have written but did not send."""

    # Changes of brokers and disks

    async def take_over(self) -> None:
        """Elects leaders where needed, and sends the whole state to every broker."""
        await self.elect()
        await self._note_unclean_shutdowns()
        self._controller_epoch.open_channels()
        await self._controller_epoch.send_all()

    async def brokers_changed(self, brokers: Mapping[BrokerId, Broker]) -> list[Broker]:
        """Takes over the live brokers, elects and sends. Returns the brokers that are new or registered anew.

        A failure restores the previous brokers, so that the next call does the work that is left.
        """
        controller_epoch = self._controller_epoch
        known = controller_epoch.state.brokers
        if {each.id: each.epoch for each in known.values()} == {each.id: each.epoch for each in brokers.values()}:
            return []
        before = controller_epoch.state.replace_brokers(brokers)
        try:
            changed = await self.elect()
            await self._note_unclean_shutdowns()
        except BaseException:
            controller_epoch.state.restore_brokers(before)
            raise
        came = controller_epoch.open_channels()
        arrived = {broker.id for broker in came}
        await controller_epoch.send_all(to=came)
        controller_epoch.send(changed, to=[broker for number, broker in brokers.items() if number not in arrived])
        return came

    async def _note_unclean_shutdowns(self) -> None:
        """Records, for the next controller, which unclean registrations this election took into account.

        The notes follow the states, which may need several multis: if the controller dies in between, there is no
        note, and the next controller elects again. No earlier decision is written after a note, because a controller
        handles one event at a time and a replaced controller writes nothing.
        """
        controller_epoch = self._controller_epoch
        unclean = [broker for broker in controller_epoch.state.brokers.values() if not broker.is_clean]
        if not unclean:
            return
        if controller_epoch.state.is_complete:  # else a malformed topic was skipped, and so were its states
            await ensure_path(controller_epoch.store, znodes.UNCLEAN_SHUTDOWNS)
            for broker in unclean:
                await self._note_unclean_shutdown(broker)
        for broker in unclean:
            controller_epoch.state.brokers[broker.id] = broker._replace(is_clean=True)

    async def _note_unclean_shutdown(self, broker: Broker) -> None:
        path, data = znodes.unclean_shutdown(broker.id), znodes.encode_fenced(broker.epoch)
        old = await self._controller_epoch.store.exists(path)
        try:
            await self._controller_epoch.write([Create(path, data) if old is None else Set(path, data, old.version)])
        except (NodeExists, NoNode, BadVersion):
            log.info("broker %d registered again; its unclean shutdown is handled with that registration", broker.id)

    async def elect(self, among: Iterable[TopicPartition] | None = None) -> list[TopicPartition]:
        """Elects leaders where the live brokers require it. Returns the partitions whose state changed; without
        `among`, also those that earlier failed elections changed. Sends nothing."""
        changed: dict[TopicPartition, None] = {}
        try:
            await self._elect(among, changed)
        except BaseException:
            self._unsent |= changed
            raise
        if among is None:
            changed, self._unsent = self._unsent | changed, {}
        return [each for each in changed if self._controller_epoch.state.replicas(each) is not None]

    async def _elect(self, among: Iterable[TopicPartition] | None, changed: dict[TopicPartition, None]) -> None:
        """Adds to `changed` what may have been written, also when it fails."""
        for _ in range(TRIES_MAX):
            plan = await self._plan(among)
            changed.update(dict.fromkeys((*plan.first, *plan.changes)))
            try:
                await self._controller_epoch.create_states(plan.first)
            except (NodeExists, NoNode) as error:
                log.info("another writer created or deleted %s", error.path)
                await self._controller_epoch.reload(plan.first)
                continue
            written = await self._controller_epoch.change(plan.changes)
            among = [partition for partition in plan.changes if partition not in written]
            if not among:
                return
        raise KafkaError(f"another writer keeps changing partition states; gave up after {TRIES_MAX} tries")

    async def _plan(self, among: Iterable[TopicPartition] | None) -> _Plan:
        wanted = None if among is None else list(among)
        plan = await self._plan_cleanly(wanted)
        if await self._read_configs_for(plan):
            plan = await self._plan_cleanly(wanted)
        if plan.leaderless:
            await self._configs.load(dict.fromkeys(partition.topic for partition in plan.leaderless))
            allowed = [p for p in plan.leaderless if self._configs.get(p.topic).unclean_leader_election_enable]
            plan.changes.update(self._plan_uncleanly(allowed))
        return plan

    async def _read_configs_for(self, plan: _Plan) -> bool:
        """Reads `min.insync.replicas` again where an eligible replica becomes leader: a value that was just lowered
        would mean that the ISR went on without it. Whether anything was read."""
        leadership = self._controller_epoch.state.leadership
        topics = {each.topic for each, new in plan.changes.items() if new.leader in leadership[each].eligible}
        if topics:
            await self._configs.load(sorted(topics))
            brokers = map(str, self._controller_epoch.state.brokers)
            await self._configs.entities.load(BROKERS, [DEFAULT, *brokers])
        return bool(topics)

    async def _plan_cleanly(self, among: Sequence[TopicPartition] | None) -> _Plan:
        state, epoch = self._controller_epoch.state, self._controller_epoch.epoch
        plan = _Plan({}, {}, [])
        wanted = (
            state.partitions()
            if among is None
            else ((each, replicas) for each in among if (replicas := state.replicas(each)) is not None)
        )
        rounds: dict[frozenset[BrokerId], SameElections] = {}  # by the brokers whose replica is on a failed disk
        async for partition, replicas in in_slices(wanted):
            current, failed = state.leadership.get(partition), state.failed_at(partition)
            if current is None:
                if partition.topic not in state.deleting:
                    live = state.online(partition)
                    first = elect_new(replicas, live, epoch, state.shutting_down, state.suspected)
                    if first is not None:
                        plan.first[partition] = first
                continue
            if failed not in rounds:
                rounds[failed] = SameElections(
                    state.online(partition), epoch, leaving=state.shutting_down, suspected=state.suspected
                )
            new = rounds[failed].elect(replicas, current, min_isr=state.min_isr(partition))
            if new is not None:
                plan.changes[partition] = new
            if not (new or current).has_leader:
                live = state.online(partition)
                if any(broker in live for broker in replicas.replicas):
                    plan.leaderless.append(partition)
        return plan

    def _plan_uncleanly(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionLeadership]:
        state = self._controller_epoch.state
        changes = {}
        for partition in partitions:
            replicas, current = (
                state.topics[partition.topic].partitions[partition.partition],
                state.leadership[partition],
            )
            live = state.online(partition)
            new = elect(
                replicas,
                current,
                live,
                self._controller_epoch.epoch,
                min_isr=state.min_isr(partition),
                unclean=True,
                leaving=state.shutting_down,
                suspected=state.suspected,
            )
            if new is not None and new.has_leader:
                log.warning("%s: unclean election of broker %d; the ISR was %s", partition, new.leader, current.isr)
                changes[partition] = new
        return changes

    async def replicas_online(
        self, broker: BrokerId, offline: Collection[TopicPartition], online: Collection[TopicPartition]
    ) -> None:
        """Takes in which replicas a broker cannot serve because of its disks, and which it serves again."""
        failed = self._controller_epoch.state.offline_replicas.setdefault(broker, set())
        failed |= set(offline)
        failed -= set(online)
        if not failed:
            del self._controller_epoch.state.offline_replicas[broker]
        concerned = dict.fromkeys((*offline, *online))
        await self.elect(concerned)
        self._controller_epoch.send(concerned)

    def look_at_disks(self, broker: BrokerId) -> None:
        """Asks a broker whose log directory failed for its offline replicas: sends it all its leaders again, and its
        response names them."""
        found = self._controller_epoch.state.brokers.get(broker)
        if found is not None:
            self._controller_epoch.send(self._controller_epoch.state.at(broker), to=[found])

    # Requests of brokers

    async def change_isrs(self, sender: BrokerId, changes: Sequence[IsrChange]) -> dict[TopicPartition, Judgement]:
        """Changes ISRs as their leader asks; returns the outcome of each."""
        controller_epoch = self._controller_epoch
        await self._configs.ensure_loaded({each.partition.topic for each in changes})
        judged = {
            each.partition: judge(controller_epoch.state, sender, each, controller_epoch.epoch) for each in changes
        }
        wanted = {each: one.state for each, one in judged.items() if one.is_changed and one.state is not None}
        written = await controller_epoch.change(wanted)
        for partition in wanted:
            judged[partition] = (
                Judgement(ErrorCode.NONE, controller_epoch.state.leadership[partition], is_changed=True)
                if partition in written
                else Judgement(ErrorCode.INVALID_UPDATE_VERSION)
            )
        if written:
            controller_epoch.send(written, leaders=False)
        return judged

    async def controlled_shutdown(self, broker: BrokerId, broker_epoch: int) -> list[TopicPartition]:
        """Moves leadership away from a broker that stops; returns the partitions that it still leads. Raises
        STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE."""
        controller_epoch = self._controller_epoch
        if broker not in controller_epoch.state.brokers:
            raise KafkaError(f"Broker id {broker} does not exist.", ErrorCode.BROKER_NOT_AVAILABLE)
        if broker_epoch != UNKNOWN_BROKER_EPOCH and not has_current_epoch(controller_epoch.state, broker, broker_epoch):
            raise KafkaError(
                f"broker {broker} is not registered with broker epoch {broker_epoch}", ErrorCode.STALE_BROKER_EPOCH
            )
        controller_epoch.state.shutting_down.add(broker)
        await self._configs.ensure_loaded({each.topic for each in controller_epoch.state.at(broker)})
        departure = plan_departure(controller_epoch.state, broker, controller_epoch.epoch)
        controller_epoch.send(
            await controller_epoch.change(departure.changes)
        )  # what somebody else changed is what remains: it asks again
        for partition in departure.stopped:
            controller_epoch.stop(partition, [broker], delete=False)
        return remaining(controller_epoch.state, broker)

    # Elections on request, and by the controller itself

    async def elect_leaders(self, partitions: Sequence[TopicPartition] | None, kind: ElectionKind) -> Elected:
        """Elects leaders of these partitions (all when None); returns the outcome of each, None for success."""
        controller_epoch = self._controller_epoch
        wanted = (
            partitions
            if partitions is not None
            else [partition for partition, _ in controller_epoch.state.partitions()]
        )
        outcomes: Elected = {}
        changes: dict[TopicPartition, PartitionLeadership] = {}
        if kind is ElectionKind.UNCLEAN:
            await self._configs.ensure_loaded({each.topic for each in wanted})
        async for partition in in_slices(dict.fromkeys(wanted)):
            try:
                if kind is ElectionKind.UNCLEAN and self._configs.get(partition.topic).reliable:
                    raise KafkaError(_RELIABLE.format(partition), ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
                changes[partition] = plan_election(controller_epoch.state, partition, kind, controller_epoch.epoch)
            except KafkaError as error:
                outcomes[partition] = error
        written = await controller_epoch.change(changes)
        for partition in changes:
            changed = KafkaError(f"{partition} changed during the election.", ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
            outcomes[partition] = None if partition in written else changed
        if written:
            controller_epoch.send(written)
        return outcomes

    async def rebalance(self, percentage: int) -> None:
        """Elects preferred leaders for brokers that lead too few of the partitions that they should lead."""
        wanted = electable(self._controller_epoch.state, imbalanced(self._controller_epoch.state, percentage))
        if wanted:
            log.info("the controller elects the preferred leaders of %d partitions", len(wanted))
            await self.elect_leaders(wanted, ElectionKind.PREFERRED)
