"""CreateAcls (key 30), versions 0-3.

1     pattern types: prefixed rules; before, literal ones only
2     flexible
3     users
Stores rules where Apache Kafka 3.9 keeps them. Those for one pattern are stored together or not at all; a rule that is
there already is no error. They are in force on this broker when the response is sent, and on the others moments later.
A broker without an authorizer answers with SECURITY_DISABLED.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.broker.security.acl_requests import has_unknown_codes, no_authorizer, read_binding
from headrace.broker.security.authorizer import Authorizer
from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.in_slices import in_slices
from headrace.metadata.stored_acls import Decide
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.security.acls.model import Binding, Entry, Pattern

API_KEY = ApiKey.CREATE_ACLS
VERSIONS = range(4)
DEMANDS: Demands = (Demand(Operation.ALTER, ResourceType.CLUSTER),)

Result = m.CreateAclsResponse.AclCreationResult


def handle(ctx: RequestContext, request: m.CreateAclsRequest) -> Answer:
    """Stores the rules; later requests of the connection wait."""
    if ctx.services.authorizer is None:
        return _same_for_all(request, no_authorizer())
    if any(map(has_unknown_codes, request.creations)):
        return _same_for_all(request, InvalidRequest("CreatableAcls contain unknown elements"))
    return ctx.in_order(_create(ctx, ctx.services.authorizer, request), lambda error: fail(request, code_of(error)))


def fail(request: m.CreateAclsRequest, code: ErrorCode) -> m.CreateAclsResponse:
    """Returns the same error for every rule."""
    return m.CreateAclsResponse(results=[Result(error_code=code, error_message=None) for _ in request.creations])


async def _create(ctx: RequestContext, authorizer: Authorizer, request: m.CreateAclsRequest) -> m.CreateAclsResponse:
    read: list[Binding | KafkaError] = []
    new: dict[Pattern, list[Entry]] = {}
    async for creation in in_slices(request.creations):
        try:
            binding = read_binding(
                creation,
                may_two_phase_commit=ctx.services.is_alone,
                is_instance=lambda name: ctx.services.instances.get(name) is not None,
            )
        except KafkaError as error:
            read.append(error)
        else:
            read.append(binding)
            new.setdefault(binding.pattern, []).append(binding.entry)
    errors = await authorizer.change({pattern: _adding(entries) for pattern, entries in new.items()})
    created = {pattern: len(entries) for pattern, entries in new.items() if pattern not in errors}
    authorizer.audit.rules_changed(ctx.principal, ctx.connection.host, "created", created)
    results = []
    async for each in in_slices(read):
        failed = each if isinstance(each, KafkaError) else errors.get(each.pattern)
        results.append(_result(failed))
    return m.CreateAclsResponse(results=results)


def _adding(entries: Sequence[Entry]) -> Decide:
    return lambda before: [*before, *entries]


def _same_for_all(request: m.CreateAclsRequest, error: KafkaError) -> m.CreateAclsResponse:
    return m.CreateAclsResponse(results=[_result(error) for _ in request.creations])


def _result(error: KafkaError | None) -> Result:
    if error is None:
        return Result()
    is_known = error.code is not ErrorCode.UNKNOWN_SERVER_ERROR
    return Result(error_code=error.code, error_message=error.message if is_known else None)
