"""Heartbeat (key 12), versions 0-4.

1     throttle time
3     static members
4     flexible
A member renews its session. REBALANCE_IN_PROGRESS makes it join again.
"""

from __future__ import annotations

from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, group
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.HEARTBEAT
VERSIONS = range(5)
DEMANDS: Demands = (Demand(Operation.READ, ResourceType.GROUP, group),)


def handle(ctx: RequestContext, request: m.HeartbeatRequest) -> Answer:
    """Restarts the member's session time-out and answers at once."""
    return m.HeartbeatResponse(error_code=ctx.services.groups.heartbeat(request))
