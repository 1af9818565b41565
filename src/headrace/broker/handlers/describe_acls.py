"""DescribeAcls (key 29), versions 0-3.

1     pattern types: prefixed rules, and filters of any type or by MATCH; before, literal ones only
2     flexible
3     users
Returns the rules that match a filter, grouped by the resources that they apply to. A broker without an authorizer
answers with SECURITY_DISABLED.
"""

from __future__ import annotations

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.broker.security.acl_requests import UnknownFilter, no_authorizer, read_filter
from headrace.broker.security.authorizer import Authorizer
from headrace.errors import ErrorCode, KafkaError
from headrace.in_slices import Turns
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.security.acls.filters import BindingFilter

API_KEY = ApiKey.DESCRIBE_ACLS
VERSIONS = range(4)
DEMANDS: Demands = (Demand(Operation.DESCRIBE, ResourceType.CLUSTER),)

Resource = m.DescribeAclsResponse.DescribeAclsResource
Description = m.DescribeAclsResponse.AclDescription


def handle(ctx: RequestContext, request: m.DescribeAclsRequest) -> Answer:
    """Returns the rules; later requests of the connection wait."""
    try:
        if ctx.services.authorizer is None:
            raise no_authorizer(" on the broker")
        wanted = read_filter(request)
    except UnknownFilter:
        return m.DescribeAclsResponse(resources=[])
    except KafkaError as error:
        message = error.message.removesuffix(".")
        return m.DescribeAclsResponse(error_code=error.code, error_message=message, resources=[])
    return ctx.in_order(_describe(ctx.services.authorizer, wanted), lambda error: fail(request, code_of(error)))


def fail(_request: m.DescribeAclsRequest, code: ErrorCode) -> m.DescribeAclsResponse:
    """Returns the error for the whole request."""
    return m.DescribeAclsResponse(error_code=code, error_message=None, resources=[])


async def _describe(authorizer: Authorizer, wanted: BindingFilter) -> m.DescribeAclsResponse:
    resources, turns = [], Turns()
    for pattern in await authorizer.matching_patterns(wanted.pattern, turns):
        entries = authorizer.rules.entries(pattern)
        await turns.count(1 + len(entries))
        found = [
            Description(
                principal=each.principal, host=each.host, operation=each.operation, permission_type=each.permission
            )
            for each in entries
            if wanted.entry.accepts(each)
        ]
        if found:
            resource, name, kind = pattern
            resources.append(Resource(resource_type=resource, resource_name=name, pattern_type=kind, acls=found))
    return m.DescribeAclsResponse(resources=resources)
