"""The replication service: builds and owns everything that a broker needs to replicate partitions.

    fetchers       fetch partitions that other brokers lead             `replica_fetchers`
    isr_changes    requests ISR changes of led partitions               `isr_requests`
    link           sends requests to the controller                     `cluster.controller_link`
    quotas         limit replication traffic                            `replication_quota`
    nearby         selects a replica for a consumer's rack              `headrace.replication.replica_selector`

A single broker has the service too, which stays idle with one replica per partition.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator

from headrace.broker.cluster.controller_link import ControllerLink
from headrace.broker.metrics.traffic import Traffic
from headrace.broker.partitions.partition import Partition
from headrace.broker.partitions.replica_manager import ReplicaManager
from headrace.broker.replication.following import FetcherServices, FetchSettings
from headrace.broker.replication.isr_requests import IsrChanges
from headrace.broker.replication.replica_fetchers import ReplicaFetchers
from headrace.broker.replication.replication_quota import ReplicationQuota
from headrace.broker.request.purgatory import Purgatory
from headrace.config import BrokerConfig
from headrace.controller.controller import Controller
from headrace.in_slices import in_turns
from headrace.limits import ELEMENTS_PER_SLICE
from headrace.metadata.broker_configs import BrokerSettings
from headrace.metadata.deltas import MetadataDelta
from headrace.metadata.topic_configs import TopicConfigs
from headrace.network.peers.broker_addresses import BrokerAddresses
from headrace.network.peers.peers import Peers
from headrace.protocol import messages as m
from headrace.replication.replica_selector import Candidate, select_replica
from headrace.types import BrokerId, TopicPartition

ALTER_PARTITION_TIMEOUT_MS = 2_000
"""How long another controller is asked before this broker checks whether it has become the controller itself."""

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
        addresses: BrokerAddresses,
        replicas: ReplicaManager,
        controller: Controller,
        purgatory: Purgatory,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        spawn: Callable[[Coroutine[object, object, None]], asyncio.Task[None]],
        settings: BrokerSettings | None = None,
    ) -> None:
        """`broker_epoch` returns the epoch of the current registration. `spawn` runs a coroutine that must not raise.
        Without `settings` the quotas' rates are those of `config`."""

        self.broker_id, self._replicas, self._controller, self._purgatory = broker_id, replicas, controller, purgatory
        self._loop, self._spawn, self.addresses = loop, spawn, addresses
        self._lag_max_ms = config.replica_lag_time_max_ms
        self._is_rack_aware = config.replica_selector_class in _RACK_AWARE
        self._rack = config.broker_rack or None
        self.peers = peers
        self.incoming = Traffic()
        """Has the bytes fetched as a follower since the start."""
        self.outgoing = Traffic()
        """Has the bytes sent to followers since the start."""
        self.leader_quota, self.follower_quota = _quotas(config, broker_id, replicas.configs, settings)
        self.link = ControllerLink(replicas.metadata, addresses, peers, loop)
        self.isr_changes = IsrChanges(
            broker_id,
            broker_epoch,
            replicas,
            self._alter_partition,
            now_ms=now_ms,
            advanced=self._advanced,
            spawn=spawn,
        )
        services = FetcherServices(
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            peers=peers,
            address_of=addresses.address_of,
            settings=_fetch_settings(config),
            quota=self.follower_quota,
            now_ms=now_ms,
            advanced=self._advanced,
            watched=purgatory.watched,
            received=self._received,
            incoming=self.incoming,
        )
        self.fetchers = ReplicaFetchers(
            services,
            loop=loop,
            spawn=spawn,
            fetchers_per_leader=(settings.current if settings else config).num_replica_fetchers,
        )
        replicas.on_leadership(self.fetchers.leadership_changed)
        replicas.on_flushed(self.fetchers.wake)
        self._now_ms = now_ms
        replicas.metadata.on_change(self._on_metadata)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Starts to check for followers that fall behind."""
        self._timer = self._loop.call_later(self._lag_max_ms / 2000, self._look)

    def close(self) -> None:
        """Stops all fetchers and checks."""
        if self._timer is not None:
            self._timer.cancel()
        self.isr_changes.close()
        self.fetchers.close()

    def sent(self, key: TopicPartition, size: int) -> None:
        """Counts bytes of a partition sent to a follower."""
        self.outgoing.bytes_out += size
        self.leader_quota.record(key, size)

    def preferred_read_replica(self, partition: Partition, rack: str, offset: int) -> BrokerId | None:
        """The follower that a consumer in `rack` should fetch from; None for the leader."""
        if not (self._is_rack_aware and partition.is_leader):
            return None
        brokers, isr = self._replicas.metadata.brokers, partition.state.isr
        return select_replica(
            rack,
            self._rack,
            (
                Candidate(
                    broker_id, brokers[broker_id].rack, each.log_end_offset, each.last_caught_up_ms, broker_id in isr
                )
                for broker_id, each in partition.state.followers.items()
                if broker_id in brokers and each.log_start_offset <= offset <= each.log_end_offset
            ),
        )

    # Metrics

    @property
    def bytes_in(self) -> int:
        """Bytes fetched as a follower since the start."""
        return self.incoming.bytes_in

    @property
    def bytes_out(self) -> int:
        """Bytes sent to followers since the start."""
        return self.outgoing.bytes_out

    @property
    def under_replicated(self) -> int:
        """The number of partitions led here with a replica that is not in the ISR."""
        return sum(len(each.state.isr) <= len(each.state.followers) for each in self._replicas if each.is_leader)

    @property
    def under_min_isr(self) -> int:
        """The number of partitions led here with a smaller ISR than `min.insync.replicas`."""
        return sum(len(each.state.isr) < each.state.min_insync_replicas for each in self._replicas if each.is_leader)

    # Callbacks

    def _look(self) -> None:
        self._timer = self._loop.call_later(self._lag_max_ms / 2000, self._look)
        self._spawn(in_turns(self.isr_changes.shrink()))

    def _on_metadata(self, delta: MetadataDelta) -> Iterator[None]:
        """Stops waiting for followers whose registration has ended."""
        if delta.brokers_removed:
            now_ms = self._now_ms()
            for count, partition in enumerate(list(self._replicas), 1):
                if count % ELEMENTS_PER_SLICE == 0:
                    yield
                for broker in delta.brokers_removed & partition.state.followers.keys():
                    if partition.state.follower_gone(broker, now_ms):
                        self._advanced(partition)

    def _advanced(self, partition: Partition) -> None:
        self._purgatory.touch(partition.key)

    def _received(self, key: TopicPartition, size: int) -> None:
        self.incoming.bytes_in += size
        self.follower_quota.record(key, size)

    async def _alter_partition(self, request: m.AlterPartitionRequest) -> m.AlterPartitionResponse:
        if self._controller.is_active:
            return await self._controller.alter_partition(request)
        return await self.link.send(request, m.AlterPartitionResponse, timeout_ms=ALTER_PARTITION_TIMEOUT_MS)


def _quotas(
    config: BrokerConfig, broker_id: BrokerId, configs: TopicConfigs, settings: BrokerSettings | None
) -> tuple[ReplicationQuota, ReplicationQuota]:
    """The quotas of leaders and of followers. Without `settings` the rates are those of `config`."""

    def rate_of(name: str, at_start: int) -> Callable[[], int]:
        return (lambda: at_start) if settings is None else lambda: settings.number(name)

    return (
        ReplicationQuota(
            broker_id,
            rate_of("leader.replication.throttled.rate", config.leader_replication_throttled_rate),
            lambda topic: configs.get(topic).leader_throttled_replicas,
        ),
        ReplicationQuota(
            broker_id,
            rate_of("follower.replication.throttled.rate", config.follower_replication_throttled_rate),
            lambda topic: configs.get(topic).follower_throttled_replicas,
        ),
    )


def _fetch_settings(config: BrokerConfig) -> FetchSettings:
    return FetchSettings(
        config.replica_fetch_wait_max_ms,
        config.replica_fetch_min_bytes,
        config.replica_fetch_max_bytes,
        config.replica_fetch_response_max_bytes,
        config.replica_fetch_backoff_ms,
        config.replica_socket_timeout_ms,
    )
