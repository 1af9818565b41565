"""The metadata cache: the topics, leaders, brokers and controller that this broker returns to clients.

Only UpdateMetadata requests change it, in a cluster of one as of many. The controller sends them; a fenced broker makes
its own from the metadata store until a controller reaches it. Each request makes a new `Snapshot`, so a handler that
holds one sees one consistent moment. Listeners get the delta between two snapshots in the order of their registration,
before anything else runs on the loop. A listener that fails does not stop the others.
Source: Kafka's `ZkMetadataCache`; `MetadataPublisher`.
"""

import logging
from collections.abc import Callable, Mapping

from headrace.metadata.deltas import MetadataDelta
from headrace.metadata.image import PartitionMetadata, Snapshot, TopicMetadata, updated
from headrace.metadata.model import Broker, Endpoint
from headrace.metadata.suspected_brokers import SuspectedBrokers
from headrace.protocol import messages as m
from headrace.types import BrokerId

log = logging.getLogger(__name__)

Listener = Callable[[MetadataDelta], None]


class MetadataCache:
    """The newest snapshot, and the listeners to its changes."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self.suspected_brokers = SuspectedBrokers()
        """Leaders that may be dead: a Metadata request for their partitions may have to wait."""
        self._listeners: list[Listener] = []

    def on_change(self, listener: Listener) -> None:
        """Calls `listener` with the delta of each UpdateMetadata, after the listeners registered before."""
        self._listeners.append(listener)

    @property
    def topics(self) -> Mapping[str, TopicMetadata]:
        """Every topic, by name."""
        return self.snapshot.topics

    @property
    def brokers(self) -> Mapping[BrokerId, Broker]:
        """The live brokers."""
        return self.snapshot.brokers

    @property
    def controller_id(self) -> BrokerId:
        """The sender of the last UpdateMetadata; `NO_LEADER` before the first one."""
        return self.snapshot.controller_id

    def topic(self, name: str) -> TopicMetadata | None:
        """The topic of this name."""
        return self.snapshot.topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicMetadata | None:
        """The topic of this id (16 bytes)."""
        name = self.snapshot.names_by_id.get(topic_id)
        return None if name is None else self.snapshot.topics.get(name)

    def partition(self, topic: str, number: int) -> PartitionMetadata | None:
        """One partition of one topic."""
        found = self.snapshot.topics.get(topic)
        return None if found is None else found.partitions.get(number)

    def endpoint(self, broker_id: BrokerId, listener: str) -> Endpoint | None:
        """A live broker's endpoint of that listener name; None if it has none."""
        broker = self.snapshot.brokers.get(broker_id)
        return None if broker is None else next((e for e in broker.endpoints if e.listener == listener), None)

    def apply(self, request: m.UpdateMetadataRequest) -> MetadataDelta:
        """Applies an UpdateMetadata and calls the listeners with the delta, which it returns."""
        self.snapshot, delta = updated(self.snapshot, request)
        self.suspected_brokers.keep(self._present)
        for listener in self._listeners:
            try:
                listener(delta)
            except Exception:
                log.exception("metadata listener %r failed", listener)
        return delta

    def _present(self) -> set[BrokerId]:
        """Brokers that are alive or still lead a partition."""
        known = self.snapshot
        return {*known.brokers, *(p.leader for topic in known.topics.values() for p in topic.partitions.values())}
