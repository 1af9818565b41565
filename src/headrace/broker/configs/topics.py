"""Configs of topics."""

from collections.abc import Iterator, Mapping

from headrace.broker.configs.brokers import layers, synonyms_of_broker
from headrace.broker.configs.entries import ConfigSource, Entry, entry, synonym
from headrace.broker.request.context import RequestContext
from headrace.config import TOPIC_SETTINGS, format_value
from headrace.controller.decisions.topics import check_reliable, is_reliable, validate_name
from headrace.errors import InvalidRequest, UnknownTopicOrPartition
from headrace.metadata.config_changes import Alteration, lists_of_topics


def describe(ctx: RequestContext, name: str) -> Iterator[Entry]:
    """Every topic config."""
    validate_name(name)
    if ctx.services.metadata.topic(name) is None:
        raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
    return _entries(ctx, name, ctx.services.replicas.topic_overrides(name))


async def alter(ctx: RequestContext, name: str, alteration: Alteration, *, validate_only: bool) -> None:
    """Alters what the topic sets."""
    if not name:
        raise InvalidRequest("Default topic resources are not allowed.")
    configs = ctx.services.replicas.configs
    lists = lists_of_topics(configs.defaults)

    def rewritten(own: Mapping[str, str]) -> Mapping[str, str]:
        after = alteration.applied(own, lists)
        if is_reliable(after) and not is_reliable(own):
            _check_replicas(ctx, name)
        return after

    await configs.rewrite(name, rewritten, validate_only=validate_only)


def _check_replicas(ctx: RequestContext, name: str) -> None:
    """Raises INVALID_REPLICATION_FACTOR for a topic that has not the replicas to be reliable."""
    topic = ctx.services.metadata.topic(name)
    if topic is not None:
        check_reliable(name, {number: each.replicas for number, each in topic.partitions.items()})


def _entries(ctx: RequestContext, topic: str, overrides: Mapping[str, str]) -> Iterator[Entry]:
    at_start, changed = ctx.services.config.topic_defaults, layers(ctx)
    own = ctx.services.replicas.configs.effective(topic, overrides)
    for name, (attribute, setting) in TOPIC_SETTINGS.items():
        synonyms = [synonym(name, overrides[name], ConfigSource.TOPIC)] if name in overrides else []
        for broker_name, _ in setting.broker_names[:1]:  # empty for a setting that only topics have
            synonyms += synonyms_of_broker(broker_name, setting, getattr(at_start, attribute), changed)
        yield entry(setting, format_value(getattr(own, attribute)), synonyms)
