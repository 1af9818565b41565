"""Which partition a record goes to: the one that was named, that of its key, or the topic's sticky one.

    destination of a topic: its partitions, and the queue of the sticky one; looked up once per cluster view

The sender's lock guards the queues. Any thread may call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from headrace.client.core.cluster import Cluster
from headrace.client.core.metadata import TopicInfo
from headrace.client.core.timing import Deadline
from headrace.client.producer.accumulator import Accumulator
from headrace.client.producer.intake import Destination
from headrace.client.producer.partitioner import StickyPartition, partition_for_key
from headrace.errors import UnknownTopicOrPartition
from headrace.types import TopicPartition

_LOOKS_AGAIN_MS = 1_000
"""How often a topic is asked for again at most, where a partition is named that it did not have."""


class Destinations:
    """The destinations of all topics."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        lock: threading.Lock,
        find: Callable[[str], TopicInfo],
        find_anew: Callable[[str], TopicInfo],
    ) -> None:
        """`find` gives what is known of a topic, or waits for it; `find_anew` asks the brokers."""
        self.known: dict[str, Destination] = {}
        self._cluster = cluster
        self._accumulator = accumulator
        self._lock = lock
        self._find = find
        self._find_anew = find_anew
        self._found_anew: dict[str, Deadline] = {}
        self._sticky: dict[str, StickyPartition] = {}

    def look_up(self, topic: str) -> Destination:
        """The destination of a topic, as the brokers have it now."""
        info = self._find(topic)
        partitions = [TopicPartition(topic, index) for index in range(len(info.partitions))]
        with self._lock:
            sticky = self._accumulator.queue(partitions[self.sticky(info)])
        found = self.known[topic] = Destination(self._cluster.view, partitions, sticky)
        return found

    def choose(self, topic: str, key: bytes | None, partition: int | None) -> int:
        """The partition of a record. Raises UnknownTopicOrPartition."""
        info = self._find(topic)
        if partition is not None:
            if partition >= len(info.partitions) and self._may_have_grown(topic):
                info = self._find_anew(topic)
            if not 0 <= partition < len(info.partitions):
                raise UnknownTopicOrPartition(
                    f"{topic}-{partition} does not exist: the topic has partitions 0 to {len(info.partitions) - 1}"
                )
            return partition
        if key is not None:
            return partition_for_key(key, len(info.partitions))
        return self.sticky(info)

    def found_anew(self, topic: str) -> None:
        """The brokers were asked for the topic."""
        self._found_anew[topic] = Deadline.after_ms(_LOOKS_AGAIN_MS)

    def _may_have_grown(self, topic: str) -> bool:
        asked = self._found_anew.get(topic)
        return asked is None or asked.expired

    def sticky(self, info: TopicInfo) -> int:
        """The partition for records without a key, until `move_on`."""
        sticky = self._sticky.get(info.name)
        if sticky is None:
            sticky = self._sticky.setdefault(info.name, StickyPartition())
        return sticky.current(info.available or range(len(info.partitions)))

    def move_on(self, topic: str) -> None:
        """Choose another sticky partition; among the known ones, for a record was added and nothing may fail now."""
        info = self._cluster.view.topics.get(topic)
        sticky = self._sticky.get(topic)
        if info is not None and info.partitions and sticky is not None:
            self.sticky(info)
            sticky.move_on(info.available)
