"""Topics: creates and deletes them and adds partitions, for clients or for tools that write into the metadata store.

    create    writes configs, assignment and first states in one multi (several for a large topic), then sends leaders
    grow      does the same for new partitions
    delete    marks the topic in /admin/delete_topics, hides it from metadata, and sends StopReplica to every replica;
              deletes the nodes once all replicas are gone; a broker that is down gets StopReplica when it is back

A crash between two multis leaves partitions without a state, which the next controller elects as new ones, or a topic
marked for deletion, which the next controller deletes.
Source: Kafka's `TopicDeletionManager`, `KafkaController.processTopicChange`, `processPartitionModifications`.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from headrace.controller.controller_epoch import ControllerEpoch, NotController
from headrace.controller.decisions.add_partitions import NewPartitions, plan_growth
from headrace.controller.decisions.assignment import Assignment
from headrace.controller.decisions.elections import elect_all_new
from headrace.controller.decisions.topic_writes import make_states, make_topic, nodes_of
from headrace.controller.decisions.topics import (
    RequestedTopic,
    TopicDefaults,
    TopicOutcome,
    check_deletable,
    plan_topic,
)
from headrace.controller.managers.leader_manager import LeaderManager
from headrace.errors import ErrorCode, KafkaError
from headrace.in_slices import in_slices
from headrace.metadata import znodes
from headrace.metadata.model import NO_UUID, Replicas, Topic
from headrace.metastore.store import BadVersion, Create, Delete, Node, NodeExists, NoNode, Op, Set, Watch
from headrace.types import BrokerId, TopicPartition

log = logging.getLogger(__name__)


FINISHED_PER_EVENT = 10
"""Topics whose nodes are deleted in one event of the controller, at one to two milliseconds each."""


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """The defaults of new topics, whether topics may be deleted, and the source of random numbers and ids."""

    defaults: TopicDefaults
    delete_enabled: bool
    random_below: Callable[[int], int]
    new_uuid: Callable[[], bytes]


class TopicManager:
    """Topics in one controller epoch."""

    def __init__(
        self, controller_epoch: ControllerEpoch, leaders: LeaderManager, policy: TopicPolicy, on_topic: Watch
    ) -> None:
        """`on_topic` is the watch to set on each topic's node."""
        self._controller_epoch = controller_epoch
        self._leaders = leaders
        self._policy = policy
        self._on_topic = on_topic
        self._watched: set[str] = set()
        self._undeleted: dict[str, set[tuple[int, BrokerId]]] = {}  # replicas of topics to be deleted
        self._unfinished: dict[str, None] = {}  # topics without replicas, whose nodes are still to be deleted

    # Requests

    async def create(self, request: RequestedTopic, *, validate_only: bool = False) -> TopicOutcome:
        """Creates one topic; the caller sends it. Raises `KafkaError` with Kafka's code."""
        view = self._controller_epoch.state.view()
        start = self._policy.random_below(max(1, len(view.brokers)))
        assignment = plan_topic(request, view, self._policy.defaults, start)
        topic = Topic(
            request.name,
            NO_UUID if validate_only else self._policy.new_uuid(),
            {number: Replicas(replicas) for number, replicas in assignment.items()},
        )
        if not validate_only:
            await self._write_topic(topic, {name: text for name, text in request.configs.items() if text is not None})
        return TopicOutcome(topic.id, len(assignment), len(assignment[0]))

    async def _write_topic(self, topic: Topic, settings: dict[str, str]) -> None:
        controller_epoch = self._controller_epoch
        leftover = await controller_epoch.store.exists(znodes.config("topics", topic.name))
        ops = make_topic(topic, settings, has_settings=leftover is not None)
        elected = elect_all_new(
            topic.name,
            topic.partitions,
            controller_epoch.state.brokers,
            controller_epoch.epoch,
            controller_epoch.state.shutting_down,
            controller_epoch.state.suspected,
        )
        try:
            await controller_epoch.write([*ops, *make_states(elected)])
        except NodeExists as error:
            raise KafkaError(
                f"Topic '{topic.name}' already exists: {error.path} is in the metadata store.",
                ErrorCode.TOPIC_ALREADY_EXISTS,
            ) from error
        controller_epoch.state.topics[topic.name] = topic
        controller_epoch.remember(elected)

    async def grow(self, request: NewPartitions, *, validate_only: bool = False) -> Assignment:
        """Adds partitions; returns the replicas of the new ones. Raises `KafkaError` with Kafka's code."""
        state = self._controller_epoch.state
        assignment = plan_growth(request, state.topics, state.deleting, state.brokers)
        if not validate_only:
            topic = state.topics[request.name]
            new = {number: Replicas(replicas) for number, replicas in assignment.items()}
            grown = topic._replace(partitions={**topic.partitions, **new})
            elected = elect_all_new(
                topic.name,
                new,
                state.brokers,
                self._controller_epoch.epoch,
                state.shutting_down,
                state.suspected,
            )
            ops: list[Op] = [Set(znodes.topic(topic.name), znodes.encode_topic(grown)), *make_states(elected)]
            await self._controller_epoch.write(ops)
            state.topics[topic.name] = grown
            self._controller_epoch.remember(elected)
        return assignment

    async def delete(self, names: Sequence[str]) -> dict[str, TopicOutcome | KafkaError]:
        """Marks topics for deletion and begins to delete their replicas; returns the outcome of each."""
        state = self._controller_epoch.state
        outcomes: dict[str, TopicOutcome | KafkaError] = {}
        for name in names:
            try:
                check_deletable(name, state.view(), enabled=self._policy.delete_enabled)
                if name not in state.deleting:
                    await self._controller_epoch.write([Create(znodes.delete_topic(name))])
            except NotController:
                raise
            except NodeExists:
                pass  # a tool marked it first
            except KafkaError as error:
                outcomes[name] = error.with_traceback(None)  # thousands would keep their frames
                continue
            topic = state.topics[name]
            factor = len(next(iter(topic.partitions.values())).replicas)
            outcomes[name] = TopicOutcome(topic.id, len(topic.partitions), factor)
        await self.begin_deletions([name for name, each in outcomes.items() if isinstance(each, TopicOutcome)])
        return outcomes

    # Deletion

    async def begin_deletions(self, names: Iterable[str]) -> None:
        """Hides marked topics from metadata and sends StopReplica for the replicas that are left."""
        async for name in in_slices(names):
            topic = self._controller_epoch.state.topics[name]
            self._controller_epoch.state.deleting.add(name)
            left = {(number, broker) for number, each in topic.partitions.items() for broker in each.replicas}
            self._undeleted.setdefault(name, left)
            self._controller_epoch.send([TopicPartition(name, number) for number in topic.partitions], leaders=False)
            self._stop(name, self._controller_epoch.state.brokers)
            if not self._undeleted[name]:
                await self._finish(name)

    async def retry_deletions(self) -> None:
        """Sends StopReplica again for the replicas that brokers could not delete."""
        await self.begin_deletions(list(self._undeleted))

    def resume_deletions(self, came: Collection[BrokerId]) -> None:
        """Sends StopReplica to brokers that are back, for their replicas of topics that are being deleted."""
        for name in self._undeleted:
            self._stop(name, came)

    def _stop(self, name: str, brokers: Collection[BrokerId]) -> None:
        for number, broker in sorted(self._undeleted[name]):
            if broker in brokers:
                self._controller_epoch.stop(TopicPartition(name, number), [broker], delete=True)

    @property
    def unfinished_count(self) -> int:
        """How many topics have no replica left, and wait for `finish_deletions`."""
        return len(self._unfinished)

    def replicas_deleted(self, broker: BrokerId, partitions: Iterable[TopicPartition]) -> None:
        """Takes in that a broker has deleted replicas."""
        for name, number in partitions:
            left = self._undeleted.get(name)
            if left is not None:
                left.discard((number, broker))
                if not left:
                    self._unfinished[name] = None

    async def finish_deletions(self) -> bool:
        """Deletes the nodes of a few topics that have no replica left. Returns whether others wait."""
        for name in list(islice(self._unfinished, FINISHED_PER_EVENT)):
            await self._finish(name)
        return bool(self._unfinished)

    async def _finish(self, name: str) -> None:
        paths = nodes_of(self._controller_epoch.state.topics[name])
        found = await self._controller_epoch.store.get_many(paths)
        ops: list[Op] = [Delete(path) for path, node in zip(paths, found, strict=True) if node is not None]
        await self._controller_epoch.write([*ops, Delete(znodes.delete_topic(name))])
        del self._undeleted[name]
        self._unfinished.pop(name, None)
        self._watched.discard(name)
        self._controller_epoch.state.forget(name)

    async def marks_changed(self, marked: Collection[str]) -> None:
        """Takes in the names in /admin/delete_topics: begins new deletions, and removes marks that are refused."""
        state = self._controller_epoch.state
        for name in marked:
            if name not in state.topics or (not self._policy.delete_enabled and name not in self._undeleted):
                log.warning(
                    "the deletion of topic %s in /admin/delete_topics is refused: %s",
                    name,
                    "the topic does not exist" if name not in state.topics else "delete.topic.enable is false",
                )
                await self._drop_mark(name)
        await self.begin_deletions([name for name in marked if name in state.topics and name not in self._undeleted])

    async def _drop_mark(self, name: str) -> None:
        try:
            await self._controller_epoch.write([Delete(znodes.delete_topic(name))])
        except NoNode:
            return  # already deleted

    # Writes of other processes to the metadata store

    async def take_over(self) -> None:
        """Assigns ids to topics that were created before topic ids existed. Loading has set the watches."""
        self._watched = set(self._controller_epoch.state.topics)
        for topic in [each for each in self._controller_epoch.state.topics.values() if each.id == NO_UUID]:
            self._controller_epoch.state.topics[topic.name] = await self._with_id(topic, None)

    async def _with_id(self, topic: Topic, version: int | None) -> Topic:
        named = topic._replace(id=self._policy.new_uuid())
        path, data = znodes.topic(topic.name), znodes.encode_topic(named)
        await self._controller_epoch.write([Set(path, data) if version is None else Set(path, data, version)])
        return named

    async def names_changed(self, names: Collection[str]) -> None:
        """Takes in the names of all topics in the metadata store: adds topics that a tool created, and drops topics
        that it removed."""
        state = self._controller_epoch.state
        present = frozenset(names)  # a store gives a list, in which ten thousand look-ups take a second
        for name in [each for each in state.topics if each not in present]:
            log.warning("another process removed topic %s from the metadata store", name)
            self._undeleted.pop(name, None)
            self._unfinished.pop(name, None)
            self._watched.discard(name)
            state.forget(name)
        unwatched = [name for name in names if name not in self._watched]
        nodes = await self._controller_epoch.store.get_many([znodes.topic(name) for name in unwatched], self._on_topic)
        for name, node in zip(unwatched, nodes, strict=True):
            if node is not None:
                await self._take_up(name, node)
                self._watched.add(name)  # only now, so that a failure is tried again

    async def topic_changed(self, name: str) -> None:
        """Takes in a write to a topic's node: adds partitions that a tool added."""
        nodes = await self._controller_epoch.store.get_many([znodes.topic(name)], self._on_topic)
        if nodes[0] is None:
            self._watched.discard(name)
        elif name in self._watched:
            await self._take_up(name, nodes[0])

    async def _take_up(self, name: str, node: Node) -> None:
        """Adds new partitions. Ignores stored replicas of known partitions: tools reassign through /admin."""
        state = self._controller_epoch.state
        try:
            stored = znodes.decode_topic(name, node.data)
        except znodes.CorruptNode as error:
            log.error("topic %s is ignored, because its node is malformed; delete or correct the node: %s", name, error)
            return
        known = state.topics.get(name)
        new = _sound({n: each for n, each in stored.partitions.items() if known is None or n not in known.partitions})
        if not new or name in state.deleting:
            return
        if known is None:
            known = stored._replace(partitions={})
            if known.id == NO_UUID:
                try:
                    known = (await self._with_id(stored._replace(partitions=new), node.version))._replace(partitions={})
                except (BadVersion, NoNode):
                    return  # written again meanwhile, so the watch has fired again
        before = state.topics.get(name)
        state.topics[name] = known._replace(partitions={**known.partitions, **new})
        partitions = [TopicPartition(name, number) for number in new]
        try:
            await self._controller_epoch.reload(partitions)
            elected = await self._leaders.elect(partitions)
        except BaseException:
            if before is None:
                del state.topics[name]
            else:
                state.topics[name] = before
            raise
        self._controller_epoch.send(partitions, new=frozenset(elected))


def _sound(partitions: Mapping[int, Replicas]) -> dict[int, Replicas]:
    return {number: each for number, each in partitions.items() if each.replicas}
