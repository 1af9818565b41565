"""CreateTopics (key 19), versions 0-7.

1     validate only, error messages
2     throttle time
4     -1 partitions and -1 replicas: the broker's defaults
5     flexible; the answer tells partitions, replicas and settings (an empty list, never null: Java's client needs it)
7     the topic's id
The topics exist on this broker when the answer leaves.
"""

from __future__ import annotations

from headrace.broker.context import Answer, RequestContext
from headrace.config import TOPIC_SETTINGS, format_value, topic_config
from headrace.coordination.topics import NewTopic
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.types import BrokerId

API_KEY = ApiKey.CREATE_TOPICS
VERSIONS = range(8)

_FROM_TOPIC, _FROM_DEFAULT = 1, 5  # DescribeConfigs' numbers for where a value comes from


def handle(ctx: RequestContext, request: m.CreateTopicsRequest) -> Answer:
    """Makes the topics, in the order of the connection."""
    return ctx.in_order(_create(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.CreateTopicsRequest, code: ErrorCode) -> m.CreateTopicsResponse:
    """The same refusal for every topic."""
    return m.CreateTopicsResponse(
        topics=[
            m.CreateTopicsResponse.CreatableTopicResult(name=topic.name, error_code=code) for topic in request.topics
        ]
    )


def code_of(error: Exception) -> ErrorCode:
    """The code that tells of `error`."""
    return error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR


async def _create(ctx: RequestContext, request: m.CreateTopicsRequest) -> m.CreateTopicsResponse:
    names = [topic.name for topic in request.topics]
    doubled = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    wishes = [_wish(topic) for topic in request.topics if topic.name not in doubled]
    made = await ctx.broker.controller.create_topics(
        wishes, validate_only=request.validate_only, timeout_ms=request.timeout_ms
    )
    results = []
    for name in dict.fromkeys(names):
        if name in doubled:
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
            wish = next(each for each in wishes if each.name == name)
            results[-1].topic_id = outcome.topic_id
            results[-1].num_partitions = outcome.num_partitions
            results[-1].replication_factor = outcome.replication_factor
            results[-1].configs = _configs(ctx, wish)
    return m.CreateTopicsResponse(topics=results)


def _refusal(name: str, error: KafkaError, code: ErrorCode) -> m.CreateTopicsResponse.CreatableTopicResult:
    return m.CreateTopicsResponse.CreatableTopicResult(
        name=name, error_code=code, error_message=error.message or None, configs=[]
    )


def _wish(topic: m.CreateTopicsRequest.CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments={
            each.partition_index: tuple(BrokerId(broker) for broker in each.broker_ids) for each in topic.assignments
        },
        configs={each.name: each.value for each in topic.configs},
    )


def _configs(ctx: RequestContext, wish: NewTopic) -> list[m.CreateTopicsResponse.CreatableTopicConfigs]:
    overrides = {name: value for name, value in wish.configs.items() if value is not None}
    config = topic_config(ctx.broker.config.topic_defaults, overrides)
    return [
        m.CreateTopicsResponse.CreatableTopicConfigs(
            name=name,
            value=format_value(getattr(config, attribute)),
            config_source=_FROM_TOPIC if name in overrides else _FROM_DEFAULT,
        )
        for name, (attribute, _) in TOPIC_SETTINGS.items()
    ]
