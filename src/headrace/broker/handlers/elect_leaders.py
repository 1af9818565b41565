"""ElectLeaders (key 43), versions 0-2.

0     preferred leaders
1     unclean elections too (0: preferred, 1: unclean); an error for the whole request
2     flexible
Null partitions mean all partitions; the response then omits partitions that need no election. The response is sent when
the live brokers have received the new leaders, or after `timeout_ms`. A broker that is not the controller answers
NOT_CONTROLLER.
"""

from __future__ import annotations

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.controller.decisions.leader_election import ElectionKind
from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.in_slices import in_slices
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.types import TopicPartition

API_KEY = ApiKey.ELECT_LEADERS
VERSIONS = range(3)
DEMANDS: Demands = (Demand(Operation.ALTER, ResourceType.CLUSTER),)


def handle(ctx: RequestContext, request: m.ElectLeadersRequest) -> Answer:
    """Returns the outcome for each partition."""
    return ctx.in_order(_elect(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.ElectLeadersRequest, code: ErrorCode) -> m.ElectLeadersResponse:
    """Returns the same error for every partition, or for the whole request if it means all partitions."""
    refused = KafkaError(code=code)
    topics: dict[str, m.ElectLeadersResponse.ReplicaElectionResult] = {}
    for partition in dict.fromkeys(
        TopicPartition(each.topic, number) for each in request.topic_partitions or () for number in each.partitions
    ):
        _add_result(topics, partition, refused)
    return m.ElectLeadersResponse(
        error_code=ErrorCode.NONE if request.topic_partitions else code, replica_election_results=list(topics.values())
    )


async def _elect(ctx: RequestContext, request: m.ElectLeadersRequest) -> m.ElectLeadersResponse:
    if request.election_type not in set(ElectionKind):
        raise InvalidRequest(f"unknown election type {request.election_type}: 0 is preferred, 1 is unclean")
    wanted: list[TopicPartition] | None = None
    if request.topic_partitions is not None:
        named = (TopicPartition(each.topic, number) for each in request.topic_partitions for number in each.partitions)
        wanted = [each async for each in in_slices(named)]
    outcomes = await ctx.services.controller.elect_leaders(
        wanted, ElectionKind(request.election_type), timeout_ms=request.timeout_ms
    )
    if wanted is None:
        outcomes = {
            partition: error
            for partition, error in outcomes.items()
            if error is None or error.code is not ErrorCode.ELECTION_NOT_NEEDED
        }
    topics: dict[str, m.ElectLeadersResponse.ReplicaElectionResult] = {}
    async for partition, error in in_slices(outcomes.items()):
        _add_result(topics, partition, error)
    return m.ElectLeadersResponse(replica_election_results=list(topics.values()))


def _add_result(
    topics: dict[str, m.ElectLeadersResponse.ReplicaElectionResult],
    partition: TopicPartition,
    error: KafkaError | None,
) -> None:
    topic, number = partition
    if topic not in topics:
        topics[topic] = m.ElectLeadersResponse.ReplicaElectionResult(topic=topic, partition_result=[])
    topics[topic].partition_result.append(
        m.ElectLeadersResponse.PartitionResult(
            partition_id=number,
            error_code=ErrorCode.NONE if error is None else error.code,
            error_message=None if error is None else error.message or None,
        )
    )
