"""ShareAcknowledge (key 79), versions 1-2.

1     acknowledges records that a member of a share group has acquired, in its share session (KIP-932)
2     renewals of locks, and their duration in the response (KIP-1222)

The last request of a session (epoch -1) acknowledges, and releases the rest.
"""

from __future__ import annotations

from headrace.broker.handlers.share_fetch import the_group
from headrace.broker.request.context import LATER, Answer, RequestContext
from headrace.broker.request.demands import READ_TOPIC, Demand, Demands
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.SHARE_ACKNOWLEDGE
VERSIONS = range(1, 3)


DEMANDS: Demands = (
    Demand(Operation.READ, ResourceType.GROUP, the_group),
    READ_TOPIC,
)


def handle(ctx: RequestContext, request: m.ShareAcknowledgeRequest) -> Answer:
    """Answers when the acknowledgements are stored."""
    from headrace.broker.share.share_acknowledge_request import start

    start(ctx, request)
    return LATER


def fail(_request: m.ShareAcknowledgeRequest, code: ErrorCode) -> m.ShareAcknowledgeResponse:
    """Returns the error for the whole request."""
    return m.ShareAcknowledgeResponse(error_code=code)
