"""AlterInstances (key 10000), version 0. headrace's own: ApiVersions does not name it.

Creates (action 0), alters (1) and deletes (2) instances, one after the other; each is answered with its own outcome.
The document of an alteration is a JSON object: see `controller.decisions.instances`. That of a result is the instance
as it is then, with what it holds. Sent to the controller: another broker answers NOT_CONTROLLER.
"""

from __future__ import annotations

import json
import logging

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.in_slices import in_slices
from headrace.limits import INSTANCE_DOCUMENT_CHARS_MAX
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

log = logging.getLogger(__name__)

API_KEY = ApiKey.ALTER_INSTANCES
VERSIONS = range(1)
DEMANDS: Demands = (Demand(Operation.ALTER, ResourceType.CLUSTER),)

Result = m.AlterInstancesResponse.AlterationResult


def handle(ctx: RequestContext, request: m.AlterInstancesRequest) -> Answer:
    """Alters the instances; later requests of the connection wait."""
    return ctx.in_order(_alter(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.AlterInstancesRequest, code: ErrorCode) -> m.AlterInstancesResponse:
    """Returns an error for the whole request."""
    return m.AlterInstancesResponse(error_code=code, error_message=None)


async def _alter(ctx: RequestContext, request: m.AlterInstancesRequest) -> m.AlterInstancesResponse:
    results = []
    async for each in in_slices(request.alterations):
        try:
            document = await _altered(ctx, each, validate_only=request.validate_only)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                raise
            results.append(Result(name=each.name, error_code=error.code, error_message=error.message))
        else:
            results.append(Result(name=each.name, error_message=None, document=document))
    return m.AlterInstancesResponse(error_message=None, results=results)


async def _altered(ctx: RequestContext, wanted: m.AlterInstancesRequest.Alteration, *, validate_only: bool) -> str:
    from headrace.broker.instances.administration import Action  # few clusters have instances
    from headrace.instances.definition import described

    document = _read(wanted.document)
    if wanted.action == Action.CREATE and ctx.services.controller.is_active and not document.get("adopt"):
        from headrace.broker.instances.claims import refuse_claimed

        await refuse_claimed(ctx.services, wanted.name)
    outcome = await ctx.services.instance_administration().alter(
        wanted.action, wanted.name, document, validate_only=validate_only
    )
    if not validate_only:
        what = Action(wanted.action).name.lower()
        who = {"principal": ctx.principal, "host": ctx.connection.host}
        log.info("instance %s: %s, now %s", wanted.name, what, outcome.instance.state.value, extra=who)
    found = outcome.contents
    contents = {"topics": found.topics, "partitions": found.partitions, "bytes": found.stored}
    return json.dumps({**described(outcome.instance), "contents": contents})


def _read(document: str) -> dict[str, object]:
    if len(document) > INSTANCE_DOCUMENT_CHARS_MAX:
        raise InvalidRequest(
            f"the document of an instance has {len(document)} characters, at most {INSTANCE_DOCUMENT_CHARS_MAX}"
        )
    try:
        value = json.loads(document)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidRequest(f"the document of an instance is not a JSON object: {document!r:.100}")
    return value
