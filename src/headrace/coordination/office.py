"""What one controller does in its term, as events ask for it: brokers, their answers, settings, time.

    leaders, topics, reassignments    decide, write and tell, each in a module of its own
    requests                          what tools write into the tree

Each method is one event, or posts one: they are handled one at a time. Source: Kafka's `KafkaController`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from headrace.config import TopicConfig
from headrace.coordination.configs import TopicConfigs
from headrace.coordination.disk_answers import DiskAnswer, deleted_replicas, found_on_disk
from headrace.coordination.fence_manager import Fences
from headrace.coordination.leader_manager import LeaderManager
from headrace.coordination.loading import load_brokers, load_cluster
from headrace.coordination.model import Broker
from headrace.coordination.reassignment_manager import ReassignmentManager
from headrace.coordination.requests import ControlRequest, ControlResponse
from headrace.coordination.term import Term
from headrace.coordination.topic_manager import TopicManager, TopicPolicy
from headrace.coordination.tree import WatchEvent
from headrace.coordination.tree_requests import TreeRequests
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition

Post = Callable[[Callable[[], Awaitable[object]]], None]


@dataclass(frozen=True, slots=True)
class Rebalancing:
    """When preferred leaders are elected without being asked for: so often, beyond so many percent elsewhere."""

    is_enabled: bool = True
    interval_s: float = 300.0
    percentage: int = 10
    first_s: float = 5.0
    """How long after an election of the controller; Apache Kafka's is fixed, too."""


class Office:
    """A term, and what is done in it."""

    def __init__(
        self,
        term: Term,
        configs: TopicConfigs,
        policy: TopicPolicy,
        rebalancing: Rebalancing,
        post: Post,
        fences: Fences | None = None,
    ) -> None:
        """`post` does work in its turn, if the term is not over by then; without `fences` nobody is fenced."""
        self.term = term
        self.requests = TreeRequests(term, post)
        self.leaders = LeaderManager(term, configs)
        self.topics = TopicManager(term, self.leaders, policy, self.requests.on_topic)
        self.reassignments = ReassignmentManager(term)
        self.requests.topics, self.requests.leaders = self.topics, self.leaders
        self.requests.reassignments = self.reassignments
        self._fences = fences
        self._rebalancing = rebalancing
        self._post = post
        self._timer: asyncio.TimerHandle | None = None

    async def take_over(self) -> None:
        """Reads everything, decides what is due, tells everybody, and goes on with what was begun."""
        self.term.state = await load_cluster(
            self.term.tree,
            on_brokers=self._on_brokers,
            on_topics=self.requests.on_topics,
            on_topic=self.requests.on_topic,
        )
        for fenced in await self._judge():
            del self.term.state.brokers[fenced]
        await self.topics.take_over()
        await self.leaders.take_over()
        await self.requests.take_over()
        await self.reassignments.take_over()
        self._rebalance_in(self._rebalancing.first_s)

    def end(self) -> None:
        """The term is over."""
        self.term.end()
        if self._timer is not None:
            self._timer.cancel()

    # Brokers

    def _on_brokers(self, event: WatchEvent) -> None:
        self._post(self._brokers_changed)

    async def _brokers_changed(self) -> None:
        came = await self.leaders.brokers_changed(await load_brokers(self.term.tree, self._on_brokers))
        self.topics.resume_deletions({broker.id for broker in came})
        await self.reassignments.finish()

    async def _judge(self) -> set[BrokerId]:
        """Whom to fence of those who are said to be dead; the next sighting is an event."""
        if self._fences is None:
            return set()
        return await self._fences.judge(self.term, lambda event: self._post(self._sightings_changed))

    async def _sightings_changed(self) -> None:
        fenced = await self._judge()
        if fenced:
            brokers = self.term.state.brokers
            live = {number: broker for number, broker in brokers.items() if number not in fenced}
            await self.leaders.brokers_changed(live)
            await self.reassignments.finish()

    def on_answer(self, broker: Broker, request: ControlRequest, response: ControlResponse) -> None:
        """A broker has answered what it was told."""
        if isinstance(request, m.StopReplicaRequest) and isinstance(response, m.StopReplicaResponse):
            gone = deleted_replicas(request, response)
            if gone:
                self._post(lambda: self.topics.replicas_deleted(broker.id, gone))
        elif isinstance(response, m.LeaderAndIsrResponse):
            found = found_on_disk(response, self.term.state, broker.id)
            if found:
                self._post(lambda: self._disk_answered(broker, found))

    async def _disk_answered(self, broker: Broker, found: DiskAnswer) -> None:
        if self.term.state.brokers.get(broker.id) == broker:
            await self.leaders.replicas_online(broker.id, found.offline, found.online)

    # Settings and time

    def on_config(self, topic: str, config: TopicConfig) -> None:
        """A topic's settings are others now: it may be allowed to lose records by now."""
        known = self.term.state.topics.get(topic)
        if known is not None and config.unclean_leader_election_enable:
            partitions = [TopicPartition(topic, number) for number in known.partitions]
            self._post(lambda: self._elect(partitions))

    async def _elect(self, partitions: Sequence[TopicPartition]) -> None:
        known = [each for each in partitions if self.term.state.replicas(each) is not None]
        self.term.tell(await self.leaders.elect(known))

    def _rebalance_in(self, pause_s: float) -> None:
        if self._rebalancing.is_enabled and not self.term.is_over:
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._post, self._rebalance)

    async def _rebalance(self) -> None:
        try:
            await self.leaders.rebalance(self._rebalancing.percentage)
        finally:
            self._rebalance_in(self._rebalancing.interval_s)
