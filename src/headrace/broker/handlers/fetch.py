"""Fetch (key 1), versions 0-18.

0     message format 0
1     throttle time
2     message format 1
3     a limit for the whole response, which a first batch may exceed (before: nothing exceeds the partition's limit)
4     every format; isolation level, last stable offset, aborted transactions
5     log start offset
7     sessions (KIP-227)
9     the current leader epoch in the request; an older one gets FENCED_LEADER_EPOCH
10    zstd; a topic with `compression.type` zstd is refused to older versions
11    the client's rack; a preferred replica in the response; a client with a rack may read from any replica (KIP-392)
12    flexible; the epoch of the last fetched record, and the diverging epoch (followers)
13    topics by id
15    a follower's id together with its broker epoch
16    (tagged) the current leader of a partition that this broker does not lead, and the leader's address
17,18 (tagged) a follower's log directory and high watermark
A request with a replica id comes from a follower (`broker.fetch.follower_fetch`).
Left out: the fields of versions 17 and 18.

A fetch with less than `min_bytes` waits in the purgatory for more, at most `max_wait_ms`. From version 4 on, records
are sent as they are stored, as file ranges; before, records stored in a newer format are converted down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.broker.fetch.fetch import (
    SMALL_PARTITIONS_MAX,
    TOPIC_IDS_FROM,
    Fetch,
    partition_error,
    topic_name,
)
from headrace.broker.fetch.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    PartitionKey,
    SessionPartition,
)
from headrace.broker.fetch.follower_fetch import follower_of
from headrace.broker.fetch.large_fetch import LargeFetch
from headrace.broker.fetch.old_fetch import AS_STORED_FROM, OldFetch
from headrace.broker.fetch.session_fetch import SessionFetch
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import READ_TOPIC, Demand, Demands
from headrace.errors import ErrorCode, KafkaError
from headrace.metadata.model import NO_UUID
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import CLUSTER_NAME, Operation, ResourceType

API_KEY = ApiKey.FETCH
VERSIONS = range(19)


def _as_follower(_ctx: RequestContext, request: m.FetchRequest) -> Iterable[str]:
    return () if follower_of(request) is None else (CLUSTER_NAME,)


DEMANDS: Demands = (
    Demand(
        Operation.CLUSTER_ACTION,
        ResourceType.CLUSTER,
        _as_follower,
        code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
    READ_TOPIC,
)


def handle(ctx: RequestContext, request: m.FetchRequest) -> Answer:
    """Answers with the available records, or waits until there are enough."""
    if request.session_epoch > INITIAL_EPOCH and (session := _known_session(ctx, request)) is not None:
        return _start(ctx, SessionFetch(ctx, request, session), request.max_wait_ms)
    is_follower = follower_of(request) is not None
    topics, is_large = request.topics, False
    if len(topics) > 1 or (topics and len(topics[0].partitions) > 1):
        topics = _each_once(topics)
        is_large = sum(len(topic.partitions) for topic in topics) > SMALL_PARTITIONS_MAX
    if ctx.api_version < AS_STORED_FROM:
        return OldFetch(ctx, request, topics).start()
    if ctx.api_version >= TOPIC_IDS_FROM:
        topics = [
            m.FetchRequest.FetchTopic(
                topic=topic_name(ctx, each.topic_id, is_follower=is_follower) or "",
                topic_id=each.topic_id,
                partitions=each.partitions,
            )
            for each in topics
        ]
    try:
        fetch = _begin(ctx, request, topics)
    except KafkaError as error:
        return m.FetchResponse(error_code=error.code)
    if is_large and not isinstance(fetch, SessionFetch):
        return LargeFetch(ctx, fetch, request.max_wait_ms).start()
    return _start(ctx, fetch, request.max_wait_ms)


def _start(ctx: RequestContext, fetch: Fetch, max_wait_ms: int) -> Answer:
    if fetch.try_complete() or fetch.ends_now():
        return fetch.finish()
    fetch.is_waiting = True
    return ctx.wait_for(fetch, fetch.keys(), max_wait_ms)


def _known_session(ctx: RequestContext, request: m.FetchRequest) -> FetchSession | None:
    """The session of an incremental request for partitions that are all in it."""
    return ctx.services.fetch_sessions.resume_known(
        request,
        by_id=ctx.api_version >= TOPIC_IDS_FROM,
        now_ms=ctx.services.now_ms(),
        principal=ctx.principal,
    )


def _each_once(topics: list[m.FetchRequest.FetchTopic]) -> list[m.FetchRequest.FetchTopic]:
    """Returns each partition once. As in Apache Kafka, the last entry of a partition counts."""
    count = sum(len(topic.partitions) for topic in topics)
    last = {(topic.topic, topic.topic_id, each.partition): each for topic in topics for each in topic.partitions}
    if len(last) == count:
        return topics
    once: dict[tuple[str, bytes], m.FetchRequest.FetchTopic] = {}
    for (name, topic_id, _), each in last.items():
        if (name, topic_id) not in once:
            once[name, topic_id] = m.FetchRequest.FetchTopic(topic=name, topic_id=topic_id, partitions=[])
        once[name, topic_id].partitions.append(each)
    return list(once.values())


def fail(request: m.FetchRequest, code: ErrorCode) -> m.FetchResponse:
    """Returns the same error for the whole request, and for each partition that was requested by topic name."""
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return _refused(request)
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


def _refused(request: m.FetchRequest) -> m.FetchResponse:
    """Returns the refusal of a client that fetches as a follower and may not: each partition has the error, known here
    or not, as in Apache Kafka. The partitions of a session that it opened before are not in the request; it has to open
    another one, so that it learns of the refusal."""
    is_full = request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)
    return m.FetchResponse(
        error_code=ErrorCode.NONE if is_full else ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        responses=[
            m.FetchResponse.FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    partition_error(each.partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for each in topic.partitions
                ],
            )
            for topic in _each_once(request.topics)
            if is_full
        ],
    )


def _begin(ctx: RequestContext, request: m.FetchRequest, topics: list[m.FetchRequest.FetchTopic]) -> Fetch:
    """Finds the session and creates the fetch. Raises as `FetchSessionCache.resume`."""
    sessions = ctx.services.fetch_sessions
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id != NO_SESSION:
            sessions.end_of(ctx.principal, request.session_id)
        return Fetch(ctx, request, topics)
    by_id = ctx.api_version >= TOPIC_IDS_FROM
    session = sessions.resume(
        request.session_id,
        request.session_epoch,
        (SessionPartition(t.topic, t.topic_id, each) for t in topics for each in t.partitions),
        _forgotten(request, by_id),
        by_id=by_id,
        now_ms=ctx.services.now_ms(),
        principal=ctx.principal,
    )
    return SessionFetch(ctx, request, session) if session.partitions else Fetch(ctx, request, topics)


def _forgotten(request: m.FetchRequest, by_id: bool) -> Iterator[PartitionKey]:
    for topic in request.forgotten_topics_data:
        name: str | bytes = topic.topic_id if by_id else topic.topic
        for number in topic.partitions:
            yield name, number
