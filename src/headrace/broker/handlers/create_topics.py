"""CreateTopics (key 19), versions 0-7.

1     validate only; error messages
2     throttle time
4     -1 partitions and -1 replicas mean the broker's defaults
5     flexible; partitions, replicas and settings in the response (an empty list, never null: the Java client needs it)
7     the topic's id in the response
The topics exist on this broker when the response is sent.
"""

from __future__ import annotations

from headrace.broker.request.admission import Demand, Demands, topics
from headrace.broker.request.context import Answer, RequestContext
from headrace.config import TOPIC_SETTINGS, format_value, topic_config
from headrace.controller.decisions.topics import NewTopic
from headrace.errors import ErrorCode, KafkaError
from headrace.in_slices import counted, in_slices
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.types import BrokerId

API_KEY = ApiKey.CREATE_TOPICS
VERSIONS = range(8)
DEMANDS: Demands = (
    Demand(
        Operation.CREATE,
        ResourceType.TOPIC,
        topics,
        Operation.CREATE,
    ),
)

_DESCRIBED_PER_SLICE = 50
"""Created topics whose settings are put into the response in one turn of the event loop."""
_FROM_TOPIC, _FROM_DEFAULT = 1, 5  # DescribeConfigs' numbers for the source of a value


def handle(ctx: RequestContext, request: m.CreateTopicsRequest) -> Answer:
    """Creates the topics; later requests of the connection wait."""
    return ctx.in_order(_create(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.CreateTopicsRequest, code: ErrorCode) -> m.CreateTopicsResponse:
    """Returns the same error for every topic."""
    return m.CreateTopicsResponse(
        topics=[
            m.CreateTopicsResponse.CreatableTopicResult(name=topic.name, error_code=code) for topic in request.topics
        ]
    )


def code_of(error: Exception) -> ErrorCode:
    """Returns the error code for `error`."""
    return error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR


async def _create(ctx: RequestContext, request: m.CreateTopicsRequest) -> m.CreateTopicsResponse:
    times = await counted(topic.name for topic in request.topics)
    new_topics = {}
    async for topic in in_slices(request.topics):
        if times[topic.name] == 1:
            new_topics[topic.name] = _new_topic(topic)
    made = await ctx.services.controller.create_topics(
        list(new_topics.values()), validate_only=request.validate_only, timeout_ms=request.timeout_ms
    )
    results = []
    async for name in in_slices(times, _DESCRIBED_PER_SLICE):
        if times[name] > 1:
            error = KafkaError("Create topics request from client contains multiple entries for the following topics")
            results.append(_refusal(name, error, ErrorCode.INVALID_REQUEST))
            continue
        outcome = made[name]
        results.append(
            _refusal(name, outcome, outcome.code)
            if isinstance(outcome, KafkaError)
            else m.CreateTopicsResponse.CreatableTopicResult(name=name, error_message=None)
        )
        if not isinstance(outcome, KafkaError):
            results[-1].topic_id = outcome.topic_id
            results[-1].num_partitions = outcome.num_partitions
            results[-1].replication_factor = outcome.replication_factor
            results[-1].configs = _configs(ctx, new_topics[name])
    return m.CreateTopicsResponse(topics=results)


def _refusal(name: str, error: KafkaError, code: ErrorCode) -> m.CreateTopicsResponse.CreatableTopicResult:
    return m.CreateTopicsResponse.CreatableTopicResult(
        name=name, error_code=code, error_message=error.message or None, configs=[]
    )


def _new_topic(topic: m.CreateTopicsRequest.CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments={
            each.partition_index: tuple(BrokerId(broker) for broker in each.broker_ids) for each in topic.assignments
        },
        configs={each.name: each.value for each in topic.configs},
    )


def _configs(ctx: RequestContext, new_topic: NewTopic) -> list[m.CreateTopicsResponse.CreatableTopicConfigs]:
    overrides = {name: value for name, value in new_topic.configs.items() if value is not None}
    config = topic_config(ctx.services.config.topic_defaults, overrides)
    return [
        m.CreateTopicsResponse.CreatableTopicConfigs(
            name=name,
            value=format_value(getattr(config, attribute)),
            config_source=_FROM_TOPIC if name in overrides else _FROM_DEFAULT,
        )
        for name, (attribute, _) in TOPIC_SETTINGS.items()
    ]
