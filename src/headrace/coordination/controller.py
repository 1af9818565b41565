"""The controller: one broker that decides for all who leads what. This is its shell; the decisions are elsewhere.

    elect      /controller (ephemeral) and /controller_epoch + 1, in one multi: whoever made it is controller
    fence      brokers whose ports refuse, before their sessions end, the controller too: `fence_manager`
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
from typing import TypeVar

from headrace.config import TopicConfig
from headrace.coordination import paths
from headrace.coordination.alter_partition import changes_of, response_to
from headrace.coordination.channels import Send
from headrace.coordination.configs import TopicConfigs
from headrace.coordination.events import EventQueue
from headrace.coordination.fence_manager import Fences
from headrace.coordination.growth import MorePartitions
from headrace.coordination.isr_changes import is_from_the_living
from headrace.coordination.leader_manager import Elected
from headrace.coordination.model import Replicas
from headrace.coordination.office import Office, Rebalancing
from headrace.coordination.preferred import ElectionKind
from headrace.coordination.producer_ids import take_block
from headrace.coordination.reassignment_manager import Targets
from headrace.coordination.requests import Sender
from headrace.coordination.term import NotController, Term
from headrace.coordination.topic_manager import TopicPolicy
from headrace.coordination.topics import NewTopic, TopicDefaults, TopicOutcome
from headrace.coordination.tree import (
    BadVersion,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Op,
    OpResult,
    SessionLost,
    SessionState,
    Set,
    Tree,
    WatchEvent,
    ensure_path,
)
from headrace.coordination.uuids import random_uuid
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition

__all__ = ["Controller", "NotController", "Rebalancing"]

log = logging.getLogger(__name__)

WAIT_MS = 30_000
RETRY_S = 1.0
"""How long after a failure an event that nobody waits for is tried again."""
GIVE_UP_S = 0.5
"""How long a broker that could not take over keeps the office, so that candidates do not fail in quick turns."""

T = TypeVar("T")


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
        rebalancing: Rebalancing | None = None,
        listener: str | None = None,
        can_fence: bool = False,
    ) -> None:
        """`listener`: the name of that through which brokers reach each other; the first of each when None.
        `can_fence`: whether sightings of dead brokers are heeded."""
        self._tree = tree
        self._broker_id = broker_id
        self._send = send
        self._configs = configs
        self._now_ms = now_ms
        self._policy = TopicPolicy(defaults, delete_enabled, random_below, new_uuid)
        self._rebalancing = rebalancing or Rebalancing()
        self._listener = listener
        self._fences: Fences | None = None
        self._can_fence = can_fence
        self._events = EventQueue("controller")
        self._office: Office | None = None
        self._epoch = 0
        self.controller_id: BrokerId | None = None  # as last heard
        configs.on_change(self._on_config)

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
        if self._can_fence:
            await ensure_path(self._tree, paths.SIGHTINGS)
            await ensure_path(self._tree, paths.FENCED)
            self._fences = Fences(self._tree, self._broker_id, self._configs, asyncio.get_running_loop().time)
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

        await self._wish(create)
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

        await self._wish(grow)
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

        outcomes = await self._wish(delete)
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

        outcomes = await self._wish(elect)
        await self._wait(waited, timeout_ms)
        return outcomes

    async def alter_reassignments(
        self, targets: Targets, *, keep_factor: bool = False
    ) -> dict[TopicPartition, KafkaError | None]:
        """Begins, replaces or cancels (None) reassignments, of as many replicas as before if `keep_factor`; what
        became of each. Raises `NotController`."""
        return await self._wish(lambda: self._in_office().reassignments.begin(targets, keep_factor=keep_factor))

    async def list_reassignments(
        self, among: Iterable[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, Replicas]:
        """What is being reassigned (of all, when None). Raises `NotController`."""

        async def listed() -> Mapping[TopicPartition, Replicas]:
            return self._in_office().reassignments.under_way(among)

        return await self._wish(listed)

    # What brokers wish

    async def alter_partition(self, request: m.AlterPartitionRequest) -> m.AlterPartitionResponse:
        """The answer to a leader that changes its ISR. Raises `NotController`."""
        return await self._wish(lambda: self._alter_partition(request))

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
        return await self._wish(lambda: self._in_office().leaders.controlled_shutdown(broker, broker_epoch))

    async def allocate_producer_ids(self, broker: BrokerId, broker_epoch: int) -> paths.ProducerIdBlock:
        """The next block of producer ids, for a broker that does not take it from the tree itself. Raises
        `NotController`, STALE_BROKER_EPOCH."""

        async def allocate() -> paths.ProducerIdBlock:
            if not is_from_the_living(self._in_office().term.state, broker, broker_epoch):
                words = f"broker {broker} is not registered with the epoch {broker_epoch}"
                raise KafkaError(words, ErrorCode.STALE_BROKER_EPOCH)
            return await take_block(self._tree, broker)

        return await self._wish(allocate)

    async def _wish(self, work: Callable[[], Awaitable[T]]) -> T:
        """What `work` returns, in its turn. Raises `NotController` also when the session is lost over it."""
        try:
            return await self._events.do(work)
        except SessionLost as error:
            self._resign()
            raise NotController("the session with the tree is lost") from error

    # What this broker sees

    def sighted(self, broker: BrokerId) -> None:
        """This broker has a sighting of another in the tree: if that is the controller, it may have to be replaced."""
        if self._office is None and broker == self.controller_id:
            self._events.post(lambda: self._follow(lambda: self._replace(broker)))

    async def _replace(self, dead: BrokerId) -> None:
        if self._fences is None or self._office is not None or self.controller_id != dead:
            return
        found = await self._fences.takeover(dead, lambda event: self.sighted(dead), self._candidacy())
        if found is None:
            return
        epoch, ops = found
        try:
            *_, version = await self._tree.multi(ops)
        except (NodeExists, BadVersion, NoNode):
            await self._elect()  # somebody was first, or it lives
            return
        await self._begin(epoch, version)

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
        data = paths.encode_epoch(epoch)
        count: Op = (
            Set(paths.CONTROLLER_EPOCH, data, epoch_node.version)
            if epoch_node
            else Create(paths.CONTROLLER_EPOCH, data)
        )
        try:
            _, version = await self._tree.multi([self._candidacy(), count])
        except (NodeExists, BadVersion):
            await self._elect()  # another broker was first
            return
        await self._begin(epoch, version)

    def _candidacy(self) -> Create:
        return Create(paths.CONTROLLER, paths.encode_controller(self._broker_id, self._now_ms()), ephemeral=True)

    async def _begin(self, epoch: int, version: OpResult) -> None:
        """This broker is controller; `version` is what counting it in /controller_epoch gave."""
        self.controller_id = self._broker_id
        self._epoch = epoch
        try:
            await self._take_over(epoch, version if isinstance(version, int) else 0)
        except (SessionLost, NotController):
            raise
        except Exception:
            log.exception("broker %d cannot be controller; it leaves that to another", self._broker_id)
            await self._give_up()

    async def _give_up(self) -> None:
        """Leaves office, for whoever is faster now; it may be this broker again."""
        office = self._office
        self._resign()
        if office is not None:
            await asyncio.sleep(GIVE_UP_S)
            await self._tree.multi([office.term.guard, Delete(paths.CONTROLLER)])

    async def _take_over(self, epoch: int, epoch_version: int) -> None:
        term = Term(
            self._tree,
            Sender(self._broker_id, epoch),
            epoch_version,
            send=self._send,
            on_answer=lambda broker, request, response: office.on_answer(broker, request, response),
            on_over=self._resign,
            listener=self._listener,
        )
        office = Office(
            term, self._configs, self._policy, self._rebalancing, lambda work: self._post(term, work), self._fences
        )
        self._office = office
        await office.take_over()

    def _resign(self) -> None:
        if self._office is not None:
            log.warning("broker %d is no longer controller (epoch %d)", self._broker_id, self._epoch)
        self._leave_office()

    def _leave_office(self) -> None:
        if self._office is not None:
            self._office.end()
            self._office = None

    def _in_office(self) -> Office:
        if self._office is None:
            raise NotController(f"the controller is broker {self.controller_id}")
        return self._office

    def _on_config(self, topic: str, config: TopicConfig) -> None:
        if self._office is not None:
            self._office.on_config(topic, config)

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
            try:
                if not term.is_over:
                    await self._follow(work)
            except Exception:
                log.exception("an event is tried again")
                asyncio.get_running_loop().call_later(RETRY_S, self._post, term, work)

        if not term.is_over:
            self._events.post(in_term)

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
