"""Creates, alters and deletes instances while this broker is the controller.

One request at a time: that two instances do not share a port is decided for all of them together. Each write checks
the controller epoch. The first decision of a controller epoch reads all instances again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple

from headrace.controller.controller import Controller
from headrace.controller.decisions.instances import (
    Contents,
    InstancesView,
    contents_of,
    plan_change,
    plan_creation,
    plan_deletion,
)
from headrace.errors import ErrorCode, InvalidConfig, InvalidRequest, KafkaError
from headrace.instances.address_list import check_networks
from headrace.instances.definition import ADDRESSES_MAX, NAME, Instance
from headrace.instances.names import Namespace
from headrace.limits import INLINE_NETWORKS_MAX
from headrace.metadata.metadata_cache import MetadataCache
from headrace.metadata.stored_instances import StoredInstances
from headrace.metadata.uuids import random_uuid, to_text


class Action(IntEnum):
    """What a request asks for an instance, as AlterInstances has it."""

    CREATE = 0
    ALTER = 1
    DELETE = 2


class GrantedRequest(NamedTuple):
    """A request that was granted."""

    instance: Instance
    """As it is after the change."""
    contents: Contents


class InstanceAdministration:
    """The decisions about instances."""

    def __init__(
        self,
        instances: StoredInstances,
        controller: Controller,
        metadata: MetadataCache,
        *,
        stored: Callable[[str], int | None],
        can_delete_topics: bool,
        now_ms: Callable[[], int],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """`stored`: the bytes of an instance that count towards its capacity; None where nobody counts them."""
        self._stored = stored
        self._instances, self._controller, self._metadata = instances, controller, metadata
        self._can_delete_topics, self._now_ms, self._random_bytes = can_delete_topics, now_ms, random_bytes
        self._lock = asyncio.Lock()
        self._read_in_epoch = 0

    async def alter(
        self, action: int, name: str, document: Mapping[str, object], *, validate_only: bool = False
    ) -> GrantedRequest:
        """Executes a request, or only decides about it. Raises `KafkaError`: NOT_CONTROLLER unless this broker is the
        controller."""
        if action not in Action.__members__.values():
            raise InvalidRequest(f"{action} is no change of an instance")
        if action != Action.CREATE and not NAME.fullmatch(name):
            raise _unknown(name)
        for each in ("allow", "deny"):
            await _check_networks(document.get(each))
        async with self._lock:
            guard = self._controller.guard
            topics = await self._controller.topics_with(Namespace(name).prefix)
            if self._read_in_epoch != self._controller.epoch:
                await self._instances.refresh()
                self._read_in_epoch = self._controller.epoch
            contents = contents_of(topics.values(), self._stored(name))
            view = InstancesView(self._instances.known, self._metadata.brokers, self._now_ms(), self._can_delete_topics)
            if action == Action.CREATE:
                new_id = to_text(random_uuid(self._random_bytes))
                made = plan_creation(name, new_id, document, contents, view)
                if not validate_only:
                    await self._instances.create(made, guard)
                return GrantedRequest(made, contents)
            plan = plan_change if action == Action.ALTER else plan_deletion

            def decide(before: Instance) -> Instance:
                return plan(before, document, contents, view)

            if validate_only:
                return GrantedRequest(decide(self._existing(name)), contents)
            changed = await self._instances.change(name, decide, guard)
            assert changed is not None
            return GrantedRequest(changed, contents)

    def _existing(self, name: str) -> Instance:
        found = self._instances.get(name)
        if found is None:
            raise _unknown(name)
        return found


async def _check_networks(given: object) -> None:
    """Checks a long address list on a thread; the decision does not check it again. Raises `InvalidConfig`."""
    if not isinstance(given, list) or not INLINE_NETWORKS_MAX < len(given) <= ADDRESSES_MAX:
        return
    if all(isinstance(each, str) for each in given):
        try:
            await asyncio.to_thread(check_networks, tuple(given))
        except ValueError as error:
            raise InvalidConfig(str(error)) from None


def _unknown(name: str) -> KafkaError:
    return KafkaError(f"there is no instance called {name!r:.100}", ErrorCode.RESOURCE_NOT_FOUND)
