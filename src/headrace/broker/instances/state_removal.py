"""Removes what this broker coordinates for an instance: groups with their offsets, and transactional ids."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.coordinators.groups.group import GroupKind
from headrace.errors import ErrorCode, KafkaError
from headrace.in_slices import in_slices
from headrace.instances.names import Namespace

if TYPE_CHECKING:
    from headrace.broker.services import Services

log = logging.getLogger(__name__)


async def remove_state(services: Services, instance: str) -> int:
    """Removes what can be removed, and returns how many groups and transactional ids were found, and topics that this
    broker has not heard the deletion of. A group with members is left until their sessions end, a transactional id
    until its transaction has ended. Raises `KafkaError` while groups or transactional ids are being loaded."""
    names = Namespace(instance)
    error, groups = services.groups.overview()
    if error is ErrorCode.NONE:
        error, _ = services.transactions.overview()
    if error is not ErrorCode.NONE:
        raise KafkaError("groups or transactional ids are being loaded", error)
    found = services.transactions.remove_with(names.prefix)
    async for topic in in_slices(list(services.metadata.topics)):
        found += names.has(topic)
    async for group in in_slices(groups):
        if names.has(group.group_id):
            found += 1
            outcome = await _remove(services, group.group_id)
            if outcome is not ErrorCode.NONE:
                log.info("group %r of a removed instance is still there: %s", group.group_id, outcome.name)
    return found


async def _remove(services: Services, group_id: str) -> ErrorCode:
    if services.groups.coordinator.kind_of(group_id) is GroupKind.SHARE:
        from headrace.broker.share import group_states

        return await group_states.delete_group(services, group_id)
    return services.groups.delete_group(group_id)
