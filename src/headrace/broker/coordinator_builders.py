"""Builders of the coordinators, and of what handlers need to reach them: groups, transactions, share groups."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.background import spawn_in
from headrace.broker.base_services import BaseServices
from headrace.broker.cluster.features import Features
from headrace.broker.cluster.topic_creation import TopicCreation
from headrace.broker.coordinator_host.group_service import GroupService
from headrace.broker.coordinator_host.internal_topic import (
    InternalTopic,
    offsets_topic,
    share_state_topic,
    transactions_topic,
)
from headrace.broker.coordinator_host.marker_sender import MarkerSender, partition_count
from headrace.broker.coordinator_host.transaction_service import TransactionService
from headrace.broker.partitions.durable_append import DurableAppends
from headrace.broker.partitions.transaction_markers import TransactionMarkers
from headrace.broker.produce.transaction_partitions import TransactionPartitions
from headrace.broker.share.share_state import ShareCoordinators
from headrace.broker.share.shares import Shares
from headrace.metadata.group_configs import GroupConfigs
from headrace.metadata.producer_ids import ProducerIds
from headrace.metadata.stored_instances import StoredInstances

if TYPE_CHECKING:
    from headrace.broker.coordinator_host.share_state_service import ShareStateService
    from headrace.broker.share.persister_client import PersisterClient
    from headrace.broker.share.share_manager import ShareManager


def build_groups(
    base: BaseServices,
    appends: DurableAppends,
    creation: TopicCreation,
    group_configs: GroupConfigs,
    tasks: asyncio.TaskGroup,
    stack: AsyncExitStack,
) -> GroupService:
    """The group coordinator, which follows what this broker leads and which topics are deleted."""
    groups = GroupService(
        base.config,
        InternalTopic(offsets_topic(base.config, is_alone=base.is_alone), base.metadata, creation.make),
        base.metadata,
        appends=appends,
        spawn=partial(spawn_in, tasks),
        loop=base.loop,
        now_ms=base.environment.now_ms,
        group_configs=group_configs,
    )
    base.replicas.on_leadership(groups.runtime.leadership_changed)
    base.metadata.on_change(groups.on_metadata)
    stack.callback(groups.close)
    return groups


def build_transactions(
    base: BaseServices,
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


def build_transaction_partitions(
    base: BaseServices, transactions: TransactionService, tasks: asyncio.TaskGroup
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
        is_enabled=lambda: base.storage.settings.current.transaction_partition_verification_enable,
        retry_backoff_ms=config.add_partitions_to_txn_retry_backoff_ms,
        retry_backoff_max_ms=config.add_partitions_to_txn_retry_backoff_max_ms,
        request_timeout_ms=config.request_timeout_ms,
    )


def build_share_state(
    base: BaseServices,
    appends: DurableAppends,
    creation: TopicCreation,
    tasks: asyncio.TaskGroup,
    stack: AsyncExitStack,
) -> ShareCoordinators:
    """The share coordinator, which follows what this broker leads and which topics are deleted, and the persister."""
    spawn = partial(spawn_in, tasks)

    def coordinator(topic: InternalTopic) -> ShareStateService:
        from headrace.broker.coordinator_host.share_state_service import ShareStateService

        return ShareStateService(
            base.config,
            topic,
            metadata=base.metadata,
            replicas=base.replicas,
            appends=appends,
            spawn=spawn,
            loop=base.loop,
            now_ms=base.environment.now_ms,
        )

    def persister(share_state: ShareCoordinators) -> PersisterClient:
        from headrace.broker.share.persister_client import PersisterClient

        return PersisterClient(
            base.broker_id,
            share_state,
            metadata=base.metadata,
            addresses=base.addresses,
            peers=base.peers,
            spawn=spawn,
            loop=base.loop,
            random_bytes=base.environment.random_bytes,
            request_timeout_ms=base.config.request_timeout_ms,
        )

    topic = InternalTopic(share_state_topic(base.config, is_alone=base.is_alone), base.metadata, creation.make)
    share_state = ShareCoordinators(topic, coordinator, persister)
    base.replicas.on_leadership(share_state.leadership_changed)
    base.metadata.on_change(share_state.on_metadata)
    stack.callback(share_state.close)
    return share_state


def build_shares(
    base: BaseServices,
    share_state: ShareCoordinators,
    group_configs: GroupConfigs,
    instances: StoredInstances,
    tasks: asyncio.TaskGroup,
    stack: AsyncExitStack,
) -> Shares:
    """The share partitions of what this broker leads."""

    def make() -> ShareManager:
        from headrace.broker.share.share_manager import ShareManager

        return ShareManager(
            base.replicas,
            lambda: share_state.persister,
            group_configs,
            sessions_max=base.config.share_sessions_max,
            owner_of=instances.owner_of,
            touch=base.purgatory.touch,
            spawn=partial(spawn_in, tasks),
            loop=base.loop,
            now_ms=base.environment.now_ms,
        )

    shares = Shares(make)
    base.replicas.on_leadership(shares.leadership_changed)
    stack.callback(shares.close)
    return shares
