"""SyncGroup (key 14), versions 0-5.

1     throttle time
3     static members
4     flexible
5     the protocol's type and name, checked against the group's and returned in the response (KIP-559)
The response is sent when the leader's assignment is in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.request.context import LATER, Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, group
from headrace.coordinators.groups.classic.answers import sync_refused
from headrace.errors import ErrorCode
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from headrace.protocol import messages as m

API_KEY = ApiKey.SYNC_GROUP
VERSIONS = range(6)
DEMANDS: Demands = (Demand(Operation.READ, ResourceType.GROUP, group),)

_NAMES_NEEDED_FROM = 5


def handle(ctx: RequestContext, request: m.SyncGroupRequest) -> Answer:
    """Stores the leader's assignment; returns the member's part of it."""
    if ctx.api_version >= _NAMES_NEEDED_FROM and (request.protocol_type is None or request.protocol_name is None):
        return sync_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    ctx.services.groups.sync(request, ctx.reply)
    return LATER


def fail(_request: m.SyncGroupRequest, code: ErrorCode) -> m.SyncGroupResponse:
    """Returns a response with an error."""
    return sync_refused(code)
