"""Every fetcher of this broker: which partitions it follows, from whom.

    fetcher of (leader, number)    number = hash of the partition, below `num.replica.fetchers`

A partition has one fetcher at a time: whoever it is added to, it leaves the others first. A fetcher runs while it has
partitions. Source: Kafka's ReplicaFetcherManager.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from zlib import crc32

from headrace.broker.following import Surroundings
from headrace.broker.partition import Partition
from headrace.broker.replica_fetcher import ReplicaFetcher
from headrace.types import BrokerId, TopicPartition


class ReplicaFetchers:
    """The fetchers, made when there is something to fetch and ended when there is not."""

    def __init__(
        self,
        around: Surroundings,
        *,
        loop: asyncio.AbstractEventLoop,
        spawn: Callable[[Coroutine[object, object, None]], asyncio.Task[None]],
        fetchers_per_leader: int = 1,
    ) -> None:
        self._around, self._loop, self._spawn = around, loop, spawn
        self._per_leader = fetchers_per_leader
        self._fetchers: dict[tuple[BrokerId, int], ReplicaFetcher] = {}
        self._tasks: dict[tuple[BrokerId, int], asyncio.Task[None]] = {}
        self._at: dict[TopicPartition, ReplicaFetcher] = {}
        self._is_closed = False

    def __iter__(self) -> Iterator[ReplicaFetcher]:
        return iter(self._fetchers.values())

    def follow(self, partition: Partition) -> None:
        """Keeps a partition up with its leader of now."""
        key, leader = partition.key, partition.state.leader
        number = crc32(f"{key.topic}-{key.partition}".encode()) % self._per_leader
        fetcher = self._fetchers.get((leader, number))
        if fetcher is None or self._at.get(key) is not fetcher:
            self.leave(key)
        if self._is_closed:
            return
        if fetcher is None:
            fetcher = self._fetchers[leader, number] = ReplicaFetcher(leader, number, self._around, self._loop)
        self._at[key] = fetcher
        fetcher.follow(partition)
        task = self._tasks.get((leader, number))
        if task is None or task.done():
            self._tasks[leader, number] = self._spawn(self._run((leader, number), fetcher))

    def leave(self, key: TopicPartition) -> None:
        """Follows it no more."""
        fetcher = self._at.pop(key, None)
        if fetcher is not None:
            fetcher.leave(key)

    def wake(self, key: TopicPartition) -> None:
        """Something about a partition happened that its fetcher may wait for."""
        fetcher = self._at.get(key)
        if fetcher is not None:
            fetcher.wake()

    @property
    def max_lag(self) -> int:
        """How many records the furthest behind of all partitions lacks."""
        return max((each.lag for fetcher in self for each in fetcher.partitions.values()), default=0)

    def close(self) -> None:
        """Ends every fetcher; nothing is followed any more."""
        self._is_closed = True
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()
        self._fetchers.clear()
        self._at.clear()

    async def _run(self, place: tuple[BrokerId, int], fetcher: ReplicaFetcher) -> None:
        while fetcher.partitions:
            await fetcher.run()
        if self._fetchers.get(place) is fetcher:
            del self._fetchers[place]
            self._tasks.pop(place, None)
