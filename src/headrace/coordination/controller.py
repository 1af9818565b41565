"""The controller: one broker that decides for all who leads what. This is its shell; the decisions are elsewhere.

    elect      /controller (ephemeral) and /controller_epoch + 1, in one multi: whoever made it is controller
    decide     topics, assignment, elections                      (pure, on `ClusterState`)
    write      multi[ /controller_epoch is still mine ; ... ]     a controller that was replaced writes nothing
    tell       LeaderAndIsr to replicas, then UpdateMetadata to every broker, StopReplica to those who let go

Events (a wish of a client, a broker that came or went, the end of another controller) are handled one at a time, in
the order they came. The requests leave through the injected `send`; a broker alone applies them in process through
the same function that serves them from the wire.

Large topics are written in several multis. A crash between them leaves partitions without a state, which the next
controller elects as new ones; and a topic marked for deletion, which the next controller deletes.
Source: Kafka's `KafkaController`, `PartitionStateMachine`, `TopicDeletionManager`.
Left out so far: reassignment, preferred leader election, AlterPartition, controlled shutdown.
"""

import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence

from headrace.coordination import paths
from headrace.coordination.assignment import Assignment
from headrace.coordination.cluster import ClusterState, load_brokers, load_cluster
from headrace.coordination.configs import TopicConfigs
from headrace.coordination.elections import elect, elect_all_new, elect_new
from headrace.coordination.events import EventQueue
from headrace.coordination.growth import MorePartitions, plan_growth
from headrace.coordination.log_dir_events import take_events
from headrace.coordination.model import NO_UUID, Broker, PartitionLeadership, Replicas, Topic
from headrace.coordination.propagation import Propagation, Send
from headrace.coordination.topics import NewTopic, TopicDefaults, TopicOutcome, check_deletable, plan_topic
from headrace.coordination.tree import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    Op,
    SessionLost,
    SessionState,
    Set,
    Tree,
    TreeError,
    WatchEvent,
)
from headrace.coordination.uuids import random_uuid
from headrace.coordination.writes import make_states, make_topic, nodes_of
from headrace.errors import ErrorCode, KafkaError
from headrace.types import BrokerId, TopicPartition

log = logging.getLogger(__name__)

OPS_PER_MULTI_MAX = 2000
"""Keeps a multi below ZooKeeper's limit on a request, 1 MiB."""

ELECTION_TRIES_MAX = 5


class NotController(KafkaError):
    """This broker does not decide; another one does, or none yet."""

    code = ErrorCode.NOT_CONTROLLER


