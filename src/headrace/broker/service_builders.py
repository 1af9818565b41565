"""Builders of a broker's services: each builds one, connects it to those that it needs, and pushes its end.

_base       purgatory, metadata, replicas, control plane, connections to other brokers, controller
the rest    replication, moves of replicas and so on: built on the base, in the order of their needs

`coordinator_builders` has those of the coordinators.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from headrace.broker.background import spawn_in
from headrace.broker.base_services import BaseServices
from headrace.broker.cluster.control_plane import ControlPlane
from headrace.broker.cluster.control_requests_sender import Way, control_sender
from headrace.broker.cluster.features import Features
from headrace.broker.cluster.topic_creation import TopicCreation
from headrace.broker.coordinator_builders import (
    build_groups,
    build_share_state,
    build_shares,
    build_transaction_partitions,
    build_transactions,
)
from headrace.broker.coordinator_host.streams_topics import StreamsTopics
from headrace.broker.environment import Environment
from headrace.broker.fetch.fetch_sessions import FetchSessionCache
from headrace.broker.handlers import advertised
from headrace.broker.instances.flow_start import instance_flow
from headrace.broker.partitions.durable_append import DurableAppends
from headrace.broker.partitions.log_dir_failures import LogDirFailures
from headrace.broker.partitions.partition import Partition, end_key
from headrace.broker.partitions.replica_manager import ReplicaManager
from headrace.broker.partitions.replica_moves import ReplicaMoves
from headrace.broker.partitions.transaction_markers import TransactionMarkers
from headrace.broker.replication.replication_service import Replication
from headrace.broker.request.admission import Admission
from headrace.broker.request.purgatory import Purgatory
from headrace.broker.request.throttling import Throttling
from headrace.broker.services import Services
from headrace.broker.storage import Storage
from headrace.config import BrokerConfig, TopicConfig
from headrace.controller.controller import Controller, LeaderRebalancing
from headrace.controller.decisions.topics import TopicDefaults
from headrace.metadata.broker_configs import BrokerSettings
from headrace.metadata.deltas import MetadataDelta
from headrace.metadata.entity_configs import CLIENT_METRICS
from headrace.metadata.group_configs import GroupConfigs
from headrace.metadata.metadata_cache import MetadataCache
from headrace.metadata.producer_ids import ProducerIds
from headrace.metadata.registration import Registration as BrokerRegistration
from headrace.metadata.stored_instances import StoredInstances
from headrace.metadata.uuids import random_uuid
from headrace.metastore.store import StoreError
from headrace.network.peers.broker_addresses import BrokerAddresses
from headrace.network.peers.peers import Peers
from headrace.types import BrokerId, TopicPartition

if TYPE_CHECKING:
    from headrace.broker.instances.administration import InstanceAdministration
    from headrace.broker.instances.flow import InstanceFlow
    from headrace.broker.kafka07.positions import PositionIndexes
    from headrace.broker.security.authorizer import Authorizer
    from headrace.broker.security.delegation_tokens import DelegationTokens
    from headrace.broker.telemetry.service import ClientTelemetry

log = logging.getLogger(__name__)


def can_fence(config: BrokerConfig) -> bool:
    """Whether brokers that are suspected to have failed are fenced."""
    return config.fencing_enable and bool(config.zookeeper_connect)


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
    settings = storage.settings
    replication = _replication(base, settings, tasks, stack)
    appends = DurableAppends(base.replicas, base.purgatory, loop=loop, now_ms=now_ms)
    creation = TopicCreation(base.controller, replication.link, metadata, is_alone=base.is_alone)
    group_configs = GroupConfigs(storage.entities, settings.current)
    settings.on_change(lambda _, now: group_configs.broker_changed(now))
    groups = build_groups(base, appends, creation, group_configs, tasks, stack)
    markers = TransactionMarkers(
        base.replicas, appends, base.purgatory, groups, timeout_ms=config.request_timeout_ms, loop=loop, now_ms=now_ms
    )
    share_state = build_share_state(base, appends, creation, tasks, stack)
    features = Features(storage.store, metadata, partial(spawn_in, tasks), is_alone=base.is_alone)
    producer_ids = ProducerIds(storage.store, base.broker_id)
    transactions = build_transactions(base, appends, creation, markers, features, producer_ids, tasks, stack)
    admission, authorizer = Admission(), await _authorizer(base, stack)
    if authorizer is not None:
        authorizer.attach(admission)
    throttling, instances = _throttling(base), await _instances(base, stack)
    flow = instance_flow(base, instances, throttling, tasks, stack)
    return Services(
        config=config,
        cluster_id=storage.cluster_id,
        loop=loop,
        tasks=tasks,
        now_ms=now_ms,
        purgatory=base.purgatory,
        throttling=throttling,
        admission=admission,
        metadata=metadata,
        features=features,
        replicas=base.replicas,
        appends=appends,
        markers=markers,
        controller=base.controller,
        topic_creation=creation,
        groups=groups,
        transactions=transactions,
        share_state=share_state,
        shares=build_shares(base, share_state, group_configs, instances, tasks, stack),
        transaction_partitions=build_transaction_partitions(base, transactions, tasks),
        moves=_moves(base, settings, tasks, stack),
        producer_ids=producer_ids,
        fetch_sessions=FetchSessionCache(config.max_incremental_fetch_session_cache_slots, _session_ids(environment)),
        control=base.control,
        replication=replication,
        settings=settings,
        entities=storage.entities,
        delegation_tokens=await _delegation_tokens(base, tasks, stack),
        authorizer=authorizer,
        group_configs=group_configs,
        instances=instances,
        instance_administration=_instance_administration(base, instances, flow),
        instance_flow=flow,
        kafka07=_kafka07(base, tasks, stack),
        telemetry=_telemetry(base),
        served=advertised(has_telemetry=bool(config.metrics_listen)),
        streams_topics=StreamsTopics(creation, partial(spawn_in, tasks), now_ms),
    )


async def _instances(base: BaseServices, stack: AsyncExitStack) -> StoredInstances:
    """The instances of the cluster, all read."""
    instances = base.storage.instances
    stack.push_async_callback(instances.close)
    await instances.start()
    configs = base.storage.configs
    instances.on_change(
        lambda name, instance: configs.bound(f"{name}.", None if instance is None else instance.topic_bounds)
    )
    return instances


def _instance_administration(
    base: BaseServices, instances: StoredInstances, flow: Callable[[], InstanceFlow]
) -> Callable[[], InstanceAdministration]:
    """The decisions about instances, imported and made at the first call: few clusters have any."""

    @cache
    def made() -> InstanceAdministration:
        from headrace.broker.instances.administration import InstanceAdministration

        return InstanceAdministration(
            instances,
            base.controller,
            base.metadata,
            stored=flow().counts.stored,
            can_delete_topics=base.config.delete_topic_enable,
            now_ms=base.environment.now_ms,
            random_bytes=base.environment.random_bytes,
        )

    return made


async def _authorizer(base: BaseServices, stack: AsyncExitStack) -> Authorizer | None:
    """The authorizer, with all rules read; imported only where there is to be one. Raises `CorruptNode`."""
    if not base.config.authorizer_class_name:
        return None
    from headrace.broker.security.authorizer import Authorizer

    authorizer = Authorizer(base.config, base.storage.store, base.loop)
    stack.push_async_callback(authorizer.close)
    await authorizer.start()
    return authorizer


def _kafka07(base: BaseServices, tasks: asyncio.TaskGroup, stack: AsyncExitStack) -> Callable[[], PositionIndexes]:
    """The positions of Kafka 0.7, imported and made with the first topic that has them: few brokers have any."""

    ends: list[Callable[[], object]] = []

    @cache
    def made() -> PositionIndexes:
        from headrace.broker.kafka07.positions import PositionIndexes

        positions = PositionIndexes(
            base.replicas, base.metadata, base.storage.store, base.loop, partial(spawn_in, tasks)
        )
        ends.extend((tasks.create_task(positions.keep()).cancel, positions.close))
        return positions

    def close() -> None:
        for end in ends:
            end()

    def look(_key: TopicPartition, partition: Partition | None) -> None:
        if partition is not None and partition.log.config.kafka07_enable:
            made()

    def configured(_topic: str, config: TopicConfig) -> None:
        if config.kafka07_enable:
            made()

    base.replicas.on_leadership(look)
    base.storage.configs.on_change(configured)
    stack.callback(close)
    return made


def _telemetry(base: BaseServices) -> Callable[[], ClientTelemetry]:
    """The metrics that clients push, imported and made at the first call: few brokers have any."""

    @cache
    def made() -> ClientTelemetry:
        from headrace.broker.telemetry.service import ClientTelemetry

        telemetry = ClientTelemetry(
            max_bytes=base.config.telemetry_max_bytes,
            now_ms=base.environment.now_ms,
            new_id=lambda: random_uuid(base.environment.random_bytes),
            loop=base.loop,
        )
        base.storage.entities.on_change(CLIENT_METRICS, telemetry.configs_changed)
        return telemetry

    return made


def _base(
    config: BrokerConfig,
    storage: Storage,
    registration: BrokerRegistration,
    stack: AsyncExitStack,
    environment: Environment,
) -> BaseServices:
    loop, broker_id = asyncio.get_running_loop(), registration.broker.id
    purgatory, metadata = Purgatory(loop), MetadataCache()
    replicas = _replicas(config, storage, broker_id, metadata, purgatory, environment)
    addresses = BrokerAddresses(metadata, config.inter_broker_listener_name)
    control = ControlPlane(
        replicas,
        metadata,
        storage.configs,
        addresses,
        broker_epoch=registration.epoch,
        on_seen=registration.seen_by_controller,
    )
    peers = environment.make_peers(f"headrace-{broker_id}", lambda: storage.settings.current)
    stack.push_async_callback(peers.close)
    metadata.on_change(partial(_disconnect_removed, peers))
    ways = [Way(peers, config.inter_broker_listener_name)]
    if config.control_plane_listener_name and config.zookeeper_connect:
        others = environment.make_peers(
            f"headrace-{broker_id}",
            lambda: replace(storage.settings.current, inter_broker_listener_name=config.control_plane_listener_name),
        )
        stack.push_async_callback(others.close)
        metadata.on_change(partial(_disconnect_removed, others))
        ways.insert(0, Way(others, config.control_plane_listener_name))
    controller = _controller(config, storage, broker_id, control, ways, environment)
    return BaseServices(
        config, storage, registration, environment, loop, broker_id, purgatory, metadata, replicas, addresses, control,
        peers, controller,
    )  # fmt: skip


def _disconnect_removed(peers: Peers, delta: MetadataDelta) -> None:
    """Ends the requests to brokers that are no longer live. A process that stands still keeps its connections and
    answers nothing; markers and verifications of transactions would wait for `request.timeout.ms`, though others lead
    by now."""
    for broker in delta.brokers_removed:
        peers.disconnect(broker, "it is no longer live")


def _replication(
    base: BaseServices, settings: BrokerSettings, tasks: asyncio.TaskGroup, stack: AsyncExitStack
) -> Replication:
    registration = base.registration
    replication = Replication(
        base.config,
        base.broker_id,
        broker_epoch=registration.epoch,
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
    settings.on_change(lambda before, now: replication.fetchers.spread(now.num_replica_fetchers))
    stack.callback(replication.close)
    return replication


def _moves(
    base: BaseServices, settings: BrokerSettings, tasks: asyncio.TaskGroup, stack: AsyncExitStack
) -> ReplicaMoves:
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
    ways: Sequence[Way],
    environment: Environment,
) -> Controller:
    """This broker's controller, which may become the active one. It reaches its own broker through `control`."""
    return Controller(
        storage.store,
        broker_id,
        send=control_sender(broker_id, control, ways),
        configs=storage.configs,
        now_ms=environment.now_ms,
        defaults=TopicDefaults(
            config.num_partitions,
            config.default_replication_factor,
            storage.configs.is_reliable,
            storage.instances.owner_of,
        ),
        delete_enabled=config.delete_topic_enable,
        random_below=lambda bound: int.from_bytes(environment.random_bytes(8), "big") % bound,
        new_uuid=lambda: random_uuid(environment.random_bytes),
        rebalancing=LeaderRebalancing(
            config.auto_leader_rebalance_enable,
            config.leader_imbalance_check_interval_seconds,
            config.leader_imbalance_per_broker_percentage,
        ),
        listener=config.inter_broker_listener_name or None,
        can_fence=can_fence(config),
    )


