"""The controller: one broker that decides for all who leads what. This is its shell; the decisions are elsewhere.

    elect      /controller (ephemeral) and /controller_epoch + 1, in one multi: whoever made it is controller
    term       what it knows, how it writes, its voice; over when the session is lost or another was elected
    leaders, topics, reassignments, tree requests: what it does in a term, each in a module of its own

Events (a wish of a client or a broker, a watch that fired, an answer of a broker, time) are handled one at a time, in
the order they came; no event waits for a broker. Only who asked waits, outside the queue, for those brokers on which
the answer depends, and no longer than the time that came with the request.
Source: Kafka's `KafkaController`.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from headrace.coordination import paths
from headrace.coordination.alter_partition import changes_of, response_to
from headrace.coordination.channels import Send
from headrace.coordination.configs import TopicConfigs
from headrace.coordination.disk_answers import DiskAnswer, deleted_replicas, found_on_disk
from headrace.coordination.events import EventQueue
from headrace.coordination.growth import MorePartitions
from headrace.coordination.isr_changes import is_from_the_living
from headrace.coordination.leader_manager import Elected, LeaderManager
from headrace.coordination.loading import load_brokers, load_cluster
from headrace.coordination.model import Broker, Replicas
from headrace.coordination.preferred import ElectionKind
from headrace.coordination.reassignment_manager import ReassignmentManager, Targets
from headrace.coordination.requests import ControlRequest, ControlResponse, Sender
from headrace.coordination.term import NotController, Term
from headrace.coordination.topic_manager import TopicManager, TopicPolicy
from headrace.coordination.topics import NewTopic, TopicDefaults, TopicOutcome
from headrace.coordination.tree import (
    BadVersion,
    Create,
    NodeExists,
    Op,
    SessionLost,
    SessionState,
    Set,
    Tree,
    WatchEvent,
)
from headrace.coordination.tree_requests import TreeRequests
from headrace.coordination.uuids import random_uuid
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition

__all__ = ["Controller", "NotController", "Rebalancing"]

log = logging.getLogger(__name__)

WAIT_MS = 30_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rebalancing:
    """When preferred leaders are elected without being asked for: so often, beyond so many percent elsewhere."""

    is_enabled: bool = True
    interval_s: float = 300.0
    percentage: int = 10
    first_s: float = 5.0
    """How long after an election of the controller; Apache Kafka's is fixed, too."""


