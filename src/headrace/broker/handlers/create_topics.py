"""CreateTopics (key 19), versions 0-7.

1     validate only; error messages
2     throttle time
4     -1 partitions and -1 replicas mean the broker's defaults
5     flexible; partitions, replicas and settings in the response (an empty list, never null: the Java client needs it)
6     THROTTLING_QUOTA_EXCEEDED if the quota of controller mutations is exceeded; before, the client has to wait
7     the topic's id in the response
The topics exist on this broker when the response is sent.
"""

from __future__ import annotations

from collections import Counter

from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import TOPICS, Demand, Demands, RefusalEffect
from headrace.broker.request.forwarded import carried_out
from headrace.config import TOPIC_SETTINGS, format_value
from headrace.controller.decisions.topics import CollidingTopic, RequestedTopic
from headrace.errors import ErrorCode, KafkaError
from headrace.in_slices import counted, in_slices
from headrace.metadata.broker_configs import ALL
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.types import BrokerId

API_KEY = ApiKey.CREATE_TOPICS
VERSIONS = range(8)


_REFUSED = "Authorization failed."  # in Apache Kafka's words


def _refuse(_ctx: RequestContext, request: m.CreateTopicsRequest, code: ErrorCode) -> m.CreateTopicsResponse:
    """The errors of topics that the client may not create, each once, in Apache Kafka's words."""
    times = Counter(each.name for each in request.topics)
    error = KafkaError(_REFUSED)
    return m.CreateTopicsResponse(
        topics=[_doubled(name) if count > 1 else _refusal(name, error, code) for name, count in times.items()]
    )


def _doubled(name: str) -> m.CreateTopicsResponse.CreatableTopicResult:
    error = KafkaError("Create topics request from client contains multiple entries for the following topics")
    return _refusal(name, error, ErrorCode.INVALID_REQUEST)


_DESCRIBED = Demand(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, by_handler=RefusalEffect.HIDDEN)
_NAMED = Demand(Operation.DESCRIBE, ResourceType.TOPIC, by_handler=RefusalEffect.HIDDEN)
"""A topic with whose name that of a new one collides."""
DEMANDS: Demands = (
    Demand(
        Operation.CREATE,
        ResourceType.TOPIC,
        or_on_cluster=Operation.CREATE,
        entries=TOPICS._replace(refuse=_refuse),
    ),
    _DESCRIBED,
    _NAMED,
)

_DESCRIBED_PER_SLICE = 50
"""Created topics whose settings are put into the response in one turn of the event loop."""
_STRICT_FROM = 6  # the version that has THROTTLING_QUOTA_EXCEEDED
_FROM_TOPIC, _FROM_BROKER, _FROM_ALL_BROKERS, _FROM_DEFAULT = 1, 2, 3, 5  # DescribeConfigs' numbers for the source


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
    with carried_out(ctx):
        return await _create_all(ctx, request)


async def _create_all(ctx: RequestContext, request: m.CreateTopicsRequest) -> m.CreateTopicsResponse:
    times = await counted(topic.name for topic in request.topics)
    new_topics = {}
    async for topic in in_slices(request.topics):
        if times[topic.name] == 1:
            new_topics[topic.name] = _new_topic(topic)
    over_quota = {} if request.validate_only else await _over_quota(ctx, new_topics, request.timeout_ms)
    made = await ctx.services.controller.create_topics(
        [each for name, each in new_topics.items() if name not in over_quota],
        validate_only=request.validate_only,
        timeout_ms=request.timeout_ms,
    )
    made = {**made, **over_quota}
    results = []
    async for name in in_slices(times, _DESCRIBED_PER_SLICE):
        if times[name] > 1:
            results.append(_doubled(name))
            continue
        outcome = made[name]
        if isinstance(outcome, CollidingTopic):
            outcome = _collision(ctx, name, outcome)
        results.append(
            _refusal(name, outcome, outcome.code)
            if isinstance(outcome, KafkaError)
            else m.CreateTopicsResponse.CreatableTopicResult(name=name, error_message=None)
        )
        if isinstance(outcome, KafkaError):
            continue
        if not ctx.services.admission.permits(ctx, _DESCRIBED, name):
            results[-1].topic_id, results[-1].configs = outcome.topic_id, []
            results[-1].topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        else:
            results[-1].topic_id = outcome.topic_id
            results[-1].num_partitions = outcome.num_partitions
            results[-1].replication_factor = outcome.replication_factor
            results[-1].configs = _configs(ctx, new_topics[name])
    return m.CreateTopicsResponse(topics=results)


def _collision(ctx: RequestContext, name: str, found: CollidingTopic) -> KafkaError:
    """The error for a name that collides with other topics, of which the client is told those that it may describe. If
    it may describe none, it may not create the topic either. Apache Kafka names the topic that it collides with."""
    others = [each for each in found.others if ctx.services.admission.permits(ctx, _NAMED, each)]
    if others:
        return CollidingTopic(name, others)
    return KafkaError(_REFUSED, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


async def _over_quota(
    ctx: RequestContext, new_topics: dict[str, RequestedTopic], timeout_ms: int
) -> dict[str, KafkaError]:
    """The topics that the quota of controller mutations refuses. It counts the partitions of valid topics only."""
    throttling = ctx.services.throttling
    quota = throttling.mutation_quota(ctx, strict_from=_STRICT_FROM)
    if quota is None:
        return {}
    would_make = await ctx.services.controller.create_topics(
        list(new_topics.values()), validate_only=True, timeout_ms=timeout_ms
    )
    return {
        name: quota_exceeded()
        for name, outcome in would_make.items()
        if not isinstance(outcome, KafkaError) and not quota.allows(outcome.num_partitions, throttling.now())
    }


def quota_exceeded() -> KafkaError:
    """The error of a change that the quota of controller mutations refuses."""
    return KafkaError("The throttling quota has been exceeded.", ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def _refusal(name: str, error: KafkaError, code: ErrorCode) -> m.CreateTopicsResponse.CreatableTopicResult:
    return m.CreateTopicsResponse.CreatableTopicResult(
        name=name, error_code=code, error_message=error.message or None, configs=[]
    )


def _new_topic(topic: m.CreateTopicsRequest.CreatableTopic) -> RequestedTopic:
    return RequestedTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments={
            each.partition_index: tuple(BrokerId(broker) for broker in each.broker_ids) for each in topic.assignments
        },
        configs={each.name: each.value for each in topic.configs},
    )


def _configs(ctx: RequestContext, new_topic: RequestedTopic) -> list[m.CreateTopicsResponse.CreatableTopicConfigs]:
    overrides = {name: value for name, value in new_topic.configs.items() if value is not None}
    config = ctx.services.replicas.configs.effective(new_topic.name, overrides)
    settings, own_id = ctx.services.settings, str(ctx.services.replication.broker_id)
    sources = {
        **dict.fromkeys(settings.set_for(ALL), _FROM_ALL_BROKERS),
        **dict.fromkeys(settings.set_for(own_id), _FROM_BROKER),
    }
    return [
        m.CreateTopicsResponse.CreatableTopicConfigs(
            name=name,
            value=format_value(getattr(config, attribute)),
            config_source=_FROM_TOPIC
            if name in overrides
            else next((sources[each] for each, _ in setting.broker_names if each in sources), _FROM_DEFAULT),
        )
        for name, (attribute, setting) in TOPIC_SETTINGS.items()
    ]
