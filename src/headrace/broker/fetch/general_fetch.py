"""The general fetch that goes on in the place of a plain one that waits (`plain_fetch`).

The request is decoded from its frame, and the topics of its ids keep the names that they had when it came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.broker.fetch.fetch import Fetch
from headrace.broker.fetch.session_fetch import SessionFetch
from headrace.broker.request.context import RequestContext
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import read_request_header

if TYPE_CHECKING:
    from headrace.broker.fetch.fetch_sessions import FetchSession
    from headrace.broker.services import Services
    from headrace.network.answer_order import Slot
    from headrace.network.connection import Connection
    from headrace.network.request_times import Timed
    from headrace.types import TopicPartition


def general_fetch(
    services: Services,
    connection: Connection,
    slot: Slot,
    timed: Timed,
    frame: bytes,
    session: FetchSession | None,
    epoch: int,
    keys: Sequence[TopicPartition],
) -> Fetch:
    """The fetch of the request in `frame`, which waits in `slot`, with its times until then.

    `epoch`: of the session, behind this request. `keys`: of the request's partitions, in their order."""
    header, at = read_request_header(memoryview(frame))
    request, _ = m.FetchRequest.decode(header.api_version, memoryview(frame), at)
    ctx = RequestContext(
        services, connection, ApiKey.FETCH, header.api_version, header.correlation_id, header.client_id, timed.times
    )
    ctx.request_bytes = len(frame)
    ctx.take_place(slot, timed)
    if session is not None:
        ctx.is_of_broker = session.is_follower  # the admission has let a broker open it
        fetch: Fetch = SessionFetch(ctx, request, session, epoch)
    else:
        topics, number = [], 0
        for topic in request.topics:
            topics.append(
                m.FetchRequest.FetchTopic(
                    topic=keys[number].topic, topic_id=topic.topic_id, partitions=topic.partitions
                )
            )
            number += len(topic.partitions)
        fetch = Fetch(ctx, request, topics)
    fetch.is_waiting = True
    return fetch
