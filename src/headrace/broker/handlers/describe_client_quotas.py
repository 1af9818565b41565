"""DescribeClientQuotas (key 48), versions 0-1.

1     flexible
Returns the entities that match every component of the filter: the named one (0), the default (1), or any of the type
(2). With `strict`, an entity must not have a part of another type. Entities of headrace's own type `instance` have the
limits of instances; they are returned if the filter names the type, and not to an instance's own clients.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.in_slices import in_slices
from headrace.metadata.entity_configs import CLIENTS, IPS, USERS
from headrace.metadata.quota_nodes import CLIENT_ID, INSTANCE, IP, USER, QuotaEntity, entity_of, quotas_of
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.DESCRIBE_CLIENT_QUOTAS
VERSIONS = range(2)
DEMANDS: Demands = (Demand(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),)

_EXACT, _DEFAULT, _ANY = range(3)

Filter = dict[str, tuple[int, str | None]]


def handle(ctx: RequestContext, request: m.DescribeClientQuotasRequest) -> Answer:
    """Returns the quotas of the entities that match; later requests of the connection wait."""
    return ctx.in_order(_describe(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.DescribeClientQuotasRequest, code: ErrorCode) -> m.DescribeClientQuotasResponse:
    """Returns the error, and no entries: null, not an empty list."""
    return m.DescribeClientQuotasResponse(error_code=code, error_message=None, entries=None)


async def _describe(ctx: RequestContext, request: m.DescribeClientQuotasRequest) -> m.DescribeClientQuotasResponse:
    try:
        wanted = _filter(request, (USER, CLIENT_ID, IP) if ctx.is_of_instance else (USER, CLIENT_ID, IP, INSTANCE))
    except KafkaError as error:
        return m.DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    entries = []
    stored = ctx.services.entities
    nodes = [(each, *node) for each in (USERS, CLIENTS, IPS) for node in stored.all(each).items()]
    async for entity_type, name, configs in in_slices(nodes):
        entity = entity_of(entity_type, name)
        if entity is not None and _matches(entity, wanted, is_strict=request.strict):
            quotas = quotas_of(entity_type, configs)
            if quotas:
                entries.append(_entry(entity, quotas))
    if INSTANCE in wanted:
        from headrace.broker.instances.limits_as_quotas import limits_of  # few clusters have instances

        async for entity, limits in in_slices(limits_of(ctx.services.instances.all())):
            if _matches(entity, wanted, is_strict=request.strict):
                entries.append(_entry(entity, limits))
    return m.DescribeClientQuotasResponse(error_message=None, entries=entries)


def _filter(request: m.DescribeClientQuotasRequest, kinds: Collection[str]) -> Filter:
    """The filter by type of entity. Raises `InvalidRequest`, and UNSUPPORTED_VERSION for a type that is not known."""
    wanted: Filter = {}
    for each in request.components:
        kind, match = each.entity_type, each.match
        if not kind:
            raise InvalidRequest("Invalid empty entity type.")
        if kind in wanted:
            raise InvalidRequest(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in kinds:
            raise KafkaError(f"Custom entity type '{kind}' not supported", ErrorCode.UNSUPPORTED_VERSION)
        if each.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise InvalidRequest(f"Unknown match type {each.match_type}")
        if each.match_type == _EXACT and match is None:
            raise InvalidRequest("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if each.match_type != _EXACT and match is not None:
            name = "DEFAULT" if each.match_type == _DEFAULT else "SPECIFIED"
            raise InvalidRequest(f"Request specified MATCH_TYPE_{name}, but also specified a match string.")
        wanted[kind] = each.match_type, match
    if IP in wanted and len(wanted) > 1:
        raise InvalidRequest(
            "Invalid entity filter component combination. IP filter component should not be used with "
            "User or ClientId filter component."
        )
    return wanted


def _matches(entity: QuotaEntity, wanted: Filter, *, is_strict: bool) -> bool:
    if is_strict and len(entity) != len(wanted):
        return False
    return all(
        kind in entity and (match_type == _ANY or entity[kind] == match) for kind, (match_type, match) in wanted.items()
    )


def _entry(entity: QuotaEntity, quotas: Mapping[str, float]) -> m.DescribeClientQuotasResponse.EntryData:
    response = m.DescribeClientQuotasResponse
    return response.EntryData(
        entity=[response.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        values=[response.ValueData(key=key, value=value) for key, value in quotas.items()],
    )
