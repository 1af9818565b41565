"""How many producers of an instance each broker remembers, to recognise what they send again.

A client can be as many producers as it likes. Every partition that they write to remembers each for a day
(`producer.id.expiration.ms`). Above `producers_max`, for all partitions of the instance on a broker together, those are
forgotten that have been idle for longest. A producer that is forgotten goes on; only a batch that it sends again is not
recognised. So nothing is refused, and a client with short-lived producers does not notice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from heapq import nsmallest
from typing import TYPE_CHECKING

from headrace.in_slices import Turns, in_slices
from headrace.instances.names import Namespace, instance_of

if TYPE_CHECKING:
    from headrace.broker.partitions.partition import Partition
    from headrace.metadata.stored_instances import StoredInstances

log = logging.getLogger(__name__)

EVERY_S = 5.0
_Idle = tuple[int, int, int]
"""A producer: when it wrote last, the number of its partition's log, and its id."""
_KEPT = 0.9
"""The part of the limit that is kept, so that the next producer does not cost another look at all of them."""


class ProducerLimits:
    """Keeps the producers of instances within their limits, on this broker."""

    def __init__(self, instances: StoredInstances, partitions: Iterable[Partition]) -> None:
        self._instances, self._partitions = instances, partitions
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to count."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stops."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self._look()
            except Exception:  # the next look may succeed
                log.exception("the producers of instances could not be counted")

    async def _look(self) -> None:
        counts: Counter[str] = Counter()
        async for each in in_slices(list(self._partitions)):
            counts[instance_of(each.key.topic)] += len(each.log.producers.entries)
        for name, count in counts.items():
            instance = self._instances.get(name)
            most = None if instance is None else instance.producers_max
            if most is not None and count > most:
                await self._forget(Namespace(name), count - int(most * _KEPT))

    async def _forget(self, names: Namespace, count: int) -> None:
        """Forgets so many producers, those that have been idle for longest."""
        idle: list[_Idle] = []
        turns = Turns()
        for number, each in enumerate(logs := [each.log for each in self._partitions if names.has(each.key.topic)]):
            for entry in list(each.producers.entries.values()):
                if entry.open_since < 0:
                    idle.append((entry.seen_ms, number, entry.producer_id))
                await turns.count()
            await turns.count()
        oldest = await asyncio.to_thread(nsmallest, count, idle)
        forgotten = 0
        async for seen_ms, number, producer_id in in_slices(oldest):
            forgotten += logs[number].producers.forget(producer_id, seen_ms)
        log.info("instance %s has more producers than it may have: %d are forgotten", names.instance, forgotten)
