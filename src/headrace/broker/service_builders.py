"""Builders of a broker's services: each builds one, connects it to those that it needs, and pushes its end.

_base       purgatory, metadata, replicas, control plane, connections to other brokers, controller
the rest    replication, coordinators, moves of replicas: built on the base, in the order of their needs
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import NamedTuple

from headrace.broker.background import spawn_in
from headrace.broker.cluster.control_plane import ControlPlane
from headrace.broker.cluster.control_requests_sender import control_sender
from headrace.broker.cluster.features import Features
from headrace.broker.cluster.topic_creation import TopicCreation
from headrace.broker.coordinator_host.group_service import GroupService
from headrace.broker.coordinator_host.internal_topic import InternalTopic, offsets_topic, transactions_topic
from headrace.broker.coordinator_host.marker_sender import MarkerSender, partition_count
from headrace.broker.coordinator_host.transaction_service import TransactionService
from headrace.broker.environment import Environment
from headrace.broker.fetch.fetch_sessions import FetchSessionCache
from headrace.broker.handlers import advertised
from headrace.broker.partitions.durable_append import DurableAppends
from headrace.broker.partitions.log_dir_failures import LogDirFailures
from headrace.broker.partitions.partition import end_key
from headrace.broker.partitions.replica_manager import ReplicaManager
from headrace.broker.partitions.replica_moves import ReplicaMoves
from headrace.broker.partitions.transaction_markers import TransactionMarkers
from headrace.broker.produce.transaction_partitions import TransactionPartitions
from headrace.broker.replication.replication_service import Replication
from headrace.broker.request.purgatory import Purgatory
from headrace.broker.services import Services
from headrace.broker.storage import Storage
from headrace.config import BrokerConfig
from headrace.controller.controller import Controller, Rebalancing
from headrace.controller.decisions.topics import TopicDefaults
from headrace.metadata.broker_configs import BrokerSettings
from headrace.metadata.deltas import MetadataDelta
from headrace.metadata.metadata_cache import MetadataCache
from headrace.metadata.producer_ids import ProducerIds
from headrace.metadata.registration import Registration as BrokerRegistration
from headrace.metadata.uuids import random_uuid
from headrace.network.peers.broker_addresses import BrokerAddresses
from headrace.network.peers.peers import Peers
from headrace.types import BrokerId, TopicPartition


def can_fence(config: BrokerConfig) -> bool:
    """Whether brokers that are suspected to have failed are fenced."""
    return config.fencing_enable and bool(config.zookeeper_connect)


class _Base(NamedTuple):
    """The services that all others build on."""

    config: BrokerConfig
    storage: Storage
    registration: BrokerRegistration
    environment: Environment
    loop: asyncio.AbstractEventLoop
    broker_id: BrokerId
    purgatory: Purgatory
    metadata: MetadataCache
    replicas: ReplicaManager
    addresses: BrokerAddresses
    control: ControlPlane
    peers: Peers
    controller: Controller

    @property
    def is_alone(self) -> bool:
        """Whether the broker is a cluster of its own."""
        return not self.config.zookeeper_connect


async def build_services(
    config: BrokerConfig,
    storage: Storage,
    registration: BrokerRegistration,
    stack: AsyncExitStack,
    environment: Environment,
) -> Services:
    """Builds the services of a registered broker. Each pushes its end on the `stack`."""
    base = _base(config, storage, registration, stack, environment)
    now_ms, loop, metadata = environment.now_ms, base.loop, base.metadata
    tasks = await stack.enter_async_context(asyncio.TaskGroup())
    # Runs before the task group's end: requests that wait for a metadata store out of reach would keep the group open.
    stack.push_async_callback(storage.store.close)
    settings = BrokerSettings(storage.store, base.broker_id, config)
    await settings.start()
    stack.push_async_callback(settings.close)
    replication = _replication(base, settings, tasks, stack)
    appends = DurableAppends(base.replicas, base.purgatory, loop=loop, now_ms=now_ms)
    creation = TopicCreation(base.controller, replication.link, metadata, is_alone=base.is_alone)
    groups = _groups(base, appends, creation, tasks, stack)
    markers = TransactionMarkers(
        base.replicas, appends, base.purgatory, groups, timeout_ms=config.request_timeout_ms, loop=loop, now_ms=now_ms
    )
    features = Features(storage.store, metadata, partial(spawn_in, tasks), is_alone=base.is_alone)
    producer_ids = ProducerIds(storage.store, base.broker_id)
    transactions = _transactions(base, appends, creation, markers, features, producer_ids, tasks, stack)
    return Services(
        config=config,
        cluster_id=storage.cluster_id,
        loop=loop,
        tasks=tasks,
        now_ms=now_ms,
        purgatory=base.purgatory,
        metadata=metadata,
        features=features,
        replicas=base.replicas,
        appends=appends,
        markers=markers,
        controller=base.controller,
        topic_creation=creation,
        groups=groups,
        transactions=transactions,
        transaction_partitions=_transaction_partitions(base, transactions, tasks),
        moves=_moves(base, settings, tasks, stack),
        producer_ids=producer_ids,
        fetch_sessions=FetchSessionCache(config.max_incremental_fetch_session_cache_slots, _session_ids(environment)),
        control=base.control,
        replication=replication,
        settings=settings,
        served=advertised(),
    )


def _base(
    config: BrokerConfig,
    storage: Storage,
    registration: BrokerRegistration,
    stack: AsyncExitStack,
    environment: Environment,
) -> _Base:
    loop, broker_id = asyncio.get_running_loop(), registration.broker.id
    purgatory, metadata = Purgatory(loop), MetadataCache()
    replicas = _replicas(config, storage, broker_id, metadata, purgatory, environment)
    addresses = BrokerAddresses(metadata, config.inter_broker_listener_name)
    control = ControlPlane(
        replicas,
        metadata,
        storage.configs,
        addresses,
        broker_epoch=lambda: registration.epoch,
        on_seen=registration.seen_by_controller,
    )
    peers = environment.make_peers(f"headrace-{broker_id}")
    stack.push_async_callback(peers.close)
    metadata.on_change(partial(_disconnect_removed, peers))
    controller = _controller(config, storage, broker_id, control, peers, environment)
    return _Base(
        config, storage, registration, environment, loop, broker_id, purgatory, metadata, replicas, addresses, control,
        peers, controller,
    )  # fmt: skip


def _disconnect_removed(peers: Peers, delta: MetadataDelta) -> None:
    """Ends the requests to brokers that are no longer live. A process that stands still keeps its connections and
    answers nothing; markers and verifications of transactions would wait for `request.timeout.ms`, though others lead
    by now."""
    for broker in delta.brokers_removed:
        peers.disconnect(broker, "it is no longer live")


def _replication(base: _Base, settings: BrokerSettings, tasks: asyncio.TaskGroup, stack: AsyncExitStack) -> Replication:
    registration = base.registration
    replication = Replication(
        base.config,
        base.broker_id,
        broker_epoch=lambda: registration.epoch,
        peers=base.peers,
        addresses=base.addresses,
        replicas=base.replicas,
        controller=base.controller,
        purgatory=base.purgatory,
        loop=base.loop,
        now_ms=base.environment.now_ms,
        spawn=tasks.create_task,
        settings=settings,
    )
    replication.start()
    stack.callback(replication.close)
    return replication


def _transactions(
    base: _Base,
    appends: DurableAppends,
    creation: TopicCreation,
    markers: TransactionMarkers,
    features: Features,
    producer_ids: ProducerIds,
    tasks: asyncio.TaskGroup,
    stack: AsyncExitStack,
) -> TransactionService:
    """The transaction coordinator, which follows what this broker leads."""
    spawn = partial(spawn_in, tasks)
    transactions = TransactionService(
        base.config,
        InternalTopic(transactions_topic(base.config, is_alone=base.is_alone), base.metadata, creation.make),
        producer_ids=producer_ids,
        appends=appends,
        make_markers=lambda report: MarkerSender(
            base.broker_id,
            metadata=base.metadata,
            addresses=base.addresses,
            peers=base.peers,
            local=markers,
            partition_count=partial(partition_count, base.storage.store),
            report=report,
            spawn=spawn,
            loop=base.loop,
            request_timeout_ms=base.config.request_timeout_ms,
        ),
        spawn=spawn,
        loop=base.loop,
        now_ms=base.environment.now_ms,
        version=lambda: features.transaction_version,
    )
    base.replicas.on_leadership(transactions.runtime.leadership_changed)
    stack.callback(transactions.close)
    return transactions


def _transaction_partitions(
    base: _Base, transactions: TransactionService, tasks: asyncio.TaskGroup
) -> TransactionPartitions:
    config = base.config
    return TransactionPartitions(
        base.broker_id,
        replicas=base.replicas,
        addresses=base.addresses,
        peers=base.peers,
        local=transactions,
        spawn=partial(spawn_in, tasks),
        loop=base.loop,
        now_ms=base.environment.now_ms,
        is_enabled=config.transaction_partition_verification_enable,
        retry_backoff_ms=config.add_partitions_to_txn_retry_backoff_ms,
        retry_backoff_max_ms=config.add_partitions_to_txn_retry_backoff_max_ms,
        request_timeout_ms=config.request_timeout_ms,
    )


def _moves(base: _Base, settings: BrokerSettings, tasks: asyncio.TaskGroup, stack: AsyncExitStack) -> ReplicaMoves:
    """The moves of replicas between data directories, which end when a directory fails."""
    moves = ReplicaMoves(
        base.replicas,
        tasks,
        now_ms=base.environment.now_ms,
        bytes_per_second=lambda: settings.number("replica.alter.log.dirs.io.max.bytes.per.second"),
    )
    stack.callback(moves.close)
    failures = LogDirFailures(
        base.replicas, base.storage.store, base.broker_id, tasks, on_failure=moves.directory_failed
    )
    stack.callback(failures.close)
    return moves


def _replicas(
    config: BrokerConfig,
    storage: Storage,
    broker_id: BrokerId,
    metadata: MetadataCache,
    purgatory: Purgatory,
    environment: Environment,
) -> ReplicaManager:
    """The replica manager, whose changes wake the requests that wait in the purgatory."""

    def touch(key: TopicPartition) -> None:
        purgatory.touch(key)
        purgatory.touch(end_key(key))

    return ReplicaManager(
        broker_id,
        storage.logs,
        metadata,
        storage.configs,
        now_ms=environment.now_ms,
        touch=touch,
        lag_max_ms=config.replica_lag_time_max_ms,
    )


def _controller(
    config: BrokerConfig,
    storage: Storage,
    broker_id: BrokerId,
    control: ControlPlane,
    peers: Peers,
    environment: Environment,
) -> Controller:
    """This broker's controller, which may become the active one. It reaches its own broker through `control`."""
    return Controller(
        storage.store,
        broker_id,
        send=control_sender(broker_id, control, peers, config.inter_broker_listener_name),
        configs=storage.configs,
        now_ms=environment.now_ms,
        defaults=TopicDefaults(config.num_partitions, config.default_replication_factor),
        delete_enabled=config.delete_topic_enable,
        random_below=lambda bound: int.from_bytes(environment.random_bytes(8), "big") % bound,
        new_uuid=lambda: random_uuid(environment.random_bytes),
        rebalancing=Rebalancing(
            config.auto_leader_rebalance_enable,
            config.leader_imbalance_check_interval_seconds,
            config.leader_imbalance_per_broker_percentage,
        ),
        listener=config.inter_broker_listener_name or None,
        can_fence=can_fence(config),
    )


def _groups(
    base: _Base, appends: DurableAppends, creation: TopicCreation, tasks: asyncio.TaskGroup, stack: AsyncExitStack
) -> GroupService:
    """The group coordinator, which follows what this broker leads and which topics are deleted."""
    groups = GroupService(
        base.config,
        InternalTopic(offsets_topic(base.config, is_alone=base.is_alone), base.metadata, creation.make),
        appends=appends,
        spawn=partial(spawn_in, tasks),
        loop=base.loop,
        now_ms=base.environment.now_ms,
    )
    base.replicas.on_leadership(groups.runtime.leadership_changed)
    base.metadata.on_change(groups.on_metadata)
    stack.callback(groups.runtime.close)
    return groups


def _session_ids(environment: Environment) -> Callable[[], int]:
    """Ids of fetch sessions: 31 random bits, so that a client cannot guess another's. 0 means no session."""
    return lambda: int.from_bytes(environment.random_bytes(4), "big") >> 1 or 1
