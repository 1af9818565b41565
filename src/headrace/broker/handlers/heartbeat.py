"""Heartbeat (key 12), versions 0-4.

1     throttle time
3     static members
4     flexible
A member says that it lives; REBALANCE_IN_PROGRESS tells it to join again.
"""

from __future__ import annotations

from headrace.broker.context import Answer, RequestContext
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.HEARTBEAT
VERSIONS = range(5)


def handle(ctx: RequestContext, request: m.HeartbeatRequest) -> Answer:
    """Answered at once; the member's session starts anew."""
    return m.HeartbeatResponse(error_code=ctx.broker.groups.heartbeat(request))
