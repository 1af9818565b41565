"""What each instance has stored, in all, and whether its storage is full: the controller's side. Pure.

A partition is counted by its leader: the size of its log, once for each replica (`Instance.counts_replicas`), but not
for those that a reassignment adds, so that a moving replica counts once. So a replica on a broker that is down counts,
a follower that lags counts as what it will be, and a partition without a leader counts nothing until it has one.

    full    stored >= capacity
    free    stored <  95 % of it again

While partitions change their leaders, a partition may be counted twice, or not at all, until both brokers have
reported. A change of the state that is seen then waits until it was seen for `SETTLES_INTERVALS`. A controller that
takes over begins with what the brokers hold to be full, and decides when all that lead partitions have reported.

The sums live here and in the brokers' memory only. A sum is at most an interval old, and what a broker knows of it
another one: between reports a broker adds what is produced to it at once. So production overshoots the capacity at
most by what the *other* brokers take in during two intervals (2 s), and requests on their way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from headrace.types import BrokerId

log = logging.getLogger(__name__)

FREE_BELOW = 0.95
"""The share of the capacity below which full storage is free again."""
WARNS_FROM, WARNS_BELOW = 0.8, 0.75
TOLD_FROM = 0.75
"""The share from which brokers are told of it unasked."""
SETTLES_INTERVALS = 2
NEVER = float("-inf")


class Stored(NamedTuple):
    """An instance's storage, as a broker is told."""

    bytes: int
    is_full: bool
    is_settled: bool
    """Whether `bytes` counts every partition once."""


class _Storage:
    """One instance."""

    __slots__ = ("by_broker", "capacity", "differs_since", "is_full", "led", "settles_at", "warned")

    def __init__(self) -> None:
        self.capacity = 0
        self.by_broker: dict[BrokerId, int] = {}
        """What each broker reported last, also one that leads nothing as this broker's metadata has it: it does not
        report the same again when the metadata comes."""
        self.led: Mapping[BrokerId, int] = {}
        self.settles_at = NEVER
        self.is_full = False
        self.differs_since = NEVER
        """Since when the sum says another thing than `is_full`; NEVER if it does not."""
        self.warned = 0
        """The last line in the log: 0, 80 or 100 percent."""

    @property
    def stored(self) -> int:
        """What all leaders count."""
        return sum(size for broker, size in self.by_broker.items() if broker in self.led)


class StorageSums:
    """The storage of all instances with a capacity."""

    def __init__(self, interval_s: float, on_full: Callable[[str], None]) -> None:
        """`on_full` is called with an instance whose state has changed."""
        self._interval_s, self._on_full = interval_s, on_full
        self._storages: dict[str, _Storage] = {}
        self._heard: set[BrokerId] = set()
        self._near: set[str] = set()

    def set_instance(self, name: str, capacity: int | None, led: Mapping[BrokerId, int], now: float) -> None:
        """Sets the capacity, and how many partitions each broker leads; None: it has no capacity any more."""
        if capacity is None:
            if self._storages.pop(name, None) is not None:
                self._near.discard(name)
                self._on_full(name)
            return
        storage = self._storages.setdefault(name, _Storage())
        storage.capacity = capacity
        if any(led.get(broker, 0) < count for broker, count in storage.led.items()):
            storage.settles_at = now + SETTLES_INTERVALS * self._interval_s
        storage.led = dict(led)
        self._look(name, storage, now)

    def is_full(self, name: str) -> bool:
        """Whether production is blocked."""
        storage = self._storages.get(name)
        return storage is not None and storage.is_full

    def stored(self, name: str) -> int | None:
        """The bytes of an instance, as far as its brokers have reported; None without a capacity."""
        storage = self._storages.get(name)
        return None if storage is None else storage.stored

    def hear(
        self, broker: BrokerId, sums: Mapping[str, tuple[int, bool]], now: float, *, is_whole: bool
    ) -> dict[str, Stored]:
        """Takes what a broker counts of each instance, and whether it holds it to be full. Returns what the broker has
        to know: what is near its capacity, and all that it mentioned.

        `is_whole`: the sums are all that there are, not only those that changed since the last report."""
        if is_whole:
            self._heard.add(broker)
            for name, storage in self._storages.items():
                if name not in sums and storage.by_broker.pop(broker, None) is not None:
                    self._look(name, storage, now)
        for name, (size, is_full) in sums.items():
            if name not in self._storages:
                continue
            storage = self._storages[name]
            if size > 0:
                storage.by_broker[broker] = size
            else:
                storage.by_broker.pop(broker, None)
            if is_full and not storage.is_full and not self._is_known(storage):
                self._set_full(name, storage, is_full=True)
            self._look(name, storage, now)
        for name in [each for each in self._near if each not in sums]:
            self._look(name, self._storages[name], now)
        return {each: self._told(self._storages[each], now) for each in self._to_tell(broker, sums)}

    def knows(self, broker: BrokerId) -> bool:
        """Whether a broker has reported all its sums, so that changes are enough."""
        return broker in self._heard

    def forget(self, live: Iterable[BrokerId]) -> None:
        """Brokers that are not live any more report all their sums when they are back."""
        self._heard &= set(live)

    def _to_tell(self, broker: BrokerId, mentioned: Iterable[str]) -> Iterable[str]:
        near = {each for each in self._near if broker in self._storages[each].led}
        return near | {each for each in mentioned if each in self._storages}

    def _told(self, storage: _Storage, now: float) -> Stored:
        is_settled = now >= storage.settles_at and self._is_known(storage)
        return Stored(storage.stored, storage.is_full, is_settled)

    def _is_known(self, storage: _Storage) -> bool:
        return storage.led.keys() <= self._heard

    def _look(self, name: str, storage: _Storage, now: float) -> None:
        """Decides whether the storage is full."""
        stored = storage.stored
        share = stored / storage.capacity
        if share >= TOLD_FROM or storage.is_full:
            self._near.add(name)
        else:
            self._near.discard(name)
        if not self._is_known(storage):
            return
        seems_full = share >= 1 or (storage.is_full and share >= FREE_BELOW)
        if seems_full == storage.is_full:
            storage.differs_since = NEVER
        else:
            if storage.differs_since == NEVER:
                storage.differs_since = now
            waited = now - storage.differs_since
            if now >= storage.settles_at or waited >= SETTLES_INTERVALS * self._interval_s:
                self._set_full(name, storage, is_full=seems_full)
        self._warn(name, storage, stored, share)

    def _set_full(self, name: str, storage: _Storage, *, is_full: bool) -> None:
        storage.is_full, storage.differs_since = is_full, NEVER
        if is_full:
            self._near.add(name)
        self._on_full(name)

    def _warn(self, name: str, storage: _Storage, stored: int, share: float) -> None:
        if storage.is_full and storage.warned < 100:
            storage.warned = 100
            log.warning(
                "instance %s is full: %d of %d bytes are stored; production is blocked, consumption goes on; delete "
                "topics or records, shorten the retention, or raise its capacity",
                name, stored, storage.capacity,
            )  # fmt: skip
        elif not storage.is_full and storage.warned == 100:
            storage.warned = 80 if share >= WARNS_BELOW else 0
            log.warning("instance %s has room again: %d of %d bytes are stored", name, stored, storage.capacity)
        elif share >= WARNS_FROM and storage.warned < 80:
            storage.warned = 80
            log.warning("instance %s has stored %d of %d bytes, %d %%", name, stored, storage.capacity, share * 100)
        elif share < WARNS_BELOW and storage.warned == 80:
            storage.warned = 0