@dataclass(slots=True)
class Office:
    """A term, and what is done in it."""

    term: Term
    leaders: LeaderManager
    topics: TopicManager
    reassignments: ReassignmentManager
    requests: TreeRequests


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
        new_uuid: Callable[[], bytes] = random_uuid,
        rebalancing: Rebalancing = Rebalancing(),
        listener: str | None = None,
    ) -> None:
        """`listener`: the name of that through which brokers reach each other; the first of each when None."""
        self._tree = tree
        self._broker_id = broker_id
        self._send = send
        self._configs = configs
        self._now_ms = now_ms
        self._policy = TopicPolicy(defaults, delete_enabled, random_below, new_uuid)
        self._rebalancing = rebalancing
        self._listener = listener
        self._events = EventQueue("controller")
        self._office: Office | None = None
        self._epoch = 0
        self._timer: asyncio.TimerHandle | None = None
        self.controller_id: BrokerId | None = None  # as last heard
        configs.on_change(lambda topic, config: self._on_config(topic, config.unclean_leader_election_enable))

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._office is not None

    @property
    def epoch(self) -> int:
        """The epoch of this broker's last term as controller; 0 before the first."""
        return self._epoch

    async def start(self) -> None:
        """Stands for election; when elected, this broker has been told everything on return."""
        self._tree.on_session(self._on_session)
        self._events.start()
        await self._events.do(self._elect)
        await self.settled({self._broker_id})

    async def settled(self, brokers: Collection[BrokerId] | None = None, timeout_ms: int = WAIT_MS) -> None:
        """Returns when what was decided so far has been answered by these live brokers (all, when None)."""
        await self._events.do(_nothing)
        if self._office is not None:
            await self._wait(self._office.term.answered(brokers), timeout_ms)
        await self._events.do(_nothing)  # what was in the answers

    async def close(self) -> None:
        """Stops deciding. The `/controller` node goes with the tree's session."""
        self._leave_office()
        await self._events.close()

    # What clients wish

    async def create_topics(
        self, wishes: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int = WAIT_MS
    ) -> dict[str, TopicOutcome | KafkaError]:
        """What became of each wish, by name. The topics that were made have leaders that serve, and this broker knows
        them; REQUEST_TIMED_OUT where that took too long. Raises `NotController`."""
        outcomes: dict[str, TopicOutcome | KafkaError] = {}
        served: dict[str, list[asyncio.Future[None]]] = {}

        async def create() -> None:
            office = self._in_office()
            for wish in wishes:
                try:
                    outcomes[wish.name] = await office.topics.create(wish, validate_only=validate_only)
                except NotController:
                    raise
                except KafkaError as error:
                    outcomes[wish.name] = error
                    continue
                if not validate_only:
                    made = office.term.state.topics[wish.name].partitions
                    served[wish.name] = self._tell_new(office, wish.name, made)

        await self._events.do(create)
        for name in await self._late(served, timeout_ms):
            outcomes[name] = _timed_out(f"Topic '{name}' was made, but")
        return outcomes

    async def create_partitions(
        self, wishes: Sequence[MorePartitions], *, validate_only: bool = False, timeout_ms: int = WAIT_MS
    ) -> dict[str, KafkaError | None]:
        """What became of each, by name; None: the partitions have leaders that serve. Raises `NotController`."""
        outcomes: dict[str, KafkaError | None] = {}
        served: dict[str, list[asyncio.Future[None]]] = {}

        async def grow() -> None:
            office = self._in_office()
            for wish in wishes:
                outcomes[wish.name] = None
                try:
                    made = await office.topics.grow(wish, validate_only=validate_only)
                    if not validate_only:
                        served[wish.name] = self._tell_new(office, wish.name, made)
                except NotController:
                    raise
                except KafkaError as error:
                    outcomes[wish.name] = error

        await self._events.do(grow)
        for name in await self._late(served, timeout_ms):
            outcomes[name] = _timed_out(f"The partitions of '{name}' were made, but")
        return outcomes

    async def delete_topics(
        self, names: Sequence[str], *, timeout_ms: int = WAIT_MS
    ) -> dict[str, TopicOutcome | KafkaError]:
        """What became of each; the live brokers have let go of their replicas, unless that took too long. Replicas on
        brokers that are down are deleted later. Raises `NotController`."""
        waited: list[asyncio.Future[None]] = []

        async def delete() -> dict[str, TopicOutcome | KafkaError]:
            office = self._in_office()
            outcomes = await office.topics.delete(names)
            if any(isinstance(outcome, TopicOutcome) for outcome in outcomes.values()):
                waited.extend(office.term.answered())
            return outcomes

        outcomes = await self._events.do(delete)
        await self._wait(waited, timeout_ms)
        await self._events.do(_nothing)  # by then the answers have been taken in, and what is whole is gone
        return outcomes

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None, kind: ElectionKind, *, timeout_ms: int = WAIT_MS
    ) -> Elected:
        """What became of each (all, when None); None: the leader is elected, and the live brokers know, unless that
        took too long. Raises `NotController`."""
        waited: list[asyncio.Future[None]] = []

        async def elect() -> Elected:
            office = self._in_office()
            outcomes = await office.leaders.elect_leaders(partitions, kind)
            if None in outcomes.values():
                waited.extend(office.term.answered())
            return outcomes

        outcomes = await self._events.do(elect)
        await self._wait(waited, timeout_ms)
        return outcomes

    async def alter_reassignments(
        self, targets: Targets, *, keep_factor: bool = False
    ) -> dict[TopicPartition, KafkaError | None]:
        """Begins, replaces or cancels (None) reassignments, of as many replicas as before if `keep_factor`; what
        became of each. Raises `NotController`."""
        return await self._events.do(lambda: self._in_office().reassignments.begin(targets, keep_factor=keep_factor))

    async def list_reassignments(
        self, among: Iterable[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, Replicas]:
        """What is being reassigned (of all, when None). Raises `NotController`."""

        async def listed() -> Mapping[TopicPartition, Replicas]:
            return self._in_office().reassignments.under_way(among)

        return await self._events.do(listed)

    # What brokers wish

    async def alter_partition(self, request: m.AlterPartitionRequest) -> m.AlterPartitionResponse:
        """The answer to a leader that changes its ISR. Raises `NotController`."""
        return await self._events.do(lambda: self._alter_partition(request))

    async def _alter_partition(self, request: m.AlterPartitionRequest) -> m.AlterPartitionResponse:
        office = self._in_office()
        state, sender = office.term.state, BrokerId(request.broker_id)
        if not is_from_the_living(state, sender, request.broker_epoch):
            return m.AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        judged = await office.leaders.change_isrs(sender, changes_of(request, state))
        response = response_to(request, state, judged)
        changed = [partition for partition, verdict in judged.items() if verdict.is_changed and not verdict.error]
        if office.reassignments.under_way(changed):
            self._post(office.term, lambda: office.reassignments.finish(changed))
        return response

    async def controlled_shutdown(self, broker: BrokerId, broker_epoch: int) -> list[TopicPartition]:
        """What a broker that asks to stop leads still. Raises `NotController`, STALE_BROKER_EPOCH,
        BROKER_NOT_AVAILABLE."""
        return await self._events.do(lambda: self._in_office().leaders.controlled_shutdown(broker, broker_epoch))

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
        self.controller_id = self._broker_id
        self._epoch = epoch
        await self._take_over(epoch, version if isinstance(version, int) else 0)

    async def _take_over(self, epoch: int, epoch_version: int) -> None:
        term = Term(
            self._tree,
            Sender(self._broker_id, epoch),
            epoch_version,
            send=self._send,
            on_answer=lambda broker, request, response: self._on_answer(term, broker, request, response),
            on_over=self._resign,
            listener=self._listener,
        )
        requests = TreeRequests(term, lambda work: self._post(term, work))
        leaders = LeaderManager(term, self._configs)
        topics = TopicManager(term, leaders, self._policy, requests.on_topic)
        reassignments = ReassignmentManager(term)
        requests.topics, requests.leaders, requests.reassignments = topics, leaders, reassignments
        office = self._office = Office(term, leaders, topics, reassignments, requests)
        term.state = await load_cluster(
            self._tree,
            on_brokers=lambda event: self._post(term, lambda: self._brokers_changed(office)),
            on_topics=requests.on_topics,
            on_topic=requests.on_topic,
        )
        await topics.take_over()
        await leaders.take_over()
        await requests.take_over()
        await reassignments.take_over()
        self._rebalance_in(self._rebalancing.first_s)

    def _resign(self) -> None:
        if self._office is not None:
            log.warning("broker %d is no longer controller (epoch %d)", self._broker_id, self._epoch)
        self._leave_office()

    def _leave_office(self) -> None:
        if self._office is not None:
            self._office.term.end()
            self._office = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _in_office(self) -> Office:
        if self._office is None:
            raise NotController(f"the controller is broker {self.controller_id}")
        return self._office

    def _on_controller_changed(self, event: WatchEvent) -> None:
        self._events.post(lambda: self._follow(self._elect))

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._resign()
        elif state is SessionState.CONNECTED:
            self._events.post(lambda: self._follow(self._elect))

    async def _follow(self, work: Callable[[], Awaitable[object]]) -> None:
        """Does what an event asks for, unless this broker is no longer the one to do it."""
        try:
            await work()
        except (SessionLost, NotController) as error:
            self._resign()
            log.info("left to another controller: %s", error)

    def _post(self, term: Term, work: Callable[[], Awaitable[object]]) -> None:
        """Does `work` in its turn, if the term is not over by then."""

        async def in_term() -> None:
            if not term.is_over:
                await self._follow(work)

        if not term.is_over:
            self._events.post(in_term)

    # What brokers, settings and time bring

    async def _brokers_changed(self, office: Office) -> None:
        brokers = await load_brokers(
            self._tree, lambda event: self._post(office.term, lambda: self._brokers_changed(office))
        )
        came = await office.leaders.brokers_changed(brokers)
        office.topics.resume_deletions({broker.id for broker in came})
        await office.reassignments.finish()

    def _on_answer(self, term: Term, broker: Broker, request: ControlRequest, response: ControlResponse) -> None:
        office = self._office
        if office is None or office.term is not term:
            return
        if isinstance(request, m.StopReplicaRequest) and isinstance(response, m.StopReplicaResponse):
            gone = deleted_replicas(request, response)
            if gone:
                self._post(term, lambda: office.topics.replicas_deleted(broker.id, gone))
        elif isinstance(response, m.LeaderAndIsrResponse):
            found = found_on_disk(response, term.state, broker.id)
            if found:
                self._post(term, lambda: self._disk_answered(office, broker, found))

    async def _disk_answered(self, office: Office, broker: Broker, found: DiskAnswer) -> None:
        if office.term.state.brokers.get(broker.id) == broker:
            await office.leaders.replicas_online(broker.id, found.offline, found.online)

    def _on_config(self, topic: str, allows_unclean: bool) -> None:
        office = self._office
        if office is not None and allows_unclean and topic in office.term.state.topics:
            partitions = [TopicPartition(topic, number) for number in office.term.state.topics[topic].partitions]
            self._post(office.term, lambda: self._elect_partitions(office, partitions))

    async def _elect_partitions(self, office: Office, partitions: Sequence[TopicPartition]) -> None:
        known = [each for each in partitions if office.term.state.replicas(each) is not None]
        office.term.tell(await office.leaders.elect(known))

    def _rebalance_in(self, pause_s: float) -> None:
        if self._rebalancing.is_enabled and self._office is not None:
            term = self._office.term
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._post, term, self._rebalance)

    async def _rebalance(self) -> None:
        try:
            await self._in_office().leaders.rebalance(self._rebalancing.percentage)
        finally:
            self._rebalance_in(self._rebalancing.interval_s)

    # Waiting for brokers

    def _tell_new(self, office: Office, topic: str, numbers: Iterable[int]) -> list["asyncio.Future[None]"]:
        """Has new partitions told; done when their leaders, and this broker, have answered."""
        made = [TopicPartition(topic, number) for number in numbers]
        told = office.term.tell(made, new=frozenset(made))
        leaders = {state.leader for each in made if (state := office.term.state.leadership.get(each)) is not None}
        return [answered for broker, answered in told.items() if broker in leaders or broker == self._broker_id]

    async def _late(self, served: Mapping[str, Sequence["asyncio.Future[None]"]], timeout_ms: int) -> list[str]:
        """Of which something is not done when the time is up."""
        await self._wait([each for waited in served.values() for each in waited], timeout_ms)
        return [name for name, waited in served.items() if not all(each.done() for each in waited)]

    async def _wait(self, answered: Sequence["asyncio.Future[None]"], timeout_ms: int) -> None:
        if answered:
            await asyncio.wait(answered, timeout=max(0, timeout_ms) / 1000)


async def _nothing() -> None:
    """An event that only waits its turn."""


def _timed_out(what: str) -> KafkaError:
    return KafkaError(f"{what} its leaders did not answer in time.", ErrorCode.REQUEST_TIMED_OUT)
