"""Topics: made, grown and deleted, as clients wish or as tools write into the tree.

    make      one multi (several for a large topic) with settings, assignment and first states; then leaders are told
    grow      likewise
    delete    mark in /admin/delete_topics; hide from metadata; StopReplica to every replica; when the last one is
              known to be gone, the nodes; a broker that is down is told when it is back

Large topics are written in several multis. A crash between them leaves partitions without a state, which the next
controller elects as new ones; and a topic marked for deletion, which the next controller deletes.
Source: Kafka's `TopicDeletionManager`, `KafkaController.processTopicChange`, `processPartitionModifications`.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.coordination import paths
from headrace.coordination.assignment import Assignment
from headrace.coordination.elections import elect_all_new
from headrace.coordination.growth import MorePartitions, plan_growth
from headrace.coordination.leader_manager import LeaderManager
from headrace.coordination.model import NO_UUID, Replicas, Topic
from headrace.coordination.term import NotController, Term
from headrace.coordination.topics import NewTopic, TopicDefaults, TopicOutcome, check_deletable, plan_topic
from headrace.coordination.tree import BadVersion, Create, Delete, Node, NodeExists, NoNode, Op, Set, Watch
from headrace.coordination.writes import make_states, make_topic, nodes_of
from headrace.errors import ErrorCode, KafkaError
from headrace.types import BrokerId, TopicPartition

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """What topics get that say nothing, whether they may be deleted, and where chance comes from."""

    defaults: TopicDefaults
    delete_enabled: bool
    random_below: Callable[[int], int]
    new_uuid: Callable[[], bytes]


class TopicManager:
    """Topics in one term."""

    def __init__(self, term: Term, leaders: LeaderManager, policy: TopicPolicy, on_topic: Watch) -> None:
        """`on_topic` is the watch that is set on each topic's node."""
        self._term = term
        self._leaders = leaders
        self._policy = policy
        self._on_topic = on_topic
        self._watched: set[str] = set()
        self._undeleted: dict[str, set[tuple[int, BrokerId]]] = {}  # replicas of topics to be deleted

    # Wishes

    async def create(self, wish: NewTopic, *, validate_only: bool = False) -> TopicOutcome:
        """Makes one topic and has it told. Raises `KafkaError` with Kafka's code."""
        view = self._term.state.view()
        start = self._policy.random_below(max(1, len(view.brokers)))
        assignment = plan_topic(wish, view, self._policy.defaults, start)
        topic = Topic(
            wish.name,
            NO_UUID if validate_only else self._policy.new_uuid(),
            {number: Replicas(replicas) for number, replicas in assignment.items()},
        )
        if not validate_only:
            await self._write_topic(topic, {name: text for name, text in wish.configs.items() if text is not None})
        return TopicOutcome(topic.id, len(assignment), len(assignment[0]))

    async def _write_topic(self, topic: Topic, settings: dict[str, str]) -> None:
        term = self._term
        leftover = await term.tree.exists(paths.config("topics", topic.name))
        ops = make_topic(topic, settings, has_settings=leftover is not None)
        elected = elect_all_new(topic.name, topic.partitions, term.state.brokers, term.epoch, term.state.shutting_down)
        try:
            await term.write([*ops, *make_states(elected)])
        except NodeExists as error:
            raise KafkaError(f"{error.path} exists already.", ErrorCode.TOPIC_ALREADY_EXISTS) from error
        term.state.topics[topic.name] = topic
        term.know(elected)

    async def grow(self, wish: MorePartitions, *, validate_only: bool = False) -> Assignment:
        """Adds partitions; the replicas of the new ones. Raises `KafkaError` with Kafka's code."""
        state = self._term.state
        assignment = plan_growth(wish, state.topics, state.deleting, state.brokers)
        if not validate_only:
            topic = state.topics[wish.name]
            new = {number: Replicas(replicas) for number, replicas in assignment.items()}
            grown = topic._replace(partitions={**topic.partitions, **new})
            elected = elect_all_new(topic.name, new, state.brokers, self._term.epoch, state.shutting_down)
            ops: list[Op] = [Set(paths.topic(topic.name), paths.encode_topic(grown)), *make_states(elected)]
            await self._term.write(ops)
            state.topics[topic.name] = grown
            self._term.know(elected)
        return assignment

    async def delete(self, names: Sequence[str]) -> dict[str, TopicOutcome | KafkaError]:
        """Marks topics, and has their replicas deleted; what became of each wish."""
        state = self._term.state
        outcomes: dict[str, TopicOutcome | KafkaError] = {}
        for name in names:
            try:
                check_deletable(name, state.view(), enabled=self._policy.delete_enabled)
                if name not in state.deleting:
                    await self._term.write([Create(paths.delete_topic(name))])
            except NotController:
                raise
            except NodeExists:
                pass  # a tool was faster
            except KafkaError as error:
                outcomes[name] = error
                continue
            topic = state.topics[name]
            factor = len(next(iter(topic.partitions.values())).replicas)
            outcomes[name] = TopicOutcome(topic.id, len(topic.partitions), factor)
        marked = [name for name, outcome in outcomes.items() if isinstance(outcome, TopicOutcome)]
        await self.begin_deletions(dict.fromkeys([*self._undeleted, *marked]))  # what failed before is tried again
        return outcomes

    # Deletion

    async def begin_deletions(self, names: Iterable[str]) -> None:
        """Has marked topics hidden and their replicas deleted; again, for those of which some are left."""
        for name in names:
            topic = self._term.state.topics[name]
            self._term.state.deleting.add(name)
            left = {(number, broker) for number, each in topic.partitions.items() for broker in each.replicas}
            self._undeleted.setdefault(name, left)
            self._term.tell([TopicPartition(name, number) for number in topic.partitions], leaders=False)
            self._stop(name, self._term.state.brokers)
            if not self._undeleted[name]:
                await self._finish(name)

    def resume_deletions(self, came: Collection[BrokerId]) -> None:
        """Brokers are back: has them delete what they still have of topics that are gone for the others."""
        for name in self._undeleted:
            self._stop(name, came)

    def _stop(self, name: str, brokers: Collection[BrokerId]) -> None:
        for number, broker in sorted(self._undeleted[name]):
            if broker in brokers:
                self._term.stop(TopicPartition(name, number), [broker], delete=True)

    async def replicas_deleted(self, broker: BrokerId, partitions: Iterable[TopicPartition]) -> None:
        """A broker has let go of replicas for good."""
        for name, number in partitions:
            left = self._undeleted.get(name)
            if left is not None:
                left.discard((number, broker))
                if not left:
                    await self._finish(name)

    async def _finish(self, name: str) -> None:
        doomed = nodes_of(self._term.state.topics[name])
        found = await self._term.tree.get_many(doomed)
        ops: list[Op] = [Delete(path) for path, node in zip(doomed, found, strict=True) if node is not None]
        await self._term.write([*ops, Delete(paths.delete_topic(name))])
        del self._undeleted[name]
        self._watched.discard(name)
        self._term.state.forget(name)

    async def marks_changed(self, marked: Collection[str]) -> None:
        """These are the names in /admin/delete_topics: takes up what is new, and takes away what cannot be done."""
        state = self._term.state
        for name in marked:
            if name not in state.topics or (not self._policy.delete_enabled and name not in self._undeleted):
                log.warning("topic %s is marked for deletion, but does not exist or must not be deleted", name)
                await self._drop_mark(name)
        await self.begin_deletions([name for name in marked if name in state.topics and name not in self._undeleted])

    async def _drop_mark(self, name: str) -> None:
        try:
            await self._term.write([Delete(paths.delete_topic(name))])
        except NoNode:
            return  # somebody else was first

    # What is written into the tree by others

    async def take_over(self) -> None:
        """Gives ids to topics of before there were ids. Loading has set the watches."""
        self._watched = set(self._term.state.topics)
        for topic in [each for each in self._term.state.topics.values() if each.id == NO_UUID]:
            self._term.state.topics[topic.name] = await self._with_id(topic, None)

    async def _with_id(self, topic: Topic, version: int | None) -> Topic:
        named = topic._replace(id=self._policy.new_uuid())
        path, data = paths.topic(topic.name), paths.encode_topic(named)
        await self._term.write([Set(path, data) if version is None else Set(path, data, version)])
        return named

    async def names_changed(self, names: Collection[str]) -> None:
        """These topics are in the tree now: takes up those that a tool has made, forgets those it has taken away."""
        state = self._term.state
        for name in [each for each in state.topics if each not in names]:
            log.warning("topic %s was taken out of the tree by somebody else", name)
            self._undeleted.pop(name, None)
            self._watched.discard(name)
            state.forget(name)
        unwatched = [name for name in names if name not in self._watched]
        nodes = await self._term.tree.get_many([paths.topic(name) for name in unwatched], self._on_topic)
        for name, node in zip(unwatched, nodes, strict=True):
            if node is not None:
                self._watched.add(name)
                await self._take_up(name, node)

    async def topic_changed(self, name: str) -> None:
        """A topic's node was written: takes up partitions that a tool has added."""
        nodes = await self._term.tree.get_many([paths.topic(name)], self._on_topic)
        if nodes[0] is None:
            self._watched.discard(name)
        elif name in self._watched:
            await self._take_up(name, nodes[0])

    async def _take_up(self, name: str, node: Node) -> None:
        """Of partitions that are known the tree's word is not taken: tools reassign through /admin."""
        state = self._term.state
        try:
            told = paths.decode_topic(name, node.data)
        except paths.CorruptNode as error:
            log.error("topic %s is not taken up: %s", name, error)
            return
        known = state.topics.get(name)
        new = _sound({n: each for n, each in told.partitions.items() if known is None or n not in known.partitions})
        if not new or name in state.deleting:
            return
        if known is None:
            known = told._replace(partitions={})
            if known.id == NO_UUID:
                try:
                    known = (await self._with_id(told._replace(partitions=new), node.version))._replace(partitions={})
                except (BadVersion, NoNode):
                    return  # written again meanwhile: the watch has fired
        state.topics[name] = known._replace(partitions={**known.partitions, **new})
        partitions = [TopicPartition(name, number) for number in new]
        await self._term.reload(partitions)
        elected = await self._leaders.elect(partitions)
        self._term.tell(partitions, new=frozenset(elected))


def _sound(partitions: Mapping[int, Replicas]) -> dict[int, Replicas]:
    return {number: each for number, each in partitions.items() if each.replicas}
