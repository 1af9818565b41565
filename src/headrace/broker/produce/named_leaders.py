"""The current leaders in a Produce response, from version 10 on."""

from headrace.broker.partitions.current_leader import current_leader, nodes
from headrace.broker.request.context import RequestContext
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.types import TopicPartition

_LEADERS_FROM = 10


def name_leaders(ctx: RequestContext, response: m.ProduceResponse) -> None:
    """Adds the current leader to partitions that this broker does not lead, if the response's version has it."""
    if ctx.api_version < _LEADERS_FROM:
        return
    leaders = []
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader = current_leader(ctx, TopicPartition(topic.name, answer.index))
                answer.current_leader = m.ProduceResponse.LeaderIdAndEpoch(
                    leader_id=leader.id, leader_epoch=leader.epoch
                )
                leaders.append(leader.id)
    response.node_endpoints = [
        m.ProduceResponse.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in nodes(ctx, leaders)
    ]
