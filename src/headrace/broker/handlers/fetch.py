"""Fetch (key 1), versions 0-18.

0     message format 0
1     throttle time
2     message format 1
3     a limit for the whole answer, which a first batch may exceed (before: nothing exceeds the partition's limit)
4     every format; isolation level, last stable offset, aborted transactions
5     log start offset
7     sessions (KIP-227)
9     the asker's leader epoch, fenced when it is old
10    zstd; a topic whose `compression.type` it is, is refused before
11    the asker's rack, a preferred replica in the answer; who tells a rack may ask any replica (KIP-392)
12    flexible; the epoch of the last record fetched, and where the logs part (followers)
13    topics by id
15    a follower's id together with its epoch
16    (tagged) who leads a partition, when this broker does not, and where that broker is
17,18 (tagged) a follower's log directory and high watermark
A request with a replica's id is a follower's (`broker.follower_fetches`).
Left out of versions 17 and 18: what they add.

A fetch with less than `min_bytes` waits in the purgatory for more, or `max_wait_ms`. From version 4 on records leave as
they are stored, as file ranges; before, what is stored in a newer format is converted down.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.broker.cluster_action import must_be_a_broker
from headrace.broker.context import Answer, RequestContext
from headrace.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, PartitionKey, SessionPartition
from headrace.broker.fetches import TOPIC_IDS_FROM, Fetch, SessionFetch, partition_error, topic_name
from headrace.broker.follower_fetches import follower_of
from headrace.broker.old_fetches import AS_STORED_FROM, OldFetch
from headrace.coordination.model import NO_UUID
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.FETCH
VERSIONS = range(19)


def handle(ctx: RequestContext, request: m.FetchRequest) -> Answer:
    """Answers with what there is, or waits until there is enough."""
    is_follower = follower_of(request) is not None
    if is_follower:
        must_be_a_broker(ctx)
    if ctx.api_version < AS_STORED_FROM:
        return OldFetch(ctx, request).start()
    if ctx.api_version >= TOPIC_IDS_FROM:
        for topic in request.topics:
            topic.topic = topic_name(ctx, topic.topic_id, is_follower=is_follower) or ""
    try:
        fetch = _begin(ctx, request)
    except KafkaError as error:
        return m.FetchResponse(error_code=error.code)
    if fetch.try_complete() or fetch.ends_now():
        return fetch.finish()
    fetch.is_waiting = True
    return ctx.wait_for(fetch, fetch.keys(), request.max_wait_ms)


def fail(request: m.FetchRequest, code: ErrorCode) -> m.FetchResponse:
    """The same refusal for everything; only for partitions that were asked for by name, it is said of each."""
    return m.FetchResponse(
        error_code=code,
        responses=[
            m.FetchResponse.FetchableTopicResponse(
                topic=topic.topic,
                partitions=[partition_error(each.partition, code) for each in topic.partitions],
            )
            for topic in request.topics
            if topic.topic_id == NO_UUID
        ],
    )


def _begin(ctx: RequestContext, request: m.FetchRequest) -> Fetch:
    """Finds the session. Raises what `FetchSessionCache.resume` does."""
    sessions = ctx.broker.fetch_sessions
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id != NO_SESSION:
            sessions.end(request.session_id)
        return Fetch(ctx, request)
    by_id = ctx.api_version >= TOPIC_IDS_FROM
    session = sessions.resume(
        request.session_id,
        request.session_epoch,
        (SessionPartition(t.topic, t.topic_id, each) for t in request.topics for each in t.partitions),
        _forgotten(request, by_id),
        by_id=by_id,
        now_ms=ctx.broker.now_ms(),
    )
    return SessionFetch(ctx, request, session) if session.partitions else Fetch(ctx, request)


def _forgotten(request: m.FetchRequest, by_id: bool) -> Iterator[PartitionKey]:
    for topic in request.forgotten_topics_data:
        name: str | bytes = topic.topic_id if by_id else topic.topic
        for number in topic.partitions:
            yield name, number
