"""SyncGroup (key 14), versions 0-5.

1     throttle time
3     static members
4     flexible
5     the protocol's type and name, checked against the group's and told in the answer (KIP-559)
The answer comes when the leader's assignment is in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.context import LATER, Answer, RequestContext
from headrace.errors import ErrorCode
from headrace.groups.answers import sync_refused
from headrace.protocol.apis import ApiKey

if TYPE_CHECKING:
    from headrace.protocol import messages as m

API_KEY = ApiKey.SYNC_GROUP
VERSIONS = range(6)

_NAMES_NEEDED_FROM = 5


def handle(ctx: RequestContext, request: m.SyncGroupRequest) -> Answer:
    """Brings or fetches the assignment."""
    if ctx.api_version >= _NAMES_NEEDED_FROM and (request.protocol_type is None or request.protocol_name is None):
        return sync_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    ctx.broker.groups.sync(request, ctx.reply)
    return LATER


def fail(_request: m.SyncGroupRequest, code: ErrorCode) -> m.SyncGroupResponse:
    """The refusal of this member."""
    return sync_refused(code)