def _throttling(base: BaseServices) -> Throttling:
    """The quotas of clients, which follow the metadata store."""
    throttling = Throttling(base.config, base.loop.time)
    throttling.follow(base.storage.entities)
    return throttling


async def _delegation_tokens(
    base: BaseServices, tasks: asyncio.TaskGroup, stack: AsyncExitStack
) -> DelegationTokens | None:
    """The delegation tokens, imported only by a broker that has a secret key for them."""
    config, environment = base.config, base.environment
    if not config.delegation_token_secret_key:
        return None
    from headrace.broker.security.delegation_tokens import DelegationTokens
    from headrace.metadata.stored_tokens import StoredTokens

    tokens = DelegationTokens(
        StoredTokens(base.storage.store),
        config.delegation_token_secret_key.encode(),
        max_lifetime_ms=config.delegation_token_max_lifetime_ms,
        expiry_time_ms=config.delegation_token_expiry_time_ms,
        per_owner_max=config.headrace_delegation_tokens_per_owner_max,
        now_ms=environment.now_ms,
        random_bytes=environment.random_bytes,
        loop=base.loop,
    )
    stack.push_async_callback(tokens.close)
    await tokens.start()

    async def remove_expired() -> None:
        while True:
            await asyncio.sleep(config.delegation_token_expiry_check_interval_ms / 1000)
            if base.controller.is_active:
                try:
                    await tokens.remove_expired()
                except StoreError as error:
                    log.warning("expired delegation tokens could not be removed: %s", type(error).__name__)

    stack.callback(tasks.create_task(remove_expired()).cancel)
    return tokens


def _session_ids(environment: Environment) -> Callable[[], int]:
    """Ids of fetch sessions: 31 random bits, so that a client cannot guess another's. 0 means no session."""
    return lambda: int.from_bytes(environment.random_bytes(4), "big") >> 1 or 1
