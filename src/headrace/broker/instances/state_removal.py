"""Removes, or counts, what this broker coordinates for an instance: groups with their offsets, transactional ids."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from headrace.coordinators.groups.group import GroupKind, GroupOverview
from headrace.coordinators.transactions.transaction import Transaction
from headrace.errors import ErrorCode, KafkaError, known_code
from headrace.in_slices import in_slices
from headrace.instances.names import Namespace
from headrace.network.peers.broker_addresses import peer_address
from headrace.network.peers.peers import PeerUnreachable
from headrace.protocol import messages as m
from headrace.types import BrokerId

if TYPE_CHECKING:
    from headrace.broker.services import Services

log = logging.getLogger(__name__)

TIMEOUT_MS = 10_000
LANE = "instances"


async def state_on(services: Services, broker: BrokerId, instance: str, *, only_counts: bool = False) -> int:
    """Has a broker, which may be this one, remove or count. Raises `KafkaError`, `PeerUnreachable`."""
    if broker == services.replication.broker_id:
        return count_state(services, instance) if only_counts else await remove_state(services, instance)
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
    return answer.found


def count_state(services: Services, instance: str) -> int:
    """How many groups and transactional ids have names of an instance. Raises `KafkaError` while some are loaded."""
    groups, transactions = _coordinated(services, Namespace(instance).prefix)
    return len(groups) + len(transactions)


async def remove_state(services: Services, instance: str) -> int:
    """Removes what can be removed, and returns how many groups and transactional ids were found, and topics that this
    broker has not heard the deletion of. A group with members is left until their sessions end, a transactional id
    until its transaction has ended. Raises `KafkaError` while groups or transactional ids are being loaded."""
    names = Namespace(instance)
    groups, _ = _coordinated(services, names.prefix)
    found = services.transactions.remove_with(names.prefix)
    async for topic in in_slices(list(services.metadata.topics)):
        found += names.has(topic)
    async for group in in_slices(groups):
        found += 1
        outcome = await _remove(services, group.group_id)
        if outcome is not ErrorCode.NONE:
            log.info("group %r of a removed instance is still there: %s", group.group_id, outcome.name)
    return found


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
