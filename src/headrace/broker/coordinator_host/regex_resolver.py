"""Resolves regular expressions of groups on a thread: a large expression over many topics takes seconds.

One thread resolves for all groups, one group after the other. Source: Kafka's `TopicRegexResolver`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor

from headrace.coordinators.groups.consumer.regular_expressions import resolve
from headrace.in_slices import in_slices


class RegexResolver:
    """The thread of a broker that resolves regular expressions; it starts with the first of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(1, "regular-expressions")

    def close(self) -> None:
        """Drops what has not begun; does not wait for the rest."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def resolve(
        self, expressions: Collection[str], topic_names: Collection[str], may_describe: Callable[[str], bool]
    ) -> dict[str, frozenset[str]]:
        """The topics that each expression matches and the member may describe: its principal decides what the group
        sees, as in Kafka."""
        matched = await self._loop.run_in_executor(self._pool, resolve, tuple(expressions), tuple(topic_names))
        return {
            expression: frozenset([name async for name in in_slices(names) if may_describe(name)])
            for expression, names in matched.items()
        }
