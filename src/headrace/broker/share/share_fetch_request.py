"""One ShareFetch: the session, the acknowledgements that ride along, the fetch, and the response of all three."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.broker.partitions.current_leader import nodes
from headrace.broker.request.context import RequestContext
from headrace.broker.request.demands import READ_TOPIC
from headrace.broker.share.acknowledgements import RENEW_FROM, Results, acknowledge_all
from headrace.broker.share.ordered_reply import OrderedReply
from headrace.broker.share.share_acknowledge_request import LED_OTHERWISE, is_member_id, leader_of
from headrace.broker.share.share_fetch import FetchResult, FetchResults, ShareFetch, ShareFetchLimits
from headrace.broker.share.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession
from headrace.coordinators.share_partitions.acquisition import Acquirer
from headrace.coordinators.share_state.persister import TopicIdPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m

RECORD_LIMIT = 1

_Partition = m.ShareFetchResponse.PartitionData
_Partitions = dict[TopicIdPartition, _Partition]


class ShareFetchRequest:
    """One request under way: answers when its fetch and its acknowledgements are complete."""

    __slots__ = ("_acknowledged", "_ctx", "_epoch", "_fetched", "_is_new", "_manager", "_reply", "_request", "_session")

    def __init__(self, ctx: RequestContext, request: m.ShareFetchRequest) -> None:
        self._ctx, self._request = ctx, request
        self._reply = OrderedReply(ctx)
        self._manager = ctx.services.shares.manager
        self._is_new = request.share_session_epoch == INITIAL_EPOCH
        self._acknowledged: Results | None = None
        self._fetched: FetchResults | None = None
        self._session: ShareSession
        self._epoch = 0
        """The session's epoch after this request."""

    def start(self) -> None:
        """Begins the acknowledgements and the fetch."""
        self._begin()
        self._reply.started()

    def _begin(self) -> None:
        request = self._request
        try:
            self._session = self._open()
        except KafkaError as error:
            self._refuse(error.code)
            return
        self._epoch = self._session.epoch
        if _has_acknowledgements(request):
            acknowledge_all(
                self._ctx,
                self._manager,
                self._session.group_id,
                self._session.member_id,
                request.topics,
                is_renewal=request.is_renew_ack,
                done=self._on_acknowledged,
            )
        else:
            self._acknowledged = {}
        if self._is_final or self._is_renewal:
            self._on_fetched({})
        else:
            self._fetch()

    @property
    def _is_final(self) -> bool:
        return self._request.share_session_epoch == FINAL_EPOCH

    @property
    def _is_renewal(self) -> bool:
        return self._ctx.api_version >= RENEW_FROM and self._request.is_renew_ack

    def _refuse(self, code: ErrorCode) -> None:
        """Answers with an error for the whole request; without room for a session only after `max_wait_ms`, since the
        client tries again at once."""
        response = m.ShareFetchResponse(error_code=code)
        if code is ErrorCode.SHARE_SESSION_LIMIT_REACHED and self._request.max_wait_ms > 0:
            self._ctx.wait_for(_Refusal(self._reply, response), (), self._request.max_wait_ms)
        else:
            self._reply(response)

    # The session

    def _open(self) -> ShareSession:
        """The session, with the changes of the request. Raises INVALID_REQUEST and the errors of sessions."""
        request, sessions = self._request, self._manager.sessions
        group_id, member_id = request.group_id, request.member_id
        if group_id is None or member_id is None or not is_member_id(member_id):
            raise KafkaError("the request has no group id or no member id", ErrorCode.INVALID_REQUEST)
        if self._is_renewal and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
            raise KafkaError("a request with renewals fetches nothing", ErrorCode.INVALID_REQUEST)
        wanted = [TopicIdPartition(t.topic_id, each.partition_index) for t in request.topics for each in t.partitions]
        if self._is_new:
            if _has_acknowledgements(request):
                raise KafkaError("a new share session has nothing to acknowledge", ErrorCode.INVALID_REQUEST)
            return sessions.open(group_id, member_id, wanted, self._ctx.connection)
        session = sessions.find(group_id, member_id, request.share_session_epoch)
        if not self._is_final:
            forgotten = (
                TopicIdPartition(t.topic_id, each) for t in request.forgotten_topics_data for each in t.partitions
            )
            sessions.resume(session, wanted, forgotten)
        return session

    # Fetching

    def _fetch(self) -> None:
        request, ctx = self._request, self._ctx
        snapshot = ctx.services.metadata.snapshot
        errors: FetchResults = {}
        permits = ctx.services.admission.permits
        known: list[tuple[TopicIdPartition, str]] = []
        for at in self._session.partitions:
            name = snapshot.names_by_id.get(at.topic_id)
            if name is None:
                errors[at] = FetchResult(ErrorCode.UNKNOWN_TOPIC_ID)
            elif not permits(ctx, READ_TOPIC, name):
                errors[at] = FetchResult(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif ctx.services.metadata.partition(name, at.partition) is None:
                errors[at] = FetchResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                known.append((at, name))
        throttling = ctx.services.throttling
        max_bytes = min(request.max_bytes, ctx.services.config.fetch_max_bytes)
        if throttling.is_active:
            max_bytes = int(min(max_bytes, throttling.fetch_bytes_max(ctx)))
        ShareFetch(
            ctx,
            self._manager,
            self._session.group_id,
            Acquirer(
                self._session.member_id,
                ctx.api_version >= RENEW_FROM and request.share_acquire_mode == RECORD_LIMIT,
                request.batch_size,
                request.max_records,
            ),
            ShareFetchLimits(min(request.min_bytes, max_bytes), max_bytes, request.max_wait_ms),
            _rotated(known, request.share_session_epoch),
            lambda results: self._on_fetched(results | errors),
        ).start()

    # The response

    def _on_acknowledged(self, results: Results) -> None:
        self._acknowledged = results
        if self._fetched is not None:
            self._answer(self._fetched, results)

    def _on_fetched(self, results: FetchResults) -> None:
        self._fetched = results
        if self._acknowledged is not None:
            self._answer(results, self._acknowledged)

    def _answer(self, fetched: FetchResults, acknowledged: Results) -> None:
        if self._is_final:
            self._manager.end_session(self._session)
        if self._ctx.is_abandoned:
            return
        response = m.ShareFetchResponse(
            acquisition_lock_timeout_ms=self._manager.limits(self._session.group_id).lock_ms
        )
        if not self._is_new and not self._is_final and self._session.epoch != self._epoch:
            response.error_code = ErrorCode.INVALID_SHARE_SESSION_EPOCH  # the client sent another request before
            fetched = {}
        partitions = self._fetched_partitions(fetched, response)
        for at, (code, message) in acknowledged.items():
            partition = partitions.get(at)
            if partition is None:
                partition = partitions[at] = _Partition(partition_index=at.partition, records=b"")
            partition.acknowledge_error_code, partition.acknowledge_error_message = code, message
        by_topic: dict[bytes, m.ShareFetchResponse.ShareFetchableTopicResponse] = {}
        for at, partition in partitions.items():
            if at.topic_id not in by_topic:
                by_topic[at.topic_id] = m.ShareFetchResponse.ShareFetchableTopicResponse(topic_id=at.topic_id)
            by_topic[at.topic_id].partitions.append(partition)
        response.responses = list(by_topic.values())
        self._reply(response)

    def _fetched_partitions(self, fetched: FetchResults, response: m.ShareFetchResponse) -> _Partitions:
        """The partitions that the response has to contain."""
        partitions: _Partitions = {}
        leaders = []
        for at, (code, records, acquired) in fetched.items():
            must = self._session.noted(at, has_records=records is not None, has_error=bool(code))
            if not must and not self._is_new:
                continue
            partition = partitions[at] = _Partition(partition_index=at.partition, error_code=code, records=b"")
            if records is not None:
                partition.records = records
                partition.acquired_records = [
                    m.ShareFetchResponse.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                    for first, last, count in acquired
                ]
            leader = leader_of(self._ctx, at) if code in LED_OTHERWISE else None
            if leader is not None:
                leaders.append(leader.id)
                partition.current_leader = m.ShareFetchResponse.LeaderIdAndEpoch(
                    leader_id=leader.id, leader_epoch=leader.epoch
                )
        response.node_endpoints = [
            m.ShareFetchResponse.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in nodes(self._ctx, leaders)
        ]
        return partitions


class _Refusal:
    """A refusal that waits for its time."""

    __slots__ = ("_reply", "_response")

    def __init__(self, reply: OrderedReply, response: m.ShareFetchResponse) -> None:
        self._reply, self._response = reply, response

    def try_complete(self) -> bool:
        return False

    def expire(self) -> None:
        self._reply(self._response)


def _has_acknowledgements(request: m.ShareFetchRequest) -> bool:
    return any(each.acknowledgement_batches for topic in request.topics for each in topic.partitions)


def _rotated(partitions: Sequence[tuple[TopicIdPartition, str]], epoch: int) -> Sequence[tuple[TopicIdPartition, str]]:
    """The partitions from another one on with each request, so that each comes first at times."""
    if epoch < 1 or len(partitions) < 2:
        return partitions
    at = epoch % len(partitions)
    return [*partitions[at:], *partitions[:at]]
