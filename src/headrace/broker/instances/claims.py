"""What a cluster has already under the names of an instance that is to be created.

A dot is no rare character: before there was an instance `first`, an operator may have had a user `first.last` and a
group `first.app`. They would become the tenant's `last` and `app`, with the user's password and the group's offsets.
So they are refused, as topics are (`controller.decisions.instances`), unless the request says `adopt`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from headrace.broker.instances.state_removal import state_on
from headrace.errors import ErrorCode, KafkaError
from headrace.in_slices import in_slices
from headrace.instances.definition import NAME
from headrace.instances.names import Namespace
from headrace.metadata.entity_configs import CLIENTS, GROUPS, USERS, desanitize
from headrace.network.peers.peers import PeerUnreachable
from headrace.types import BrokerId

if TYPE_CHECKING:
    from headrace.broker.services import Services

LOADED_WITHIN_S, AGAIN_AFTER_S = 10.0, 0.1
_WORDS = {USERS: "users with passwords or quotas", CLIENTS: "client ids with quotas", GROUPS: "groups with configs"}


async def refuse_claimed(services: Services, name: str) -> None:
    """Raises POLICY_VIOLATION if there are users, quotas, groups, transactional ids or rules of an instance's names,
    and REQUEST_TIMED_OUT if a broker cannot be asked. The instance, if there is one already, owns them."""
    if not NAME.fullmatch(name) or services.instances.get(name) is not None:
        return  # refused elsewhere
    found = [each async for each in _settings(services, name)]
    counts = await asyncio.gather(*(_count_on(services, each, name) for each in sorted(services.metadata.brokers)))
    if sum(counts):
        found.append(f"{sum(counts)} groups and transactional ids")
    if found:
        message = (
            f"{', '.join(found)} have names of instance {name}: remove them, or let the instance adopt them (--adopt), "
            "which makes them its own"
        )
        raise KafkaError(message, ErrorCode.POLICY_VIOLATION)


async def _settings(services: Services, name: str) -> AsyncIterator[str]:
    """What every broker knows of the names."""
    names = Namespace(name)
    for kind, words in _WORDS.items():
        nodes = (desanitize(each.partition("/")[0]) async for each in in_slices(list(services.entities.all(kind))))
        found = {each async for each in nodes if names.has(each)}
        if found:
            yield f"{len(found)} {words}, such as {min(found)},"
    rules = () if services.authorizer is None else services.authorizer.rules.patterns_under(name)
    if rules:
        yield f"{len(rules)} resources with access control lists, such as {min(each.name for each in rules)},"


async def _count_on(services: Services, broker: BrokerId, name: str) -> int:
    """The groups and transactional ids of the names that a broker coordinates. It may be loading some."""
    until = services.loop.time() + LOADED_WITHIN_S
    while True:
        try:
            return (await state_on(services, broker, name, only_counts=True)).found
        except PeerUnreachable as error:
            what = f"broker {broker} cannot be asked for groups of the names of instance {name}: {error}"
            raise KafkaError(what, ErrorCode.REQUEST_TIMED_OUT) from None
        except KafkaError as error:
            if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS or services.loop.time() > until:
                raise
        await asyncio.sleep(AGAIN_AFTER_S)
