"""Removes, or counts, what this broker coordinates for an instance: groups with their offsets, transactional ids.

A broker says for which partitions it has done so: it may not have heard yet that it leads one, and what it wrote there
counts once it is committed, since the next leader may not have it otherwise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.coordinators.groups.group import GroupKind, GroupOverview
from headrace.coordinators.transactions.transaction import Transaction
from headrace.errors import ErrorCode, KafkaError, known_code
from headrace.in_slices import in_slices
from headrace.instances.names import Namespace
from headrace.network.peers.broker_addresses import peer_address
from headrace.network.peers.peers import PeerUnreachable
from headrace.protocol import messages as m
from headrace.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from headrace.types import BrokerId, LeaderEpoch, TopicPartition

if TYPE_CHECKING:
    from headrace.broker.partitions.partition import Partition
    from headrace.broker.services import Services

log = logging.getLogger(__name__)

TIMEOUT_MS = 10_000
LANE = "instances"
COORDINATED = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
"""The topics whose leaders are coordinators. The state of share groups goes with the groups."""

_LOOKS, _LOOK_EVERY_S = 100, 0.02
"""How often it looks whether what it wrote is committed."""


class Removed(NamedTuple):
    """What one broker found."""

    found: int
    """Groups and transactional ids, topics that it has not heard the deletion of, and requests that change topics."""
    coordinated: Mapping[TopicPartition, LeaderEpoch] = {}
    """The partitions of coordinators' topics that it led all the while, and in which all that it wrote is committed."""


async def state_on(services: Services, broker: BrokerId, instance: str, *, only_counts: bool = False) -> Removed:
    """Has a broker, which may be this one, remove or count. Raises `KafkaError`, `PeerUnreachable`."""
    if broker == services.replication.broker_id:
        return Removed(count_state(services, instance)) if only_counts else await remove_state(services, instance)
    known = services.metadata.brokers.get(broker)
    address = None if known is None else peer_address(known, services.config.inter_broker_listener_name)
    if address is None:
        raise PeerUnreachable(f"broker {broker} is not live")
    answer = await services.replication.peers.send(
        address,
        m.RemoveInstanceStateRequest(name=instance, only_counts=only_counts),
        m.RemoveInstanceStateResponse,
        timeout_ms=TIMEOUT_MS,
        lane=LANE,
    )
    if answer.error_code:
        raise KafkaError(f"broker {broker}: {answer.error_message or ''}", known_code(answer.error_code))
    coordinated = {
        TopicPartition(each.topic, each.partition): LeaderEpoch(each.leader_epoch) for each in answer.coordinated
    }
    return Removed(answer.found, coordinated)


def count_state(services: Services, instance: str) -> int:
    """How many groups and transactional ids have names of an instance. Raises `KafkaError` while some are loaded."""
    groups, transactions = _coordinated(services, Namespace(instance).prefix)
    return len(groups) + len(transactions)


async def remove_state(services: Services, instance: str) -> Removed:
    """Removes what can be removed. A group with members is left until their sessions end, a transactional id until its
    transaction has ended. Raises `KafkaError` while groups or transactional ids are being loaded."""
    names = Namespace(instance)
    led = {each: each.leader_epoch for each in services.replicas if each.is_leader and each.key.topic in COORDINATED}
    groups, _ = _coordinated(services, names.prefix)
    found = services.transactions.remove_with(names.prefix) + services.topic_requests[instance]
    async for topic in in_slices(list(services.metadata.topics)):
        found += names.has(topic)
    async for group in in_slices(groups):
        found += 1
        outcome = await _remove(services, group.group_id)
        if outcome is not ErrorCode.NONE:
            log.info("group %r of a removed instance is still there: %s", group.group_id, outcome.name)
    return Removed(found, await _committed(led))


async def _committed(led: Mapping[Partition, LeaderEpoch]) -> Mapping[TopicPartition, LeaderEpoch]:
    """Those of the partitions that this broker still leads, in which what is written by now is committed, or is so
    soon."""
    ends = {each: each.log.log_end_offset for each in led}
    for _ in range(_LOOKS):
        if all(each.high_watermark >= end for each, end in ends.items()):
            break
        await asyncio.sleep(_LOOK_EVERY_S)
    return {
        each.key: epoch
        for each, epoch in led.items()
        if each.is_leader and each.leader_epoch == epoch and each.high_watermark >= ends[each]
    }


def _coordinated(services: Services, prefix: str) -> tuple[Sequence[GroupOverview], Collection[Transaction]]:
    """The groups and transactional ids of a prefix. Raises `KafkaError` while some are loaded."""
    error, groups = services.groups.overview(prefix)
    transactions: Collection[Transaction] = ()
    if error is ErrorCode.NONE:
        error, transactions = services.transactions.overview(prefix)
    if error is not ErrorCode.NONE:
        raise KafkaError("groups or transactional ids are being loaded", error)
    return groups, transactions


async def _remove(services: Services, group_id: str) -> ErrorCode:
    if services.groups.coordinator.kind_of(group_id) is GroupKind.SHARE:
        from headrace.broker.share import group_states

        return await group_states.delete_group(services, group_id)
    return services.groups.delete_group(group_id)
