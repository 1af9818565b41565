"""ShareFetch (key 78), versions 1-2.

1     acquires records for a member of a share group, in a share session (KIP-932); acknowledgements ride along
2     the acquire mode: record-limit gives no record more than `max_records` (KIP-1206); renewals of locks (KIP-1222)

The response comes when both the fetch and the acknowledgements are complete. A request with renewals fetches nothing,
since a wait could outlast the locks. The last request of a session (epoch -1) acknowledges, and releases the rest.
Membership is not checked, as in Apache Kafka: a record's lock names the member that may acknowledge it.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.broker.request.context import LATER, Answer, RequestContext
from headrace.broker.request.demands import READ_TOPIC, Demand, Demands
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.SHARE_FETCH
VERSIONS = range(1, 3)


def the_group(_ctx: RequestContext, request: m.ShareFetchRequest | m.ShareAcknowledgeRequest) -> Iterable[str]:
    """The group of a request, if it has one."""
    return (request.group_id,) if request.group_id is not None else ()


DEMANDS: Demands = (
    Demand(Operation.READ, ResourceType.GROUP, the_group),
    READ_TOPIC,
)


def handle(ctx: RequestContext, request: m.ShareFetchRequest) -> Answer:
    """Answers when the fetch and the acknowledgements are complete."""
    from headrace.broker.share.share_fetch_request import ShareFetchRequest

    ShareFetchRequest(ctx, request).start()
    return LATER


def fail(_request: m.ShareFetchRequest, code: ErrorCode) -> m.ShareFetchResponse:
    """Returns the error for the whole request."""
    return m.ShareFetchResponse(error_code=code)
