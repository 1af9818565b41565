"""The elected controller: handles broker changes, broker responses, topic configs and timers for one controller epoch.

    leaders, topics, reassignments    decide, write and send, each in a module of its own
    requests                          requests that tools write into the metadata store

Each method handles one event, or posts one. Events are handled one at a time. Source: Kafka's `KafkaController`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.config import TopicConfig
from headrace.controller.controller_epoch import ControllerEpoch
from headrace.controller.decisions.control_requests import ControlRequest, ControlResponse
from headrace.controller.decisions.eligible_replicas import MIN_INSYNC_REPLICAS, least_min_insync_replicas
from headrace.controller.decisions.replica_answers import DiskAnswer, deleted_replicas, found_on_disk
from headrace.controller.loading import load_brokers, load_cluster
from headrace.controller.managers.fence_manager import Fences
from headrace.controller.managers.leader_manager import LeaderManager
from headrace.controller.managers.reassignment_manager import ReassignmentManager
from headrace.controller.managers.topic_manager import TopicManager, TopicPolicy
from headrace.controller.zk_tool_requests import ZkToolRequests
from headrace.metadata import znodes
from headrace.metadata.entity_configs import BROKERS
from headrace.metadata.model import Broker
from headrace.metadata.topic_configs import TopicConfigs
from headrace.metastore.store import Watch, WatchEvent
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition

Post = Callable[[Callable[[], Awaitable[object]]], None]


@dataclass(frozen=True, slots=True)
class LeaderRebalancing:
    """When the controller elects preferred leaders by itself: `auto.leader.rebalance.enable`,
    `leader.imbalance.check.interval.seconds`, `leader.imbalance.per.broker.percentage`."""

    is_enabled: bool = True
    interval_s: float = 300.0
    percentage: int = 10
    first_s: float = 5.0
    """The delay after the controller's election. Apache Kafka fixes it at 5 seconds too."""


