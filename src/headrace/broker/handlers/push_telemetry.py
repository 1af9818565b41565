"""PushTelemetry (key 72), version 0.

Takes in metrics of a client (KIP-714), in OpenTelemetry's format; the broker's metrics page shows them. Refused are a
push before the interval is over (THROTTLING_QUOTA_EXCEEDED), with an id of another subscription
(UNKNOWN_SUBSCRIPTION_ID), an unknown codec (UNSUPPORTED_COMPRESSION_TYPE), more than `telemetry.max.bytes`
(TELEMETRY_TOO_LARGE), what is no OTLP or grows too large when it is decompressed (INVALID_RECORD), and any push after
one that said it was the last (INVALID_REQUEST).
"""

from __future__ import annotations

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.handlers.get_telemetry_subscriptions import attributes
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demands
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.PUSH_TELEMETRY
VERSIONS = range(1)
DEMANDS: Demands = ()


def handle(ctx: RequestContext, request: m.PushTelemetryRequest) -> Answer:
    """Keeps the metrics; later requests of the connection wait."""
    return ctx.in_order(_push(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.PushTelemetryRequest, code: ErrorCode) -> m.PushTelemetryResponse:
    """Returns a response with an error."""
    return m.PushTelemetryResponse(error_code=code)


async def _push(ctx: RequestContext, request: m.PushTelemetryRequest) -> m.PushTelemetryResponse:
    await ctx.services.telemetry().push(request, attributes(ctx), ctx.connection)
    return m.PushTelemetryResponse()
