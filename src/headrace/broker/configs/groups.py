"""Configs of groups. A group need not exist: its configs may be set before its first member joins."""

from collections.abc import Iterator

from headrace.broker.configs.brokers import layers, synonyms_of_broker
from headrace.broker.configs.entries import ConfigSource, Entry, entry, synonym
from headrace.broker.request.context import RequestContext
from headrace.config import BROKER_SETTINGS, format_value
from headrace.errors import InvalidRequest
from headrace.metadata.config_changes import Alteration


def describe(ctx: RequestContext, name: str) -> Iterator[Entry]:
    """Every group config."""
    if not name:
        raise InvalidRequest("Group name must not be empty")
    return _entries(ctx, name)


async def alter(ctx: RequestContext, name: str, alteration: Alteration, *, validate_only: bool) -> None:
    """Alters what is set for the group."""
    if not name:
        raise InvalidRequest("Default group resources are not allowed.")
    await ctx.services.group_configs.rewrite(name, alteration, validate_only=validate_only)


def _entries(ctx: RequestContext, group: str) -> Iterator[Entry]:
    configs, changed = ctx.services.group_configs, layers(ctx)
    own = configs.overrides(group)
    for name, each in configs.settings.items():
        synonyms = [synonym(name, own[name], ConfigSource.GROUP)] if name in own else []
        if each.broker_name:
            attribute, setting = BROKER_SETTINGS[each.broker_name]
            at_start = getattr(ctx.services.config, attribute)
            synonyms += synonyms_of_broker(each.broker_name, setting, at_start, changed)
        else:
            synonyms.append(synonym(name, format_value(each.setting.default), ConfigSource.DEFAULT))
        yield entry(each.setting, format_value(configs.value(group, name)), synonyms)