class Controller:
    """A broker's candidacy for controller, and its work when it is elected."""

    def __init__(
        self,
        tree: Tree,
        broker_id: BrokerId,
        *,
        send: Send,
        configs: TopicConfigs,
        now_ms: Callable[[], int],
        defaults: TopicDefaults,
        delete_enabled: bool = True,
        random_below: Callable[[int], int] = lambda bound: int.from_bytes(os.urandom(8)) % bound,
    ) -> None:
        self._tree = tree
        self._broker_id = broker_id
        self._send = send
        self._configs = configs
        self._now_ms = now_ms
        self._defaults = defaults
        self._delete_enabled = delete_enabled
        self._random_below = random_below
        self._events = EventQueue("controller")
        self._state = ClusterState()
        self._epoch = 0
        self._epoch_version = -1
        self._is_active = False
        self.controller_id: BrokerId | None = None  # as last heard

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._is_active

    @property
    def epoch(self) -> int:
        """The epoch of this broker's last term as controller; 0 before the first."""
        return self._epoch

    async def start(self) -> None:
        """Stands for election; when elected, every live broker has been told everything on return."""
        self._tree.on_session(self._on_session)
        self._events.start()
        await self._events.do(self._elect)

    async def close(self) -> None:
        """Stops deciding. The `/controller` node goes with the tree's session."""
        self._is_active = False
        await self._events.close()

    # What clients wish

    async def create_topics(
        self, wishes: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, TopicOutcome | KafkaError]:
        """What became of each wish, by name; topics that were made have leaders that serve. Raises `NotController`."""
        return await self._events.do(lambda: self._create_topics(wishes, validate_only))

    async def delete_topics(self, names: Sequence[str]) -> dict[str, TopicOutcome | KafkaError]:
        """What became of each; replicas on brokers that are down are deleted later. Raises `NotController`."""
        return await self._events.do(lambda: self._delete_topics(names))

    async def create_partitions(
        self, wishes: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """What became of each, by name; None: the partitions have leaders that serve. Raises `NotController`."""
        return await self._events.do(lambda: self._create_partitions(wishes, validate_only))

    async def _create_topics(
        self, wishes: Sequence[NewTopic], validate_only: bool
    ) -> dict[str, TopicOutcome | KafkaError]:
        self._must_be_active()
        outcomes: dict[str, TopicOutcome | KafkaError] = {}
        made: list[TopicPartition] = []
        for wish in wishes:
            try:
                outcomes[wish.name] = await self._create_topic(wish, validate_only)
            except NotController:
                raise
            except KafkaError as error:
                outcomes[wish.name] = error
                continue
            if not validate_only:
                made += [TopicPartition(wish.name, number) for number in self._state.topics[wish.name].partitions]
        if made:
            await self._tell(made, new=frozenset(made))
        return outcomes

    async def _create_topic(self, wish: NewTopic, validate_only: bool) -> TopicOutcome:
        view = self._state.view()
        start = self._random_below(max(1, len(view.brokers)))
        assignment = plan_topic(wish, view, self._defaults, start)
        topic = Topic(
            wish.name,
            NO_UUID if validate_only else random_uuid(),
            {number: Replicas(replicas) for number, replicas in assignment.items()},
        )
        if not validate_only:
            await self._write_topic(topic, {name: text for name, text in wish.configs.items() if text is not None})
        return TopicOutcome(topic.id, len(assignment), len(assignment[0]))

    async def _write_topic(self, topic: Topic, settings: dict[str, str]) -> None:
        leftover = await self._tree.exists(paths.config("topics", topic.name))
        ops = make_topic(topic, settings, has_settings=leftover is not None)
        elected = elect_all_new(topic.name, topic.partitions, self._state.brokers, self._epoch)
        try:
            await self._write([*ops, *make_states(elected)])
        except NodeExists as error:
            raise KafkaError(f"{error.path} exists already.", ErrorCode.TOPIC_ALREADY_EXISTS) from error
        self._state.topics[topic.name] = topic
        self._remember(elected)

    async def _create_partitions(
        self, wishes: Sequence[MorePartitions], validate_only: bool
    ) -> dict[str, KafkaError | None]:
        self._must_be_active()
        outcomes: dict[str, KafkaError | None] = {}
        made: list[TopicPartition] = []
        for wish in wishes:
            outcomes[wish.name] = None
            try:
                assignment = plan_growth(wish, self._state.topics, self._state.deleting, self._state.brokers)
                if not validate_only:
                    await self._write_growth(self._state.topics[wish.name], assignment)
                    made += [TopicPartition(wish.name, number) for number in assignment]
            except NotController:
                raise
            except KafkaError as error:
                outcomes[wish.name] = error
        if made:
            await self._tell(made, new=frozenset(made))
        return outcomes

    async def _write_growth(self, topic: Topic, assignment: Assignment) -> None:
        new = {number: Replicas(replicas) for number, replicas in assignment.items()}
        grown = topic._replace(partitions={**topic.partitions, **new})
        elected = elect_all_new(topic.name, new, self._state.brokers, self._epoch)
        await self._write([Set(paths.topic(topic.name), paths.encode_topic(grown)), *make_states(elected)])
        self._state.topics[topic.name] = grown
        self._remember(elected)

    async def _delete_topics(self, names: Sequence[str]) -> dict[str, TopicOutcome | KafkaError]:
        self._must_be_active()
        outcomes: dict[str, TopicOutcome | KafkaError] = {}
        for name in names:
            try:
                check_deletable(name, self._state.view(), enabled=self._delete_enabled)
            except KafkaError as error:
                outcomes[name] = error
                continue
            topic = self._state.topics[name]
            outcomes[name] = TopicOutcome(topic.id, len(topic.partitions), len(topic.partitions[0].replicas))
            if name not in self._state.deleting:
                await self._write([Create(paths.delete_topic(name))])
                self._state.deleting.add(name)
        await self._finish_deletions()
        return outcomes

    async def _finish_deletions(self) -> None:
        """Deletes what is marked and whose replicas are all gone."""
        names = sorted(self._state.deleting)
        if not names:
            return
        partitions = [TopicPartition(name, number) for name in names for number in self._state.topics[name].partitions]
        remaining = await self._propagation().delete_replicas(partitions)
        for name in names:
            if name in remaining:
                continue
            doomed = nodes_of(self._state.topics[name])
            found = await self._tree.get_many(doomed)
            ops: list[Op] = [Delete(path) for path, node in zip(doomed, found, strict=True) if node is not None]
            await self._write([*ops, Delete(paths.delete_topic(name))])
            self._state.forget(name)

    # Elections of the controller

    async def _elect(self) -> None:
        node = await self._tree.exists(paths.CONTROLLER, self._on_controller_changed)
        if node is not None:
            self.controller_id = paths.decode_controller(node.data)
            if self.controller_id != self._broker_id:
                self._resign()
            return
        self._resign()
        epoch_node = await self._tree.exists(paths.CONTROLLER_EPOCH)
        epoch = 1 + (paths.decode_epoch(epoch_node.data) if epoch_node else 0)
        stand = Create(paths.CONTROLLER, paths.encode_controller(self._broker_id, self._now_ms()), ephemeral=True)
        data = paths.encode_epoch(epoch)
        count: Op = (
            Set(paths.CONTROLLER_EPOCH, data, epoch_node.version)
            if epoch_node
            else Create(paths.CONTROLLER_EPOCH, data)
        )
        try:
            _, version = await self._tree.multi([stand, count])
        except (NodeExists, BadVersion):
            await self._elect()  # another broker was first
            return
        self._epoch = epoch
        self._epoch_version = version if isinstance(version, int) else 0
        self._is_active = True
        self.controller_id = self._broker_id
        await self._take_over()

    async def _take_over(self) -> None:
        self._state = await load_cluster(self._tree, self._on_brokers_changed)
        await take_events(self._tree, self._on_log_dir_event)  # everybody is asked anyway
        await self._elect_partitions()
        everything = [partition for partition, _ in self._state.partitions()]
        await self._tell(everything)
        await self._finish_deletions()

    def _resign(self) -> None:
        if self._is_active:
            log.warning("broker %d is no longer controller (epoch %d)", self._broker_id, self._epoch)
        self._is_active = False

    def _must_be_active(self) -> None:
        if not self._is_active:
            raise NotController(f"the controller is broker {self.controller_id}")

    def _on_controller_changed(self, event: WatchEvent) -> None:
        self._events.post(lambda: self._follow(self._elect))

    async def _follow(self, work: Callable[[], Awaitable[None]]) -> None:
        """Does what an event of the tree asks for, unless this broker is no longer the one to do it."""
        try:
            await work()
        except (SessionLost, NotController) as error:
            self._resign()
            log.info("left to another controller: %s", error)

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._resign()

    # Elections of partitions

    def _on_brokers_changed(self, event: WatchEvent) -> None:
        self._events.post(lambda: self._follow(self._brokers_changed))

    async def _brokers_changed(self) -> None:
        if not self._is_active:
            return
        known = self._state.brokers
        self._state.brokers = await load_brokers(self._tree, self._on_brokers_changed)
        came = [broker for broker in self._state.brokers.values() if known.get(broker.id) != broker]
        if not came and len(known) == len(self._state.brokers):
            return
        came_ids = {broker.id for broker in came}
        gone_ids = known.keys() - self._state.brokers.keys()
        for broker_id in came_ids | gone_ids:
            self._state.offline_replicas.pop(broker_id, None)
        changed = await self._elect_partitions()
        everything = [partition for partition, _ in self._state.partitions()]
        others = [broker for broker in self._state.brokers.values() if broker.id not in came_ids]
        await self._tell(everything, to=came)
        await self._tell(changed, to=others)
        await self._finish_deletions()

    def _on_log_dir_event(self, event: WatchEvent) -> None:
        self._events.post(lambda: self._follow(self._log_dirs_changed))

    async def _log_dirs_changed(self) -> None:
        """Asks the brokers that had trouble with a data directory what they can serve."""
        if not self._is_active:
            return
        for broker_id in await take_events(self._tree, self._on_log_dir_event):
            broker = self._state.brokers.get(broker_id)
            if broker is not None:
                held = [each for each, replicas in self._state.partitions() if broker_id in replicas.replicas]
                await self._tell(held, to=[broker])
        await self._finish_deletions()

    async def _elect_partitions(self) -> list[TopicPartition]:
        """Elects wherever the brokers that are alive ask for it; the partitions whose state changed."""
        for _ in range(ELECTION_TRIES_MAX):
            elected, ops = await self._plan_elections()
            try:
                await self._write(ops)
            except TreeError as error:
                if isinstance(error, SessionLost):
                    raise
                log.info("%s changed during an election; reading everything again", error.path)
                offline = self._state.offline_replicas
                self._state = await load_cluster(self._tree, self._on_brokers_changed)
                self._state.offline_replicas = offline
                continue
            self._remember(elected)
            return list(elected)
        raise KafkaError("partition states keep changing under the controller")

    async def _plan_elections(self) -> tuple[dict[TopicPartition, PartitionLeadership], list[Op]]:
        elected: dict[TopicPartition, PartitionLeadership] = {}
        ops: list[Op] = []
        for partition, replicas in self._state.partitions():
            state = self._state.leadership.get(partition)
            new = (
                elect_new(replicas, self._state.online(partition), self._epoch)
                if state is None
                else await self._elect_partition(partition, replicas, state)
            )
            if new is None:
                continue
            elected[partition] = new
            if state is None:
                ops += await self._create_missing(partition, new)
            else:
                path = paths.partition_state(*partition)
                ops.append(Set(path, paths.encode_leadership(new), state.partition_epoch))
                elected[partition] = new._replace(partition_epoch=state.partition_epoch + 1)
        return elected, ops

    async def _elect_partition(
        self, partition: TopicPartition, replicas: Replicas, state: PartitionLeadership
    ) -> PartitionLeadership | None:
        brokers = self._state.online(partition)
        new = elect(replicas, state, brokers, self._epoch)
        leaderless = not (new or state).has_leader
        if leaderless and any(broker in brokers for broker in replicas.replicas):
            await self._configs.load([partition.topic])
            if self._configs.get(partition.topic).unclean_leader_election_enable:
                return elect(replicas, state, brokers, self._epoch, unclean=True)
        return new

    async def _create_missing(self, partition: TopicPartition, new: PartitionLeadership) -> list[Op]:
        """The state of a partition whose topic was written only in part, or by a tool that leaves it to us."""
        above = (paths.partitions(partition.topic), paths.partition(*partition))
        found = await self._tree.get_many(above)
        if found[0] is None:
            await self._write([Create(above[0])])
        return [op for op in make_states({partition: new}) if found[1] is None or op.path != above[1]]

    # Writing and telling

    async def _write(self, ops: Sequence[Op]) -> None:
        """Writes unless this controller was replaced (`NotController`); more than one multi when there are many."""
        guard = Check(paths.CONTROLLER_EPOCH, self._epoch_version)
        for start in range(0, len(ops), OPS_PER_MULTI_MAX):
            try:
                await self._tree.multi([guard, *ops[start : start + OPS_PER_MULTI_MAX]])
            except BadVersion as error:
                if error.index:
                    raise
                self._resign()
                raise NotController("another controller was elected") from None

    def _remember(self, elected: dict[TopicPartition, PartitionLeadership]) -> None:
        """Takes over what was written: after the registration of every broker that is known."""
        written = max((broker.epoch for broker in self._state.brokers.values()), default=0)
        for partition, leadership in elected.items():
            self._state.leadership[partition] = leadership._replace(mzxid=written)

    async def _tell(
        self,
        partitions: Sequence[TopicPartition],
        *,
        new: frozenset[TopicPartition] = frozenset(),
        to: Iterable[Broker] | None = None,
    ) -> None:
        """`Propagation.tell`; and where a broker answers that it cannot serve some, or can again, what follows."""
        changed = await self._propagation().tell(partitions, new=new, to=to)
        for _ in range(ELECTION_TRIES_MAX):
            if not changed:
                return
            elected = await self._elect_partitions()
            changed = await self._propagation().tell(sorted(changed.union(elected)))

    def _propagation(self) -> Propagation:
        return Propagation(self._state, self._broker_id, self._epoch, self._send)
