"""The services of one running broker, as handlers use them. `service_builders` builds them."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from headrace.broker.background import spawn_in
from headrace.broker.cluster.control_plane import ControlPlane
from headrace.broker.cluster.features import Features
from headrace.broker.cluster.topic_creation import TopicCreation
from headrace.broker.coordinator_host.group_service import GroupService
from headrace.broker.coordinator_host.transaction_service import TransactionService
from headrace.broker.fetch.fetch_sessions import FetchSessionCache
from headrace.broker.partitions.durable_append import DurableAppends
from headrace.broker.partitions.replica_manager import ReplicaManager
from headrace.broker.partitions.replica_moves import ReplicaMoves
from headrace.broker.partitions.transaction_markers import TransactionMarkers
from headrace.broker.produce.transaction_partitions import TransactionPartitions
from headrace.broker.replication.replication_service import Replication
from headrace.broker.request.purgatory import Purgatory
from headrace.config import BrokerConfig
from headrace.controller.controller import Controller
from headrace.metadata.broker_configs import BrokerSettings
from headrace.metadata.metadata_cache import MetadataCache
from headrace.metadata.producer_ids import ProducerIds
from headrace.protocol.apis import ApiKey


@dataclass(frozen=True, slots=True)
class Services:
    """Every service that a request may need. Built once; nothing is assigned afterwards."""

    config: BrokerConfig
    cluster_id: str
    loop: asyncio.AbstractEventLoop
    tasks: asyncio.TaskGroup
    now_ms: Callable[[], int]
    purgatory: Purgatory
    metadata: MetadataCache
    features: Features
    replicas: ReplicaManager
    appends: DurableAppends
    markers: TransactionMarkers
    moves: ReplicaMoves
    controller: Controller
    topic_creation: TopicCreation
    groups: GroupService
    transactions: TransactionService
    transaction_partitions: TransactionPartitions
    producer_ids: ProducerIds
    fetch_sessions: FetchSessionCache
    control: ControlPlane
    replication: Replication
    settings: BrokerSettings
    served: tuple[tuple[ApiKey, range], ...]
    """Each API with the versions that ApiVersions advertises."""

    @property
    def is_alone(self) -> bool:
        """Whether the broker is a cluster of its own: without ZooKeeper no other broker can join it."""
        return not self.config.zookeeper_connect

    def spawn(self, work: Coroutine[object, object, None]) -> bool:
        """Runs `work` in the background; it must not raise. Returns False, and starts nothing, when the broker is
        ending because one of its tasks failed."""
        return spawn_in(self.tasks, work)
