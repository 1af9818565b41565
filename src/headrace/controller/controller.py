"""The controller of a broker: serves the requests of clients and brokers while this broker is elected.

`candidate` stands for election and queues the requests. A caller waits outside the queue for the brokers on which its
answer depends, at most for the timeout of its request. A request for many topics is several events, so that a failover
waits for a few of them only; as in Kafka, each topic by itself is created or not. Source: Kafka's `KafkaController`.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from headrace.controller.active_controller import ActiveController, LeaderRebalancing
from headrace.controller.broker_channels import SendRequest
from headrace.controller.candidate import WAIT_MS, ControllerCandidate
from headrace.controller.controller_epoch import NotController
from headrace.controller.decisions.add_partitions import NewPartitions
from headrace.controller.decisions.alter_partition import changes_of, response_to
from headrace.controller.decisions.isr_changes import has_current_epoch
from headrace.controller.decisions.leader_election import ElectionKind
from headrace.controller.decisions.topic_writes import leave_topic
from headrace.controller.decisions.topics import ClusterTopics, RequestedTopic, TopicDefaults, TopicOutcome, plan_topic
from headrace.controller.managers.leader_manager import Elected
from headrace.controller.managers.reassignment_manager import Targets
from headrace.controller.managers.topic_manager import TopicPolicy
from headrace.errors import ErrorCode, KafkaError
from headrace.metadata import znodes
from headrace.metadata.model import Replicas, Topic
from headrace.metadata.producer_ids import take_block
from headrace.metadata.topic_configs import TopicConfigs
from headrace.metadata.uuids import random_uuid
from headrace.metastore.store import Check, MetadataStore, NodeExists, StoreError
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition

__all__ = ["Controller", "LeaderRebalancing", "NotController"]

TOPICS_PER_EVENT = 10
"""Topics of one request that are created, extended, deleted or reassigned in one event, at one to two milliseconds
each."""

T = TypeVar("T")


class Controller:
    """The interface of a broker to the controller's work. Each request raises `NotController` unless it is elected."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: BrokerId,
        *,
        send: SendRequest,
        configs: TopicConfigs,
        now_ms: Callable[[], int],
        defaults: TopicDefaults,
        delete_enabled: bool = True,
        random_below: Callable[[int], int] = lambda bound: int.from_bytes(os.urandom(8)) % bound,
        new_uuid: Callable[[], bytes] = random_uuid,
        rebalancing: LeaderRebalancing | None = None,
        listener: str | None = None,
        can_fence: bool = False,
    ) -> None:
        """`listener`: the name of the inter-broker listener; the first listener of each broker when None.
        `can_fence`: whether suspected brokers are fenced (`headrace.fencing.enable`)."""
        self._store, self._broker_id = store, broker_id
        self._policy = TopicPolicy(defaults, delete_enabled, random_below, new_uuid)
        self._candidate = ControllerCandidate(
            store,
            broker_id,
            send=send,
            configs=configs,
            now_ms=now_ms,
            policy=self._policy,
            rebalancing=rebalancing or LeaderRebalancing(),
            listener=listener,
            can_fence=can_fence,
        )

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._candidate.active is not None

    @property
    def epoch(self) -> int:
        """The last controller epoch of this broker; 0 if it has not been controller."""
        return self._candidate.epoch

    @property
    def controller_id(self) -> BrokerId | None:
        """The controller as last read from the metadata store."""
        return self._candidate.controller_id

    async def start(self) -> None:
        """Stands for election. If elected, returns once this broker has received the cluster state."""
        await self._candidate.start()

    async def settled(self, brokers: Collection[BrokerId] | None = None, timeout_ms: int = WAIT_MS) -> None:
        """Waits until these live brokers (all when None) have answered everything sent so far."""
        await self._candidate.settled(brokers, timeout_ms)

    async def close(self) -> None:
        """Resigns. The node /controller is deleted when the session with the metadata store ends."""
        await self._candidate.close()

    def on_suspicion(self, broker: BrokerId) -> None:
        """This broker has written a suspicion of another broker. Replaces that broker if it is the controller and a
        second broker suspects it too."""
        self._candidate.on_suspicion(broker)

    # Requests of clients

    async def create_topics(
        self, requests: Sequence[RequestedTopic], *, validate_only: bool = False, timeout_ms: int = WAIT_MS
    ) -> dict[str, TopicOutcome | KafkaError]:
        """Creates topics; returns the outcome of each by name. Waits until the leaders of the new topics and this
        broker know them; REQUEST_TIMED_OUT where that takes too long. Raises `NotController`."""
        outcomes: dict[str, TopicOutcome | KafkaError] = {}
        served: dict[str, list[asyncio.Future[None]]] = {}

        async def create(some: Sequence[RequestedTopic]) -> None:
            active = self._candidate.require_active()
            for request in some:
                try:
                    outcomes[request.name] = await active.topics.create(request, validate_only=validate_only)
                except NotController:
                    raise
                except KafkaError as error:
                    outcomes[request.name] = error.with_traceback(None)  # thousands would keep their frames
                    continue
                if not validate_only:
                    made = active.controller_epoch.state.topics[request.name].partitions
                    served[request.name] = self._send_new(active, request.name, made)

        for some in _slices(requests):
            await self._candidate.do(partial(create, some))
        for name in await self._late(served, timeout_ms):
            outcomes[name] = _timed_out(f"Topic '{name}' was created, but")
        return outcomes

    async def leave_topics(
        self, requests: Sequence[RequestedTopic], view: ClusterTopics
    ) -> dict[str, KafkaError | None]:
        """Writes topics to the metadata store, for the active controller to take up, whichever broker that is; returns
        the outcome of each by name, None for success. So do Apache Kafka 3.9's brokers with topics that clients use
        (`ZkAdminManager.createTopics`), for which the brokers' principal needs no right to create topics."""
        outcomes: dict[str, KafkaError | None] = {}
        for request in requests:
            try:
                start = self._policy.random_below(max(1, len(view.brokers)))
                assignment = plan_topic(request, view, self._policy.defaults, start)
                topic = Topic(
                    request.name,
                    self._policy.new_uuid(),
                    {number: Replicas(replicas) for number, replicas in assignment.items()},
                )
                await self._leave_topic(topic, request.configs)
            except KafkaError as error:
                outcomes[request.name] = error.with_traceback(None)
            else:
                outcomes[request.name] = None
        return outcomes

    async def _leave_topic(self, topic: Topic, configs: Mapping[str, str | None]) -> None:
        settings = {name: text for name, text in configs.items() if text is not None}
        try:
            leftover = await self._store.exists(znodes.config("topics", topic.name))
            await self._store.multi(leave_topic(topic, settings, has_settings=leftover is not None))
        except NodeExists:
            raise KafkaError(f"Topic '{topic.name}' already exists.", ErrorCode.TOPIC_ALREADY_EXISTS) from None
        except StoreError as error:
            what = f"the metadata store failed: {type(error).__name__}"
            raise KafkaError(what, ErrorCode.REQUEST_TIMED_OUT) from error

    async def create_partitions(
        self, requests: Sequence[NewPartitions], *, validate_only: bool = False, timeout_ms: int = WAIT_MS
    ) -> dict[str, KafkaError | None]:
        """Adds partitions; returns the outcome of each topic by name, None for success. Waits for the leaders of the
        new partitions, as `create_topics` does. Raises `NotController`."""
        outcomes: dict[str, KafkaError | None] = {}
        served: dict[str, list[asyncio.Future[None]]] = {}

        async def grow(some: Sequence[NewPartitions]) -> None:
            active = self._candidate.require_active()
            for request in some:
                outcomes[request.name] = None
                try:
                    made = await active.topics.grow(request, validate_only=validate_only)
                    if not validate_only:
                        served[request.name] = self._send_new(active, request.name, made)
                except NotController:
                    raise
                except KafkaError as error:
                    outcomes[request.name] = error.with_traceback(None)  # thousands would keep their frames

        for some in _slices(requests):
            await self._candidate.do(partial(grow, some))
        for name in await self._late(served, timeout_ms):
            outcomes[name] = _timed_out(f"The partitions of topic '{name}' were created, but")
        return outcomes

    async def delete_topics(
        self, names: Sequence[str], *, timeout_ms: int = WAIT_MS
    ) -> dict[str, TopicOutcome | KafkaError]:
        """Deletes topics; returns the outcome of each by name. Waits, at most `timeout_ms`, until the live brokers have
        deleted their replicas. Brokers that are down delete theirs when they are back. Raises `NotController`."""
        outcomes: dict[str, TopicOutcome | KafkaError] = {}
        waited: list[asyncio.Future[None]] = []

        async def retry() -> None:
            await self._candidate.require_active().topics.retry_deletions()

        async def delete(some: Sequence[str]) -> None:
            active = self._candidate.require_active()
            deleted = await active.topics.delete(some)
            outcomes.update(deleted)
            if any(isinstance(outcome, TopicOutcome) for outcome in deleted.values()):
                waited[:] = active.controller_epoch.answered()

        await self._candidate.do(retry)
        for some in _slices(names):
            await self._candidate.do(partial(delete, some))
        await self._candidate.wait(waited, timeout_ms)
        await self._candidate.flush()  # the events of the responses, which find the topics without replicas
        await self._events_of_deletions()
        return outcomes

    async def _events_of_deletions(self) -> None:
        """Waits until the nodes of topics without replicas are deleted, a few topics in each event."""
        active = self._candidate.active
        while active is not None and (left := active.topics.unfinished_count):
            await self._candidate.flush()
            if active.topics.unfinished_count >= left:
                return  # the deletion failed, and is tried again later

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None, kind: ElectionKind, *, timeout_ms: int = WAIT_MS
    ) -> Elected:
        """Elects leaders of these partitions (all when None); returns the outcome of each, None for success. Waits, at
        most `timeout_ms`, until the live brokers know the leaders. Raises `NotController`."""
        waited: list[asyncio.Future[None]] = []

        async def elect() -> Elected:
            active = self._candidate.require_active()
            outcomes = await active.leaders.elect_leaders(partitions, kind)
            if None in outcomes.values():
                waited.extend(active.controller_epoch.answered())
            return outcomes

        outcomes = await self._candidate.do(elect)
        await self._candidate.wait(waited, timeout_ms)
        return outcomes

    async def alter_reassignments(
        self, targets: Targets, *, keep_factor: bool = False
    ) -> dict[TopicPartition, KafkaError | None]:
        """Begins, replaces or cancels (target None) reassignments; returns the outcome of each, None for success.
        `keep_factor` refuses a target with another number of replicas. Raises `NotController`."""
        outcomes: dict[TopicPartition, KafkaError | None] = {}

        async def begin(some: Sequence[str]) -> None:
            reassignments = self._candidate.require_active().reassignments
            chosen = {each: targets[each] for name in some for each in by_topic[name]}
            outcomes.update(await reassignments.begin(chosen, keep_factor=keep_factor))

        by_topic: dict[str, list[TopicPartition]] = {}
        for each in targets:
            by_topic.setdefault(each.topic, []).append(each)
        for some in _slices(list(by_topic)):
            await self._candidate.do(partial(begin, some))
        return {each: outcomes[each] for each in targets}

    async def list_reassignments(
        self, among: Iterable[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, Replicas]:
        """The reassignments under way among these partitions (all when None). Raises `NotController`."""

        async def listed() -> Mapping[TopicPartition, Replicas]:
            return self._candidate.require_active().reassignments.under_way(among)

        return await self._candidate.do(listed)

    async def topics_with(self, prefix: str) -> dict[str, Topic]:
        """The topics whose names begin with `prefix`, those that are being deleted among them. Raises
        `NotController`."""

        async def found() -> dict[str, Topic]:
            topics = self._candidate.require_active().controller_epoch.state.topics
            return {name: each for name, each in topics.items() if name.startswith(prefix)}

        return await self._candidate.do(found)

    @property
    def guard(self) -> Check:
        """Refuses a write with `BadVersion` if another controller was elected. Raises `NotController`."""
        return self._candidate.require_active().controller_epoch.guard

    # Requests of brokers

    async def alter_partition(self, request: m.AlterPartitionRequest) -> m.AlterPartitionResponse:
        """Handles a leader's change of its ISRs. Raises `NotController`."""
        return await self._candidate.do(lambda: self._alter_partition(request))

    async def _alter_partition(self, request: m.AlterPartitionRequest) -> m.AlterPartitionResponse:
        active = self._candidate.require_active()
        state, sender = active.controller_epoch.state, BrokerId(request.broker_id)
        changes = changes_of(request, state)
        await active.meet({sender, *(member.id for change in changes for member in change.isr)})
        if not has_current_epoch(state, sender, request.broker_epoch):
            return m.AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        judged = await active.leaders.change_isrs(sender, changes)
        response = response_to(request, state, judged)
        changed = [partition for partition, verdict in judged.items() if verdict.is_changed and not verdict.error]
        if active.reassignments.under_way(changed):
            self._candidate.post(active.controller_epoch, lambda: active.reassignments.finish(changed))
        return response

    async def controlled_shutdown(self, broker: BrokerId, broker_epoch: int) -> list[TopicPartition]:
        """Moves leadership away from a broker that stops; returns the partitions that it still leads. Raises
        `NotController`, STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE."""
        return await self._candidate.do(
            lambda: self._candidate.require_active().leaders.controlled_shutdown(broker, broker_epoch)
        )

    async def allocate_producer_ids(self, broker: BrokerId, broker_epoch: int) -> znodes.ProducerIdBlock:
        """The next block of producer ids, for an Apache Kafka broker, which asks the controller for it. Raises
        `NotController`, STALE_BROKER_EPOCH."""

        async def allocate() -> znodes.ProducerIdBlock:
            if not has_current_epoch(self._candidate.require_active().controller_epoch.state, broker, broker_epoch):
                words = f"broker {broker} is not registered with broker epoch {broker_epoch}"
                raise KafkaError(words, ErrorCode.STALE_BROKER_EPOCH)
            return await take_block(self._store, broker)

        return await self._candidate.do(allocate)

    # Waiting for brokers

    def _send_new(self, active: ActiveController, topic: str, numbers: Iterable[int]) -> list["asyncio.Future[None]"]:
        """Sends new partitions; returns futures that are done when their leaders and this broker have answered."""
        made = [TopicPartition(topic, number) for number in numbers]
        sent = active.controller_epoch.send(made, new=frozenset(made))
        leaders = {
            state.leader for each in made if (state := active.controller_epoch.state.leadership.get(each)) is not None
        }
        return [answered for broker, answered in sent.items() if broker in leaders or broker == self._broker_id]

    async def _late(self, served: Mapping[str, Sequence["asyncio.Future[None]"]], timeout_ms: int) -> list[str]:
        """Waits at most `timeout_ms`; returns the topics whose brokers have not all answered by then."""
        await self._candidate.wait([each for waited in served.values() for each in waited], timeout_ms)
        return [name for name, waited in served.items() if not all(each.done() for each in waited)]


def _slices(elements: Sequence[T]) -> Iterator[Sequence[T]]:
    """The elements, a few for each event; one event for none."""
    for start in range(0, len(elements) or 1, TOPICS_PER_EVENT):
        yield elements[start : start + TOPICS_PER_EVENT]


def _timed_out(what: str) -> KafkaError:
    return KafkaError(f"{what} the leaders did not answer within the timeout.", ErrorCode.REQUEST_TIMED_OUT)
