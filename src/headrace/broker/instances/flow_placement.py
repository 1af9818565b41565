"""Which brokers lead how many partitions of each instance, as the metadata has it: what F is computed from.

Made with the first instance: it counts all topics whose name has an instance's form once, and follows the deltas from
then on. Broker and controller both read it, so both compute the same F once they have the same metadata.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from headrace.instances.names import instance_of
from headrace.types import BrokerId

if TYPE_CHECKING:
    from headrace.metadata.deltas import MetadataDelta
    from headrace.metadata.metadata_cache import MetadataCache

NOBODY: Mapping[BrokerId, int] = {}
Listener = Callable[[Collection[str], bool], None]
"""Called with the instances whose leaders changed, and whether live brokers came or went."""


class Placement:
    """The leaders of the partitions of all instances."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self._leaders: dict[str, dict[int, BrokerId]] = {}  # of each topic
        self._topics: dict[str, set[str]] = {}  # of each instance
        self._led: dict[str, Counter[BrokerId]] = {}
        self._listeners: list[Listener] = []
        for topic in metadata.topics:
            self._take(topic)
        metadata.on_change(self._on_metadata)

    @property
    def is_known(self) -> bool:
        """Whether there is metadata at all: a broker that just started has none."""
        return bool(self._metadata.brokers)

    @property
    def brokers(self) -> Collection[BrokerId]:
        """The live brokers."""
        return self._metadata.brokers.keys()

    def on_change(self, listener: Listener) -> None:
        """Calls `listener` after each change from now on."""
        self._listeners.append(listener)

    def led(self, instance: str) -> Mapping[BrokerId, int]:
        """How many partitions each broker leads; those that lead none are left out."""
        return self._led.get(instance, NOBODY)

    def partitions_led(self, instance: str, broker: BrokerId) -> list[tuple[str, int]]:
        """The partitions of an instance that one broker leads: topic and number."""
        return [
            (topic, number)
            for topic in self._topics.get(instance, ())
            for number, leader in self._leaders[topic].items()
            if leader == broker
        ]

    def _on_metadata(self, delta: MetadataDelta) -> None:
        changed: dict[str, None] = {}
        for deleted in delta.topics_deleted:
            self._drop(deleted.name, changed)
        for topic in delta.partitions_changed:
            self._drop(topic, changed)
        for topic in dict.fromkeys((*delta.partitions_changed, *delta.names_recreated)):
            self._take(topic, changed)
        is_membership = bool(delta.brokers_added or delta.brokers_removed)
        if changed or is_membership:
            for listener in self._listeners:
                listener(changed, is_membership)

    def _take(self, topic: str, changed: dict[str, None] | None = None) -> None:
        instance = instance_of(topic)
        found = self._metadata.topic(topic) if instance else None
        if found is None:
            return
        leaders = {number: each.leader for number, each in found.partitions.items() if each.leader >= 0}
        self._leaders[topic] = leaders
        self._topics.setdefault(instance, set()).add(topic)
        self._led.setdefault(instance, Counter()).update(leaders.values())
        if changed is not None:
            changed[instance] = None

    def _drop(self, topic: str, changed: dict[str, None]) -> None:
        leaders = self._leaders.pop(topic, None)
        if leaders is None:
            return
        instance = instance_of(topic)
        changed[instance] = None
        self._topics[instance].discard(topic)
        led = self._led[instance]
        led.subtract(leaders.values())
        for broker in [each for each in set(leaders.values()) if led[each] <= 0]:
            del led[broker]
        if not self._topics[instance]:
            del self._topics[instance], self._led[instance]
