"""GetTelemetrySubscriptions (key 71), version 0.

Returns the metrics that a client is asked to push, how often, and the codecs and size that the broker accepts
(KIP-714). Subscriptions are configs of CLIENT_METRICS resources, which `kafka-client-metrics` sets. A client that asks
again before its push interval is over gets THROTTLING_QUOTA_EXCEEDED. As in Apache Kafka, ApiVersions names the API
only on a broker that has a use for the metrics: here one with `headrace.metrics.listen`.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.broker.request.context import RequestContext
from headrace.broker.request.demands import Demands
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
VERSIONS = range(1)
DEMANDS: Demands = ()


def handle(ctx: RequestContext, request: m.GetTelemetrySubscriptionsRequest) -> m.GetTelemetrySubscriptionsResponse:
    """Returns the client's subscription."""
    try:
        return ctx.services.telemetry().get(request.client_instance_id, attributes(ctx), ctx.connection)
    except KafkaError as error:
        return fail(request, error.code)


def fail(request: m.GetTelemetrySubscriptionsRequest, code: ErrorCode) -> m.GetTelemetrySubscriptionsResponse:
    """Returns a response with an error."""
    return m.GetTelemetrySubscriptionsResponse(error_code=code)


def attributes(ctx: RequestContext) -> Mapping[str, str]:
    """The attributes of a client that subscriptions match; used by PushTelemetry too."""
    from headrace.broker.telemetry import subscriptions as names

    connection = ctx.connection
    found = {names.SOURCE_ADDRESS: connection.host, names.SOURCE_PORT: connection.peer.rpartition(":")[2]}
    if ctx.client_id is not None:
        found[names.CLIENT_ID] = ctx.client_id
    if connection.software:
        found[names.SOFTWARE_NAME], _, found[names.SOFTWARE_VERSION] = connection.software.partition(" ")
    return found
