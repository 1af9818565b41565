"""UpdateMetadata (key 6), versions 5-8.

5     topics grouped; the broker epoch that it is meant for
6     flexible
7     topic ids
8     from a KRaft controller, or not
From the controller alone, to every broker: what clients may be told. Left out: versions 0 to 4, of Apache Kafka
before 2.2.
"""

from __future__ import annotations

from headrace.broker.cluster_action import must_be_a_broker
from headrace.broker.context import Answer, RequestContext
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.UPDATE_METADATA
VERSIONS = range(5, 9)


def handle(ctx: RequestContext, request: m.UpdateMetadataRequest) -> Answer:
    """Takes it over; an error when it is out of date."""
    must_be_a_broker(ctx)
    return ctx.in_order(ctx.broker.control.handle(request), lambda _: fail(request, ErrorCode.UNKNOWN_SERVER_ERROR))


def fail(request: m.UpdateMetadataRequest, code: ErrorCode) -> m.UpdateMetadataResponse:
    """The refusal."""
    return m.UpdateMetadataResponse(error_code=code)
