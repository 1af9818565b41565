"""The metadata cache: the topics, leaders, brokers and controller that this broker returns to clients.

Only UpdateMetadata requests change it, in a cluster of one as of many. The controller sends them; a fenced broker makes
its own from the metadata store until a controller reaches it. Each request makes a new `Snapshot`, so a handler that
holds one sees one consistent moment. Listeners get the delta between two snapshots in the order of their registration,
before anything else runs on the loop. A listener that looks at each partition returns an iterator, which does its work
in slices; a request is applied when the last one is done. A listener that fails does not stop the others.
Source: Kafka's `ZkMetadataCache`; `MetadataPublisher`.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Mapping

from headrace.in_slices import finished
from headrace.metadata.deltas import MetadataDelta
from headrace.metadata.image import PartitionMetadata, Snapshot, TopicMetadata, updating
from headrace.metadata.model import Broker, Endpoint
from headrace.metadata.suspected_brokers import SuspectedBrokers
from headrace.protocol import messages as m
from headrace.rare_collections import Lasting
from headrace.types import BrokerId

log = logging.getLogger(__name__)

Listener = Callable[[MetadataDelta], Iterator[None] | None]
"""Returns an iterator over slices of its work, or None if it has done it."""


class MetadataCache:
    """The newest snapshot, and the listeners to its changes."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self.suspected_brokers = SuspectedBrokers()
        """Leaders that may be dead: a Metadata request for their partitions may have to wait."""
        self._listeners: list[Listener] = []
        self._lasting = Lasting()

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
        delta = finished(self.applying(request))
        assert delta is not None
        return delta

    def applying(
        self, request: m.UpdateMetadataRequest, begin: Callable[[], bool] = lambda: True
    ) -> Generator[None, None, MetadataDelta | None]:
        """As `apply`, in slices. All readers see the old snapshot until the next one is complete. If another one was
        made meanwhile, which a fenced broker does by itself, the request is applied to that one. `begin` is called
        before the readers see it; if it returns False, the request is dropped, and the result is None."""
        while True:
            known = self.snapshot
            snapshot, delta = yield from updating(known, request)
            if self.snapshot is known:
                break
        if not begin():
            return None
        self.snapshot = snapshot
        self.suspected_brokers.keep(self._present)
        unfinished = []
        for listener in self._listeners:
            slices = _guarded(listener, delta)
            if next(slices, True) is None:
                unfinished.append(slices)
        for slices in unfinished:
            yield
            yield from slices
        self._lasting.made(sum(map(len, delta.partitions_changed.values())))
        return delta

    def _present(self) -> set[BrokerId]:
        """Brokers that are alive or still lead a partition."""
        known = self.snapshot
        return {*known.brokers, *(p.leader for topic in known.topics.values() for p in topic.partitions.values())}


def _guarded(listener: Listener, delta: MetadataDelta) -> Iterator[None]:
    """The slices of a listener's work; its failure is logged."""
    try:
        yield from listener(delta) or ()
    except Exception:
        log.exception("metadata listener %r failed", listener)
