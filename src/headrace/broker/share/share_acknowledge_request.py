"""One ShareAcknowledge: the session, the acknowledgements, and the response."""

from __future__ import annotations

from headrace.broker.partitions.current_leader import CurrentLeader, current_leader, nodes
from headrace.broker.request.context import RequestContext
from headrace.broker.share.acknowledgements import Results, acknowledge_all
from headrace.broker.share.ordered_reply import OrderedReply
from headrace.broker.share.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession
from headrace.coordinators.share_state.persister import TopicIdPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.types import TopicPartition

LED_OTHERWISE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
MEMBER_ID_CHARS_MAX = 36


def is_member_id(member_id: str | None) -> bool:
    """Whether a member may have this id."""
    return bool(member_id) and len(member_id or "") <= MEMBER_ID_CHARS_MAX


def leader_of(ctx: RequestContext, at: TopicIdPartition) -> CurrentLeader | None:
    """The leader of a partition by topic id; None if the topic is not known."""
    name = ctx.services.metadata.snapshot.names_by_id.get(at.topic_id)
    return None if name is None else current_leader(ctx, TopicPartition(name, at.partition))


def start(ctx: RequestContext, request: m.ShareAcknowledgeRequest) -> None:
    """Acknowledges, and answers when that is stored."""
    reply = OrderedReply(ctx)
    _begin(ctx, request, reply)
    reply.started()


def _begin(ctx: RequestContext, request: m.ShareAcknowledgeRequest, reply: OrderedReply) -> None:
    manager = ctx.services.shares.manager
    group_id, member_id, epoch = request.group_id, request.member_id, request.share_session_epoch
    if group_id is None or member_id is None or not is_member_id(member_id):
        reply(m.ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_REQUEST))
        return
    try:
        if epoch == INITIAL_EPOCH:
            raise KafkaError("a ShareAcknowledge begins no share session", ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session = manager.sessions.find(group_id, member_id, epoch)
    except KafkaError as error:
        reply(m.ShareAcknowledgeResponse(error_code=error.code))
        return
    if epoch != FINAL_EPOCH:
        manager.sessions.advance(session)

    def done(results: Results) -> None:
        if epoch == FINAL_EPOCH:
            manager.end_session(session)
        reply(_response(ctx, session, results))

    acknowledge_all(ctx, manager, group_id, member_id, request.topics, is_renewal=request.is_renew_ack, done=done)


def _response(ctx: RequestContext, session: ShareSession, results: Results) -> m.ShareAcknowledgeResponse:
    by_topic: dict[bytes, m.ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse] = {}
    leaders = []
    for at, (error, message) in results.items():
        answer = m.ShareAcknowledgeResponse.PartitionData(
            partition_index=at.partition, error_code=error, error_message=message
        )
        leader = leader_of(ctx, at) if error in LED_OTHERWISE else None
        if leader is not None:
            leaders.append(leader.id)
            answer.current_leader = m.ShareAcknowledgeResponse.LeaderIdAndEpoch(
                leader_id=leader.id, leader_epoch=leader.epoch
            )
        if at.topic_id not in by_topic:
            by_topic[at.topic_id] = m.ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse(topic_id=at.topic_id)
        by_topic[at.topic_id].partitions.append(answer)
    return m.ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=ctx.services.shares.manager.limits(session.group_id).lock_ms,
        responses=list(by_topic.values()),
        node_endpoints=[
            m.ShareAcknowledgeResponse.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in nodes(ctx, leaders)
        ],
    )
