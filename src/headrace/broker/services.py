"""The services of one running broker, as handlers use them. `service_builders` builds them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.broker.background import spawn_in
from headrace.broker.cluster.control_plane import ControlPlane
from headrace.broker.cluster.features import Features
from headrace.broker.cluster.topic_creation import TopicCreation
from headrace.broker.coordinator_host.group_service import GroupService
from headrace.broker.coordinator_host.streams_topics import StreamsTopics
from headrace.broker.coordinator_host.transaction_service import TransactionService
from headrace.broker.fetch.fetch_sessions import FetchSessionCache
from headrace.broker.partitions.durable_append import DurableAppends
from headrace.broker.partitions.replica_manager import ReplicaManager
from headrace.broker.partitions.replica_moves import ReplicaMoves
from headrace.broker.partitions.transaction_markers import TransactionMarkers
from headrace.broker.produce.transaction_partitions import TransactionPartitions
from headrace.broker.replication.replication_service import Replication
from headrace.broker.request.admission import Admission
from headrace.broker.request.purgatory import Purgatory
from headrace.broker.request.throttling import Throttling
from headrace.broker.share.share_state import ShareCoordinators
from headrace.broker.share.shares import Shares
from headrace.config import BrokerConfig
from headrace.controller.controller import Controller
from headrace.metadata.broker_configs import BrokerSettings
from headrace.metadata.entity_configs import EntityConfigs
from headrace.metadata.group_configs import GroupConfigs
from headrace.metadata.metadata_cache import MetadataCache
from headrace.metadata.producer_ids import ProducerIds
from headrace.metadata.stored_instances import StoredInstances
from headrace.protocol.apis import ApiKey

if TYPE_CHECKING:
    from headrace.broker.instances.administration import InstanceAdministration
    from headrace.broker.instances.flow import InstanceFlow
    from headrace.broker.kafka07.positions import PositionIndexes
    from headrace.broker.security.authorizer import Authorizer
    from headrace.broker.security.delegation_tokens import DelegationTokens
    from headrace.broker.telemetry.service import ClientTelemetry


@dataclass(frozen=True, slots=True)
class Services:
    """Every service that a request may need. Built once; nothing is assigned afterwards."""

    config: BrokerConfig
    cluster_id: str
    loop: asyncio.AbstractEventLoop
    tasks: asyncio.TaskGroup
    now_ms: Callable[[], int]
    purgatory: Purgatory
    throttling: Throttling
    admission: Admission
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
    share_state: ShareCoordinators
    shares: Shares
    transaction_partitions: TransactionPartitions
    producer_ids: ProducerIds
    fetch_sessions: FetchSessionCache
    control: ControlPlane
    replication: Replication
    settings: BrokerSettings
    entities: EntityConfigs
    delegation_tokens: DelegationTokens | None
    """None without `delegation.token.secret.key`."""
    authorizer: Authorizer | None
    """None without `authorizer.class.name`."""
    group_configs: GroupConfigs
    instances: StoredInstances
    instance_administration: Callable[[], InstanceAdministration]
    """The controller's decisions about instances; made at the first call."""
    instance_flow: Callable[[], InstanceFlow]
    """The flow control of instances; made with the first instance, or at the first call."""
    kafka07: Callable[[], PositionIndexes]
    """The positions of Kafka 0.7; made with the first topic that has them, or at the first call."""
    telemetry: Callable[[], ClientTelemetry]
    """The metrics that clients push; made at the first call."""
    streams_topics: StreamsTopics
    served: tuple[tuple[ApiKey, range], ...]
    """Each API with the versions that ApiVersions advertises."""
    topic_requests: Counter[str] = field(default_factory=Counter)
    """How many requests of an instance's clients are making, growing or deleting topics, by instance."""

    @property
    def is_alone(self) -> bool:
        """Whether the broker is a cluster of its own: without ZooKeeper no other broker can join it."""
        return not self.config.zookeeper_connect

    def spawn(self, work: Coroutine[object, object, None]) -> bool:
        """Runs `work` in the background; it must not raise. Returns False, and starts nothing, when the broker is
        ending because one of its tasks failed."""
        return spawn_in(self.tasks, work)
