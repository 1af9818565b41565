"""Configs of subscriptions to clients' metrics (KIP-714). A subscription exists while it sets a config."""

from collections.abc import Iterator, Mapping

from headrace.broker.configs.entries import ConfigSource, Entry, entry, synonym
from headrace.broker.request.context import RequestContext
from headrace.broker.telemetry.subscriptions import SETTINGS, parse_subscription
from headrace.config import format_value
from headrace.errors import InvalidRequest
from headrace.metadata.config_changes import Alteration
from headrace.metadata.entity_configs import CLIENT_METRICS, sanitize


def describe(ctx: RequestContext, name: str) -> Iterator[Entry]:
    """Every config of a subscription."""
    if not name:
        raise InvalidRequest("Client metrics subscription name must not be empty")
    own = ctx.services.entities.get(CLIENT_METRICS, sanitize(name))
    for each in SETTINGS.values():
        synonyms = [synonym(each.name, own[each.name], ConfigSource.CLIENT_METRICS)] if each.name in own else []
        yield entry(each, own.get(each.name, format_value(each.default)), synonyms)


async def alter(ctx: RequestContext, name: str, alteration: Alteration, *, validate_only: bool) -> None:
    """Alters a subscription; without configs it is deleted."""
    if not name:
        raise InvalidRequest("Default client metrics resources are not allowed.")

    def decide(before: Mapping[str, str]) -> Mapping[str, str]:
        after = alteration.applied(before, lambda name: None)  # as in Apache Kafka, no list can be appended to
        parse_subscription(after)
        return after

    await ctx.services.entities.rewrite(CLIENT_METRICS, sanitize(name), decide, validate_only=validate_only)