class ActiveController:
    """The work of the controller during one controller epoch."""

    def __init__(
        self,
        controller_epoch: ControllerEpoch,
        configs: TopicConfigs,
        policy: TopicPolicy,
        rebalancing: LeaderRebalancing,
        post: Post,
        fences: Fences | None = None,
    ) -> None:
        """`post` queues work, which is skipped if the epoch is over by then. Without `fences` no broker is fenced."""
        self.controller_epoch = controller_epoch
        self.requests = ZkToolRequests(controller_epoch, post)
        self.leaders = LeaderManager(controller_epoch, configs)
        self.topics = TopicManager(controller_epoch, self.leaders, policy, self.requests.on_topic)
        self.reassignments = ReassignmentManager(controller_epoch)
        self.requests.topics, self.requests.leaders = self.topics, self.leaders
        self.requests.reassignments = self.reassignments
        self._fences = fences
        self._configs = configs
        self._rebalancing = rebalancing
        self._post = post
        self._timer: asyncio.TimerHandle | None = None
        self._least: tuple[Mapping[BrokerId, Broker], int] | None = None  # of these brokers, in this turn of the loop
        self._is_finishing = False  # deletions, in an event that is queued

    async def take_over(self) -> None:
        """Loads the cluster state, elects leaders, sends the state to all brokers, and resumes pending deletions and
        reassignments."""
        self.controller_epoch.state = await load_cluster(
            self.controller_epoch.store,
            on_brokers=self._on_brokers,
            on_topics=self.requests.on_topics,
            on_topic=self.requests.on_topic,
        )
        self.controller_epoch.state.min_insync_replicas = self._min_insync_replicas
        await self._configs.ensure_loaded(self.controller_epoch.state.topics)
        for fenced in await self._judge():
            del self.controller_epoch.state.brokers[fenced]
        await self.topics.take_over()
        await self.leaders.take_over()
        await self.requests.take_over()
        await self.reassignments.take_over()
        self._rebalance_in(self._rebalancing.first_s)

    def end(self) -> None:
        """Ends this controller epoch."""
        self.controller_epoch.end()
        if self._timer is not None:
            self._timer.cancel()

    # Brokers

    def _on_brokers(self, event: WatchEvent) -> None:
        self._post(lambda: self._brokers_changed(self._on_brokers))

    async def _brokers_changed(self, watch: Watch | None = None) -> None:
        came = await self.leaders.brokers_changed(await load_brokers(self.controller_epoch.store, watch))
        self.topics.resume_deletions({broker.id for broker in came})
        await self.reassignments.finish()

    async def meet(self, ids: Iterable[BrokerId]) -> None:
        """Takes in the registrations of these brokers if they have changed: the notice may be queued behind the event
        that depends on them. A leader that has restarted must not shrink its ISR by a request from before."""
        state = self.controller_epoch.state
        wanted = sorted(set(ids))
        nodes = await self.controller_epoch.store.get_many([znodes.broker(each) for each in wanted])
        epochs = {each: None if node is None else node.czxid for each, node in zip(wanted, nodes, strict=True)}
        known = {each: state.brokers[each].epoch if each in state.brokers else None for each in wanted}
        if epochs != known:
            await self._brokers_changed()

    async def _judge(self) -> set[BrokerId]:
        """Fences suspected brokers, and returns those that were fenced. The next suspicion posts an event."""
        if self._fences is None:
            return set()
        return await self._fences.judge(self.controller_epoch, lambda event: self._post(self._suspicions_changed))

    async def _suspicions_changed(self) -> None:
        await self._judge()
        await self._brokers_changed()  # loads no marked broker, also when this event is tried again

    def on_answer(self, broker: Broker, request: ControlRequest, response: ControlResponse) -> None:
        """Takes in a broker's response to a control request."""
        if isinstance(request, m.StopReplicaRequest) and isinstance(response, m.StopReplicaResponse):
            gone = deleted_replicas(request, response)
            if gone:
                self._post(lambda: self._replicas_deleted(broker.id, gone))
        elif isinstance(response, m.LeaderAndIsrResponse):
            found = found_on_disk(response, self.controller_epoch.state, broker.id)
            if found:
                self._post(lambda: self._disk_answered(broker, found))

    async def _replicas_deleted(self, broker: BrokerId, gone: Sequence[TopicPartition]) -> None:
        self.topics.replicas_deleted(broker, gone)
        if self.topics.unfinished_count and not self._is_finishing:
            self._is_finishing = True
            self._post(self._finish_deletions)

    async def _finish_deletions(self) -> None:
        """Deletes the nodes of a few topics; the next event deletes those of others. A failed event is tried again."""
        if await self.topics.finish_deletions():
            self._post(self._finish_deletions)
        else:
            self._is_finishing = False

    async def _disk_answered(self, broker: Broker, found: DiskAnswer) -> None:
        if self.controller_epoch.state.brokers.get(broker.id) == broker:
            await self.leaders.replicas_online(broker.id, found.offline, found.online)

    # Settings and time

    def on_config(self, topic: str, config: TopicConfig) -> None:
        """Elects leaders again when a topic now allows unclean leader election, or may have fewer eligible replicas."""
        state = self.controller_epoch.state
        known = state.topics.get(topic)
        if known is None:
            return
        partitions = [TopicPartition(topic, number) for number in known.partitions]
        has_eligible = any(each in state.leadership and state.leadership[each].eligible for each in partitions)
        if has_eligible or config.unclean_leader_election_enable:
            self._post(lambda: self._elect(partitions))

    def _min_insync_replicas(self, topic: str) -> int:
        """What every live broker goes by that may lead the topic's partitions, at least."""
        if MIN_INSYNC_REPLICAS in self._configs.overrides(topic):
            return self._configs.get(topic).min_insync_replicas
        live = self.controller_epoch.state.brokers
        if self._least is None or self._least[0] is not live:
            self._least = live, least_min_insync_replicas(live, self._configs.entities.all(BROKERS))
            asyncio.get_running_loop().call_soon(self._forget_least)
        return self._least[1]

    def _forget_least(self) -> None:
        self._least = None

    def on_defaults(self, defaults: TopicConfig) -> None:
        """Elects leaders again when the broker's defaults changed: for partitions without a leader if they now allow
        unclean leader election, and for those that may have fewer eligible replicas."""
        self._post(lambda: self._elect_by_defaults(unclean=defaults.unclean_leader_election_enable))

    async def _elect_by_defaults(self, *, unclean: bool) -> None:
        leadership = self.controller_epoch.state.leadership
        await self._elect(
            [each for each, state in leadership.items() if state.eligible or (unclean and not state.has_leader)]
        )

    async def _elect(self, partitions: Sequence[TopicPartition]) -> None:
        known = [each for each in partitions if self.controller_epoch.state.replicas(each) is not None]
        await self.leaders.elect(known)
        self.controller_epoch.send(known)

    def _rebalance_in(self, pause_s: float) -> None:
        if self._rebalancing.is_enabled and not self.controller_epoch.is_over:
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._post, self._rebalance)

    async def _rebalance(self) -> None:
        try:
            await self.leaders.rebalance(self._rebalancing.percentage)
        finally:
            self._rebalance_in(self._rebalancing.interval_s)
