"""AlterClientQuotas (key 49), versions 0-1.

1     flexible
Sets and removes quotas of users, client ids, user and client together, their defaults, and addresses. They are written
where Apache Kafka 3.9 keeps them, and apply on every broker within moments. Each entity changes whole or not at all.
An entity of headrace's own type `instance` has the limits of an instance as `producer_byte_rate` and
`consumer_byte_rate`; the instance's own clients do not see it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.in_slices import in_slices
from headrace.metadata.quota_nodes import INSTANCE, IP, altered, node_of, read_entity
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.ALTER_CLIENT_QUOTAS
VERSIONS = range(2)
DEMANDS: Demands = (Demand(Operation.ALTER_CONFIGS, ResourceType.CLUSTER),)


def handle(ctx: RequestContext, request: m.AlterClientQuotasRequest) -> Answer:
    """Changes the quotas; later requests of the connection wait."""
    return ctx.in_order(_alter(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.AlterClientQuotasRequest, code: ErrorCode) -> m.AlterClientQuotasResponse:
    """Returns the same error for every entity."""
    return m.AlterClientQuotasResponse(entries=[_result(entry, code, None) for entry in request.entries])


async def _alter(ctx: RequestContext, request: m.AlterClientQuotasRequest) -> m.AlterClientQuotasResponse:
    results = []
    async for entry in in_slices(request.entries):
        try:
            await _alter_one(ctx, entry, validate_only=request.validate_only)
        except KafkaError as error:
            results.append(_result(entry, error.code, error.message))
        else:
            results.append(_result(entry, ErrorCode.NONE, None))
    return m.AlterClientQuotasResponse(entries=results)


async def _alter_one(ctx: RequestContext, entry: m.AlterClientQuotasRequest.EntryData, *, validate_only: bool) -> None:
    parts = [(each.entity_type, each.entity_name) for each in entry.entity]
    ops = [(each.key, None if each.remove else each.value) for each in entry.ops]
    if len(parts) == 1 and parts[0][0] == INSTANCE and not ctx.is_of_instance:
        from headrace.broker.instances.limits_as_quotas import alter_limits  # few clusters have instances

        await alter_limits(ctx.services.instances, dict(parts), ops, validate_only=validate_only)
        return
    entity = read_entity(parts)
    if (address := entity.get(IP)) is not None and not await _is_address(address):
        raise InvalidRequest(f"{address} is not a valid IP or resolvable host.")
    entity_type, name = node_of(entity)
    await ctx.services.entities.rewrite(
        entity_type, name, lambda own: altered(entity_type, own, ops), validate_only=validate_only
    )


async def _is_address(text: str) -> bool:
    """Whether the text is an address, or the name of a host that has one."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        try:
            await asyncio.get_running_loop().getaddrinfo(text, None)
        except (socket.gaierror, UnicodeError):
            return False
    return True


def _result(
    entry: m.AlterClientQuotasRequest.EntryData, code: ErrorCode, message: str | None
) -> m.AlterClientQuotasResponse.EntryData:
    part = m.AlterClientQuotasResponse.EntityData
    return m.AlterClientQuotasResponse.EntryData(
        error_code=code,
        error_message=message or None,
        entity=[part(entity_type=each.entity_type, entity_name=each.entity_name) for each in entry.entity],
    )
