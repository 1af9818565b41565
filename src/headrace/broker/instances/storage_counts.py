"""What each instance has stored in the partitions that this broker leads, and whether it may store more.

`count` looks at the logs, each interval for instances that were written to or are near their capacity, and every tenth
for the others, whose logs only retention, compaction and deletion make smaller. `StorageSums` says how replicas count.
The controller answers with the sum over all brokers. What is produced here is added to it at once:

    stored = what the others had in the last answer + the last count here + bytes of Produce requests since

Without a controller the last answer stays in force, and the counts here go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headrace.broker.instances.storage_sums import FREE_BELOW, TOLD_FROM, Stored
from headrace.errors import ErrorCode, KafkaError
from headrace.in_slices import Turns
from headrace.instances.definition import WhenFull

if TYPE_CHECKING:
    from headrace.broker.instances.flow_placement import Placement
    from headrace.broker.partitions.replica_manager import ReplicaManager
    from headrace.instances.definition import Instance
    from headrace.types import BrokerId

OTHERS_EVERY = 10
"""Intervals between two counts of an instance that is not written to."""


class _Count:
    """One instance with a capacity. Bytes, as they count towards it."""

    __slots__ = ("acknowledged", "factor", "here", "instance", "is_full", "mark", "others", "refused", "sent")

    def __init__(self, instance: Instance, produced: int) -> None:
        self.instance = instance
        self.here = self.others = 0
        self.factor = 1
        """How often a byte that is produced counts: the most replicas that a partition here has."""
        self.mark = produced
        """The bytes that were produced here when it was counted."""
        self.is_full = False
        self.sent: tuple[int, bool] | None = None
        self.acknowledged: tuple[int, bool] | None = None
        self.refused = 0


class StorageCounts:
    """The storage of all instances with a capacity, on this broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        placement: Placement,
        broker_id: BrokerId,
        produced: Callable[[str], int],
        on_full: Callable[[str], None],
    ) -> None:
        """`produced`: the bytes of an instance's Produce requests to this broker until now. `on_full` is called when
        the state of an instance has changed."""
        self._replicas, self._placement, self._broker_id = replicas, placement, broker_id
        self._produced, self._on_full = produced, on_full
        self._counts: dict[str, _Count] = {}
        self._epoch = -1
        self._ticks = 0

    def set_instance(self, instance: Instance) -> None:
        """Takes an instance as it is now defined."""
        known = self._counts.get(instance.name)
        if instance.capacity is None:
            self.drop(instance.name)
        elif known is None:
            self._counts[instance.name] = _Count(instance, self._produced(instance.name))
        else:
            known.instance = instance
            self._look(known)

    def drop(self, name: str) -> None:
        """The instance is gone, or has no capacity any more."""
        if self._counts.pop(name, None) is not None:
            self._on_full(name)

    def is_full(self, name: str) -> bool:
        """Whether production is blocked, as far as this broker knows."""
        count = self._counts.get(name)
        return count is not None and count.is_full

    def stored(self, name: str) -> int | None:
        """The bytes of an instance in all, as far as this broker knows; None without a capacity."""
        count = self._counts.get(name)
        return None if count is None else count.others + self._here(count)

    def refused(self, name: str) -> int:
        """How many produces were refused since the broker started."""
        count = self._counts.get(name)
        return 0 if count is None else count.refused

    def may_store(self, name: str) -> KafkaError | None:
        """None, or the error with which a Produce is to be answered.

        NOT_ENOUGH_REPLICAS, where the instance is to hold producers back, because all clients try again after it."""
        count = self._counts.get(name)
        if count is None:
            return None
        stored, capacity = count.others + self._here(count), count.instance.capacity
        assert capacity is not None
        if not count.is_full:
            if stored < capacity:
                return None
            self._set(count, is_full=True, others=count.others)
        text = (
            f"The storage of the instance is full: {stored} of {capacity} bytes are stored. Delete topics or records, "
            "shorten the retention, or ask for more capacity."
        )
        holds = count.instance.when_full is WhenFull.THROTTLE
        return KafkaError(text, ErrorCode.NOT_ENOUGH_REPLICAS if holds else ErrorCode.POLICY_VIOLATION)

    def was_refused(self, name: str, size: int) -> None:
        """A Produce of `size` bytes is answered with the error: it stores nothing."""
        count = self._counts.get(name)
        if count is not None:
            count.refused += 1
            count.mark += size

    # ---- counting

    async def count(self) -> None:
        """Counts what has to be counted in this interval."""
        self._ticks += 1
        turns = Turns()
        for number, (name, count) in enumerate(list(self._counts.items())):
            await turns.count()
            if self._is_due(number, name, count) and self._counts.get(name) is count:
                self._count_one(name, count)
                await turns.count(len(self._placement.partitions_led(name, self._broker_id)))
                self._look(count)

    def _is_due(self, number: int, name: str, count: _Count) -> bool:
        if (
            count.sent is None
            or count.mark != self._produced(name)
            or count.is_full
            or (self._ticks + number) % OTHERS_EVERY == 0
        ):
            return True
        return self._is_near(count)

    @staticmethod
    def _is_near(count: _Count) -> bool:
        capacity = count.instance.capacity
        return capacity is not None and count.others + count.here >= TOLD_FROM * capacity

    def _count_one(self, name: str, count: _Count) -> None:
        count.mark = self._produced(name)
        count.here, count.factor = self.count_here(name, counts_replicas=count.instance.counts_replicas)

    def count_here(self, name: str, *, counts_replicas: bool) -> tuple[int, int]:
        """The bytes of the partitions that this broker leads, as they count, and the most replicas of one."""
        size, most = 0, 1
        for key in self._placement.partitions_led(name, self._broker_id):
            partition = self._replicas.find(key)
            if partition is not None and partition.is_leader:
                replicas = partition.state.settled_replicas if counts_replicas else 1
                size += partition.log.size_bytes * replicas
                most = max(most, replicas)
        return size, most

    def _here(self, count: _Count) -> int:
        return count.here + (self._produced(count.instance.name) - count.mark) * count.factor

    def _look(self, count: _Count) -> None:
        """Decides by what this broker knows. What it does not know, the next answer brings."""
        capacity = count.instance.capacity
        assert capacity is not None
        stored = count.others + self._here(count)
        is_full = stored >= capacity or (count.is_full and stored >= FREE_BELOW * capacity)
        if is_full != count.is_full:
            count.is_full = is_full
            self._on_full(count.instance.name)

    # ---- reports

    def sums(self) -> tuple[dict[str, tuple[int, bool]], int]:
        """What a report has to tell, by instance: all that differs from what a controller has acknowledged, and what is
        near its capacity, as the answer mentions what the report does. And the epoch of that controller; -1: these are
        all."""
        sums = {}
        for name, count in self._counts.items():
            count.sent = count.here, count.is_full
            is_news = count.sent != count.acknowledged and (count.here or count.acknowledged is not None)
            if is_news or self._is_near(count):
                sums[name] = count.sent
        return sums, self._epoch

    def answered(self, told: Mapping[str, Stored] | None, epoch: int) -> None:
        """Takes the answer to the report with the last `sums`; None: the next one has to be whole."""
        self._epoch = epoch
        if told is None:
            self._epoch = -1
            for count in self._counts.values():
                count.acknowledged = None
            return
        for name, count in self._counts.items():
            count.acknowledged = count.sent
            stored = told.get(name)
            if stored is None:  # far from its capacity
                self._set(count, is_full=False, others=count.others)
            elif stored.is_settled and count.sent is not None:
                self._set(count, is_full=stored.is_full, others=max(stored.bytes - count.sent[0], 0))
            else:
                self._set(count, is_full=stored.is_full, others=count.others)

    def _set(self, count: _Count, *, is_full: bool, others: int) -> None:
        count.others = others
        if count.is_full != is_full:
            count.is_full = is_full
            self._on_full(count.instance.name)
