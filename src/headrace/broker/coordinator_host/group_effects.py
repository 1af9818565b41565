"""What groups have computed off the event loop: assignments of large groups, and matches of regular expressions.

    coordinator ─Effect─▶ GroupEffects ─thread─▶ result ─▶ coordinator, which drops it if the group has gone

Source: Kafka's `CoordinatorExecutor`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio

    from headrace.broker.coordinator_host.regex_resolver import RegexResolver
    from headrace.coordinators.groups.consumer.assigning import Assigning, ToAssign
    from headrace.coordinators.groups.consumer.heartbeat import Resolving
    from headrace.coordinators.groups.coordinator import GroupCoordinator
    from headrace.coordinators.groups.group import Group
    from headrace.coordinators.groups.group_event import Actions
    from headrace.coordinators.groups.modern.topics import Topics
    from headrace.coordinators.groups.share.assigning import AssigningShares
    from headrace.coordinators.groups.streams.assignment import AssigningTasks

log = logging.getLogger(__name__)


T = TypeVar("T", covariant=True)


class ToCompute(Protocol[T]):
    """An assignment of a group. It reads nothing that may change while it is computed."""

    @property
    def group(self) -> Group: ...

    @property
    def epoch(self) -> int: ...

    def compute(self) -> T: ...


class GroupEffects:
    """Performs the effects of the group coordinator."""

    def __init__(
        self,
        topics: Topics,
        request: Callable[[Callable[[GroupCoordinator, int], Actions]], None],
        spawn: Callable[[Coroutine[object, object, None]], object],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`request` executes what the coordinator decides about a result."""
        self._topics, self._request, self._spawn, self._loop = topics, request, spawn, loop
        self._resolver: RegexResolver | None = None

    def close(self) -> None:
        """Drops what has not begun."""
        if self._resolver is not None:
            self._resolver.close()

    def perform(self, effect: object) -> None:
        """Begins to compute; the coordinator gets the result, or hears that it failed."""
        from headrace.coordinators.groups.consumer.assigning import Assigning, ToAssign
        from headrace.coordinators.groups.consumer.heartbeat import Resolving
        from headrace.coordinators.groups.share.assigning import AssigningShares
        from headrace.coordinators.groups.streams.assignment import AssigningTasks

        if isinstance(effect, ToAssign):
            self._spawn(self._prepare(effect))
        elif isinstance(effect, Assigning):
            self._spawn(self._assign(effect))
        elif isinstance(effect, Resolving):
            self._spawn(self._resolve(effect))
        elif isinstance(effect, AssigningTasks):
            self._spawn(self._assign_tasks(effect))
        elif isinstance(effect, AssigningShares):
            self._spawn(self._assign_shares(effect))
        else:
            raise AssertionError(f"nothing performs {effect!r}")

    async def _prepare(self, effect: ToAssign) -> None:
        await self._assign(effect.prepare())

    async def _assign(self, assigning: Assigning) -> None:
        target = await self._computed(assigning)
        self._request(lambda coordinator, now_ms: coordinator.consumer.assigned(assigning, target, now_ms))

    async def _assign_tasks(self, assigning: AssigningTasks) -> None:
        targets = await self._computed(assigning)
        self._request(lambda coordinator, now_ms: coordinator.streams.assigned(assigning, targets, now_ms))

    async def _assign_shares(self, assigning: AssigningShares) -> None:
        target = await self._computed(assigning)
        self._request(lambda coordinator, now_ms: coordinator.share.assigned(assigning, target, now_ms))

    async def _computed(self, assigning: ToCompute[T]) -> T | None:
        """What a thread computes; None, and an entry in the log, if that fails."""
        try:
            return await self._loop.run_in_executor(None, assigning.compute)
        except Exception:
            group = assigning.group
            log.exception(
                "the assignment of %s group %s for epoch %d could not be computed",
                group.kind.value,
                group.group_id,
                assigning.epoch,
            )
            return None

    async def _resolve(self, resolving: Resolving) -> None:
        matched: dict[str, frozenset[str]] | None = None
        try:
            if self._resolver is None:
                from headrace.broker.coordinator_host.regex_resolver import RegexResolver

                self._resolver = RegexResolver(self._loop)
            names = tuple(self._topics.names())
            matched = await self._resolver.resolve(resolving.regexes, names, resolving.may_describe)
        except Exception:
            log.exception("the regular expressions of group %s could not be resolved", resolving.group.group_id)
        self._request(lambda coordinator, now_ms: coordinator.consumer.resolved(resolving, matched, now_ms))
