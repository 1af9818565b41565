"""What makes a broker one of several: it follows leaders, leads followers, and has its ISRs changed.

    fetchers       its partitions that others lead                      `replica_fetchers`
    isr_changes    its partitions that it leads                         `isr_changes`
    link           the way to the controller                            `controller_link`
    quotas         what replication may take of the network             `replication_quota`
    nearby         a replica for a consumer that tells its rack         `headrace.replication.nearby`

A broker alone has all of this too, and nothing of it does anything.
"""

import asyncio
from collections.abc import Callable, Coroutine

from headrace.broker.controller_link import ControllerLink
from headrace.broker.following import FetchSettings, Surroundings
from headrace.broker.isr_changes import IsrChanges
from headrace.broker.partition import Partition
from headrace.broker.peer_book import PeerBook
from headrace.broker.purgatory import Purgatory
from headrace.broker.replica_fetchers import ReplicaFetchers
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.replication_quota import ReplicationQuota
from headrace.config import BrokerConfig
from headrace.coordination.broker_settings import BrokerSettings
from headrace.coordination.controller import Controller
from headrace.coordination.peers import Peers
from headrace.protocol import messages as m
from headrace.replication.nearby import Candidate, nearby_replica
from headrace.types import BrokerId, TopicPartition

ALTER_PARTITION_TIMEOUT_MS = 2_000
"""How long another controller is asked before this broker looks whether it is itself the controller by now."""

_RACK_AWARE = ("org.apache.kafka.common.replica.RackAwareReplicaSelector", "RackAwareReplicaSelector")


class Replication:
    """This broker's side of every replicated partition."""

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: BrokerId,
        *,
        broker_epoch: Callable[[], int],
        peers: Peers,
        book: PeerBook,
        replicas: ReplicaManager,
        controller: Controller,
        purgatory: Purgatory,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        spawn: Callable[[Coroutine[object, object, None]], asyncio.Task[None]],
        settings: BrokerSettings | None = None,
    ) -> None:
        """`broker_epoch` is that of the present registration; `spawn` runs what must not raise beside the requests;
        without `settings` the rates are those of the start."""

        def rate_of(name: str, at_start: int) -> Callable[[], int]:
            return (lambda: at_start) if settings is None else lambda: settings.number(name)

        self.broker_id, self._replicas, self._controller, self._purgatory = broker_id, replicas, controller, purgatory
        self._loop, self._book = loop, book
        self._lag_max_ms = config.replica_lag_time_max_ms
        self._is_rack_aware = config.replica_selector_class in _RACK_AWARE
        self._rack = config.broker_rack or None
        self.peers = peers
        self.bytes_in = self.bytes_out = 0
        """What this broker fetched as a follower, and sent to followers, since the start."""
        configs = replicas.configs
        self.leader_quota = ReplicationQuota(
            broker_id,
            rate_of("leader.replication.throttled.rate", config.leader_replication_throttled_rate),
            lambda topic: configs.get(topic).leader_throttled_replicas,
        )
        self.follower_quota = ReplicationQuota(
            broker_id,
            rate_of("follower.replication.throttled.rate", config.follower_replication_throttled_rate),
            lambda topic: configs.get(topic).follower_throttled_replicas,
        )
        self.link = ControllerLink(replicas.metadata, book, peers, loop)
        self.isr_changes = IsrChanges(
            broker_id,
            broker_epoch,
            replicas,
            self._alter_partition,
            now_ms=now_ms,
            advanced=self._advanced,
            spawn=spawn,
        )
        around = Surroundings(
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            peers=peers,
            address_of=book.address_of,
            settings=FetchSettings(
                config.replica_fetch_wait_max_ms,
                config.replica_fetch_min_bytes,
                config.replica_fetch_max_bytes,
                config.replica_fetch_response_max_bytes,
                config.replica_fetch_backoff_ms,
                config.replica_socket_timeout_ms,
            ),
            quota=self.follower_quota,
            now_ms=now_ms,
            advanced=self._advanced,
            received=self._received,
        )
        self.fetchers = ReplicaFetchers(around, loop=loop, spawn=spawn, fetchers_per_leader=config.num_replica_fetchers)
        replicas.following = self.fetchers
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins to look for followers that fall behind."""
        self._timer = self._loop.call_later(self._lag_max_ms / 2000, self._look)

    def close(self) -> None:
        """Nothing is followed or looked after any more."""
        if self._timer is not None:
            self._timer.cancel()
        self.isr_changes.close()
        self.fetchers.close()

    def sent(self, key: TopicPartition, size: int) -> None:
        """So many bytes of a partition leave for a follower."""
        self.bytes_out += size
        self.leader_quota.record(key, size)

    def nearby(self, partition: Partition, rack: str, offset: int) -> BrokerId | None:
        """The follower that a consumer in `rack` should fetch from; None for the leader, whom it has asked."""
        if not (self._is_rack_aware and partition.is_leader):
            return None
        brokers = self._replicas.metadata.brokers
        return nearby_replica(
            rack,
            self._rack,
            (
                Candidate(broker_id, brokers[broker_id].rack, each.log_end_offset, each.last_caught_up_ms)
                for broker_id, each in partition.state.followers.items()
                if broker_id in brokers and each.log_start_offset <= offset <= each.log_end_offset
            ),
        )

    # Figures

    @property
    def under_replicated(self) -> int:
        """How many partitions led here have a replica that is not in the ISR."""
        return sum(len(each.state.isr) <= len(each.state.followers) for each in self._replicas if each.is_leader)

    @property
    def under_min_isr(self) -> int:
        """How many partitions led here have a smaller ISR than `min.insync.replicas`."""
        return sum(len(each.state.isr) < each.state.min_insync_replicas for each in self._replicas if each.is_leader)

    # For the parts

    def _look(self) -> None:
        self._timer = self._loop.call_later(self._lag_max_ms / 2000, self._look)
        self.isr_changes.shrink()

    def _advanced(self, partition: Partition) -> None:
        self._purgatory.touch(partition.key)

    def _received(self, key: TopicPartition, size: int) -> None:
        self.bytes_in += size
        self.follower_quota.record(key, size)

    async def _alter_partition(self, request: m.AlterPartitionRequest) -> m.AlterPartitionResponse:
        if self._controller.is_active:
            return await self._controller.alter_partition(request)
        return await self.link.ask_controller(request, m.AlterPartitionResponse, timeout_ms=ALTER_PARTITION_TIMEOUT_MS)
