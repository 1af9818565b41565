"""What DescribeConfigs, AlterConfigs and IncrementalAlterConfigs do for each type of resource, one module each.

A module has two functions, and is imported when a request first names its type:

    describe(ctx, name) -> entries                                  raises KafkaError
    alter(ctx, name, alteration, *, validate_only) -> None          raises KafkaError; absent if nothing can be altered

`TYPES` names the module of each type. May know the request context and its services. Begin with `topics`; `entries` is
what the modules share.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from headrace.errors import InvalidRequest

if TYPE_CHECKING:
    from headrace.broker.configs.entries import Entry
    from headrace.broker.request.context import RequestContext
    from headrace.metadata.config_changes import Alteration

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
TYPES = {
    TOPIC: "topics",
    BROKER: "brokers",
    BROKER_LOGGER: "broker_loggers",
    CLIENT_METRICS: "client_metrics",
    GROUP: "groups",
}


class ResourceConfigs(Protocol):
    """The module of one type of resource."""

    def describe(self, ctx: RequestContext, name: str) -> Iterable[Entry]:
        """The configs of a resource, in the order in which they are returned."""
        ...

    async def alter(self, ctx: RequestContext, name: str, alteration: Alteration, *, validate_only: bool) -> None:
        """Alters the configs of a resource, together or not at all."""
        ...


def resource_configs(kind: int) -> ResourceConfigs:
    """The module of a type. Raises `InvalidRequest` for an unknown type."""
    name = TYPES.get(kind)
    if name is None:
        raise InvalidRequest(f"Unknown resource type {kind}")
    return cast(ResourceConfigs, import_module(f"{__name__}.{name}"))
