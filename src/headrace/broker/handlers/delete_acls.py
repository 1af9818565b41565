"""DeleteAcls (key 31), versions 0-3.

1     pattern types: prefixed rules, and filters of any type or by MATCH; before, literal ones only
2     flexible
3     users
Deletes the rules that match any of the filters, and returns for each filter those that it matched. The rules of one
pattern are deleted together. A broker without an authorizer answers with SECURITY_DISABLED.

Filters by MATCH, and those without a name or a type of resource, find the rules that this broker knows: one that
another broker created a moment ago may be missed. So it is with Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.broker.security.acl_requests import UnknownFilter, no_authorizer, read_filter
from headrace.broker.security.authorizer import Authorizer
from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.in_slices import Turns, in_slices
from headrace.limits import ACL_SCANS_PER_REQUEST_MAX, ACLS_DELETED_PER_REQUEST_MAX
from headrace.metadata.stored_acls import Decide
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.security.acls.filters import BindingFilter, PatternFilter
from headrace.security.acls.model import Entry, Pattern, PatternType
from headrace.security.acls.removal import Removal

API_KEY = ApiKey.DELETE_ACLS
VERSIONS = range(4)
DEMANDS: Demands = (Demand(Operation.ALTER, ResourceType.CLUSTER),)

Result = m.DeleteAclsResponse.DeleteAclsFilterResult
Matching = m.DeleteAclsResponse.DeleteAclsMatchingAcl


def handle(ctx: RequestContext, request: m.DeleteAclsRequest) -> Answer:
    """Deletes the rules; later requests of the connection wait."""
    if ctx.services.authorizer is None:
        return _same_for_all(request, no_authorizer())
    return ctx.in_order(_delete(ctx, ctx.services.authorizer, request), lambda error: fail(request, code_of(error)))


def fail(request: m.DeleteAclsRequest, code: ErrorCode) -> m.DeleteAclsResponse:
    """Returns the same error for every filter."""
    results = [Result(error_code=code, error_message=None, matching_acls=[]) for _ in request.filters]
    return m.DeleteAclsResponse(filter_results=results)


async def _delete(ctx: RequestContext, authorizer: Authorizer, request: m.DeleteAclsRequest) -> m.DeleteAclsResponse:
    wanted: list[tuple[BindingFilter, Sequence[Pattern]] | KafkaError] = []
    removals: dict[Pattern, Removal] = {}
    scans, turns = 0, Turns()
    for message in request.filters:
        try:
            found = read_filter(message)
            scans += found.pattern.name is None
            if scans > ACL_SCANS_PER_REQUEST_MAX:
                raise InvalidRequest(f"More than {ACL_SCANS_PER_REQUEST_MAX} filters have no resource name.")
        except UnknownFilter as error:
            wanted.append(error)
            continue
        except KafkaError as error:
            return _same_for_all(request, error)
        matching = await authorizer.matching_patterns(found.pattern, turns)
        patterns = dict.fromkeys([*matching, *_named(found.pattern)])
        wanted.append((found, tuple(patterns)))
        for pattern in patterns:
            if removals.setdefault(pattern, Removal()).add(found.entry) > ACL_SCANS_PER_REQUEST_MAX:
                why = f"More than {ACL_SCANS_PER_REQUEST_MAX} filters for {pattern.name!r:.250} leave a choice."
                return _same_for_all(request, InvalidRequest(why))
    changes: dict[Pattern, Decide] = {pattern: removal.decide for pattern, removal in removals.items()}
    errors = await authorizer.change(changes)
    counts = {each: sum(1 for _ in removal.removed()) for each, removal in removals.items() if each not in errors}
    gone = {pattern: count for pattern, count in counts.items() if count}
    authorizer.audit.rules_changed(ctx.principal, ctx.connection.host, "deleted", gone)
    return await _answer(wanted, removals, errors)


def _named(wanted: PatternFilter) -> Iterator[Pattern]:
    """The patterns that a filter names. They are looked up in the store, whether this broker knows them or not."""
    if wanted.name and wanted.resource is not ResourceType.ANY and wanted.kind is not PatternType.MATCH:
        for kind in (PatternType.LITERAL, PatternType.PREFIXED):
            if wanted.kind in (PatternType.ANY, kind) and "/" not in wanted.name:
                yield Pattern(wanted.resource, wanted.name, kind)


async def _answer(
    wanted: Sequence[tuple[BindingFilter, Sequence[Pattern]] | KafkaError],
    removals: dict[Pattern, Removal],
    errors: dict[Pattern, KafkaError],
) -> m.DeleteAclsResponse:
    results, count = [], 0
    async for each in in_slices(wanted, 1):
        if isinstance(each, KafkaError):
            results.append(Result(error_code=each.code, error_message=each.message, matching_acls=[]))
            continue
        found, patterns = each
        matching = []
        for pattern in patterns:
            for entry in removals[pattern].removed(found.entry):
                if count < ACLS_DELETED_PER_REQUEST_MAX:
                    count += 1
                    matching.append(_matching(pattern, entry, errors.get(pattern)))
        results.append(Result(error_message=None, matching_acls=matching))
    return m.DeleteAclsResponse(filter_results=results)


def _matching(pattern: Pattern, entry: Entry, error: KafkaError | None) -> Matching:
    return Matching(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None or error.code is ErrorCode.UNKNOWN_SERVER_ERROR else error.message,
        resource_type=pattern.resource,
        resource_name=pattern.name,
        pattern_type=pattern.kind,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


def _same_for_all(request: m.DeleteAclsRequest, error: KafkaError) -> m.DeleteAclsResponse:
    results = [Result(error_code=error.code, error_message=error.message, matching_acls=[]) for _ in request.filters]
    return m.DeleteAclsResponse(filter_results=results)
