"""Administration for asyncio: each call of `headrace.Admin` as a coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Concatenate, Final, ParamSpec, Self, TypeVar, Unpack

from headrace.client.aio.calls import Awaited, Calls
from headrace.client.core.cluster import Cluster
from headrace.client.core.option_types import ClientOptions
from headrace.client.core.settings import ClientSettings
from headrace.client.operations.admin import Admin as Core

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Admin:
    """Administrative calls on one cluster, one after the other. Tasks of several loops may use it."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] | Mapping[str, object] | Cluster | None = None,
        settings: ClientSettings | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """As of `headrace.Admin`. Nothing is connected yet."""
        self._core = Core(bootstrap, settings, **options)
        self._calls = Calls("admin")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def core(self) -> Core:
        """The threaded client, whose calls wait."""
        return self._core

    async def call_core(self, function: Callable[[], T], *, moves: bool) -> T:
        """Run a call of the threaded client after those that were made before."""
        self._core.cluster.check_process()
        return await self._calls.run(function)

    async def run(self, operation: Callable[Concatenate[Core, P], R], *arguments: P.args, **named: P.kwargs) -> R:
        """What a function that takes a threaded Admin first returns, run on the client's thread.

        So the rest of `headrace.client.operations` is at hand: `await admin.run(lambda core: GroupAdmin(core.cluster)
        .list_groups())`.
        """
        return await self.call_core(lambda: operation(self._core, *arguments, **named), moves=False)

    list_topics: Final = Awaited(Core.list_topics)
    describe_topic: Final = Awaited(Core.describe_topic)
    describe_cluster: Final = Awaited(Core.describe_cluster)
    create_topics: Final = Awaited(Core.create_topics)
    create_topic: Final = Awaited(Core.create_topic)
    delete_topics: Final = Awaited(Core.delete_topics)
    create_partitions: Final = Awaited(Core.create_partitions)
    describe_configs: Final = Awaited(Core.describe_configs)
    alter_configs: Final = Awaited(Core.alter_configs)
    list_config_resources: Final = Awaited(Core.list_config_resources)
    list_offsets: Final = Awaited(Core.list_offsets)
    watermarks: Final = Awaited(Core.watermarks)
    delete_records: Final = Awaited(Core.delete_records)
    describe_log_dirs: Final = Awaited(Core.describe_log_dirs)
    partitions_of: Final = Awaited(Core.partitions_of)

    async def close(self) -> None:
        """Close the connections, and fail the call in progress. In a fork of the process it does nothing."""
        if self._core.cluster.is_forked:
            return
        self._core.interrupt()
        await asyncio.shield(self._calls.end())
        self._core.close()
