"""DescribeInstances (key 10001), version 0. headrace's own: ApiVersions does not name it.

Describes instances by name, or all of them. The document of an instance is a JSON object: every field of its
definition, and

    endpoints   broker -> host:port of its listener
    contents    how many topics and partitions it has, if the request asks for it, and the bytes that count towards its
                capacity; null if it has none

Every broker serves the request. A name without an instance is answered with RESOURCE_NOT_FOUND.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.in_slices import in_slices
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from headrace.instances.definition import Instance

API_KEY = ApiKey.DESCRIBE_INSTANCES
VERSIONS = range(1)
DEMANDS: Demands = (Demand(Operation.DESCRIBE, ResourceType.CLUSTER),)

Described = m.DescribeInstancesResponse.DescribedInstance


def handle(ctx: RequestContext, request: m.DescribeInstancesRequest) -> Answer:
    """Describes the instances; later requests of the connection wait."""
    return ctx.in_order(_describe(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.DescribeInstancesRequest, code: ErrorCode) -> m.DescribeInstancesResponse:
    """Returns an error for the whole request."""
    return m.DescribeInstancesResponse(error_code=code, error_message=None)


async def _describe(ctx: RequestContext, request: m.DescribeInstancesRequest) -> m.DescribeInstancesResponse:
    instances = ctx.services.instances
    names = [each.name for each in instances.all()] if request.names is None else dict.fromkeys(request.names)
    contents = await _contents(ctx) if request.include_contents and names else None
    found = []
    async for name in in_slices(names):
        instance = instances.get(name)
        if instance is None:
            message = f"there is no instance called {name!r:.100}"
            found.append(Described(name=name, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=message))
        else:
            found.append(Described(name=name, error_message=None, document=_document(ctx, instance, contents)))
    return m.DescribeInstancesResponse(error_message=None, instances=found)


def _document(ctx: RequestContext, instance: Instance, contents: Mapping[str, dict[str, int]] | None) -> str:
    from headrace.instances.definition import described

    endpoints = ctx.services.instances.endpoints().get(instance.name, {})
    document = {
        **described(instance),
        "endpoints": {str(broker): _address(*endpoints[broker]) for broker in sorted(endpoints)},
    }
    if contents is not None:
        stored = ctx.services.instance_flow().counts.stored(instance.name)
        document["contents"] = {**contents.get(instance.name, _counts()), "bytes": stored}
    return json.dumps(document)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _counts() -> dict[str, int]:
    return {"topics": 0, "partitions": 0}


async def _contents(ctx: RequestContext) -> dict[str, dict[str, int]]:
    """How many topics and partitions each instance has."""
    from headrace.instances.names import instance_of

    found: dict[str, dict[str, int]] = {}
    async for topic in in_slices(ctx.services.metadata.topics.values()):
        counts = found.setdefault(instance_of(topic.name), _counts())
        counts["topics"] += 1
        counts["partitions"] += len(topic.partitions)
    return found
