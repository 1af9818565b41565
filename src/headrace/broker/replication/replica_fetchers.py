"""The replica fetchers of this broker: assigns each followed partition to a fetcher.

    fetcher of (leader, number)    number = hash of the partition, below `num.replica.fetchers`

A partition has one fetcher at a time: it leaves its old fetcher before it is added to another. A fetcher runs while it
has partitions. Source: Kafka's ReplicaFetcherManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING
from zlib import crc32

from headrace.broker.partitions.partition import Partition
from headrace.broker.replication.following import FetcherServices
from headrace.types import NO_LEADER, BrokerId, TopicPartition

if TYPE_CHECKING:
    from headrace.broker.replication.replica_fetcher import ReplicaFetcher


class ReplicaFetchers:
    """The fetchers, created for their first partition and ended after their last."""

    def __init__(
        self,
        services: FetcherServices,
        *,
        loop: asyncio.AbstractEventLoop,
        spawn: Callable[[Coroutine[object, object, None]], asyncio.Task[None]],
        fetchers_per_leader: int = 1,
    ) -> None:
        self._services, self._loop, self._spawn = services, loop, spawn
        self._per_leader = fetchers_per_leader
        self._fetchers: dict[tuple[BrokerId, int], ReplicaFetcher] = {}
        self._tasks: dict[tuple[BrokerId, int], asyncio.Task[None]] = {}
        self._at: dict[TopicPartition, ReplicaFetcher] = {}
        self._is_stopping = self._is_closed = False

    def __iter__(self) -> Iterator[ReplicaFetcher]:
        return iter(self._fetchers.values())

    def leadership_changed(self, key: TopicPartition, partition: Partition | None) -> None:
        """Follows a partition that another broker leads, again in each leader epoch; otherwise stops following it."""
        if partition is None or partition.is_leader or partition.state.leader == NO_LEADER:
            self.leave(key)
            return
        fetcher = self._at.get(key)
        if fetcher is None and self._is_stopping:
            return
        followed = None if fetcher is None else fetcher.partitions.get(key)
        if followed is None or followed.partition is not partition or followed.leader_epoch != partition.leader_epoch:
            self.follow(partition)

    def stop_adding(self) -> None:
        """Begins to follow no further partition, because this broker stops and loses its leaders.

        A fetch would make their new leader ask the controller for this broker's return to the ISR. The high watermark
        waits for the answer, for many seconds if the controller stops with this broker.
        """
        self._is_stopping = True

    def follow(self, partition: Partition) -> None:
        """Follows a partition's current leader."""
        key, leader = partition.key, partition.state.leader
        number = self._number(key)
        fetcher = self._fetchers.get((leader, number))
        if fetcher is None or self._at.get(key) is not fetcher:
            self.leave(key)
        if self._is_closed:
            return
        if fetcher is None:
            from headrace.broker.replication.replica_fetcher import ReplicaFetcher  # a broker alone follows nobody

            fetcher = self._fetchers[leader, number] = ReplicaFetcher(leader, number, self._services, self._loop)
        self._at[key] = fetcher
        fetcher.follow(partition)
        task = self._tasks.get((leader, number))
        if task is None or task.done():
            self._tasks[leader, number] = self._spawn(self._run((leader, number), fetcher))

    def spread(self, fetchers_per_leader: int) -> None:
        """Spreads the followed partitions over another number of fetchers for each leader."""
        if fetchers_per_leader == self._per_leader:
            return
        before = {key: self._number(key) for key in self._at}
        self._per_leader = fetchers_per_leader
        for key in [each for each, number in before.items() if number != self._number(each)]:
            self.follow(self._at[key].partitions[key].partition)

    def _number(self, key: TopicPartition) -> int:
        return crc32(f"{key.topic}-{key.partition}".encode()) % self._per_leader

    def leave(self, key: TopicPartition) -> None:
        """Stops following a partition."""
        fetcher = self._at.pop(key, None)
        if fetcher is not None:
            fetcher.leave(key)

    def wake(self, key: TopicPartition) -> None:
        """Wakes a partition's fetcher after an event that it may wait for."""
        fetcher = self._at.get(key)
        if fetcher is not None:
            fetcher.wake()

    @property
    def max_lag(self) -> int:
        """The largest lag of all followed partitions, in records."""
        return max((each.lag for fetcher in self for each in fetcher.partitions.values()), default=0)

    def close(self) -> None:
        """Ends every fetcher."""
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
