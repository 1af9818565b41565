"""What this broker may tell clients about the cluster: topics, leaders, brokers, the controller.

Fed by the controller's UpdateMetadata requests and by nothing else, on a cluster of one as on many. Each request
makes a new `Snapshot`; a handler that took one sees one moment, whatever happens meanwhile.
Source: Kafka's `ZkMetadataCache`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.broker.doubts import Doubts
from headrace.coordination.model import LEADER_DURING_DELETE, NO_UUID, Broker, Endpoint
from headrace.coordination.requests import SECURITY_PROTOCOLS
from headrace.protocol import messages as m
from headrace.types import NO_LEADER, BrokerId, LeaderEpoch


class PartitionMetadata(NamedTuple):
    """One partition, as clients are told."""

    partition: int
    leader: BrokerId  # NO_LEADER while there is none
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    offline_replicas: tuple[BrokerId, ...]


class TopicMetadata(NamedTuple):
    """One topic; `partitions` in ascending order."""

    name: str
    id: bytes
    partitions: Mapping[int, PartitionMetadata]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster at one moment."""

    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    names_by_id: Mapping[bytes, str] = field(default_factory=dict)
    brokers: Mapping[BrokerId, Broker] = field(default_factory=dict)
    controller_id: BrokerId = NO_LEADER


class MetadataCache:
    """The newest snapshot."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self.doubts = Doubts()
        """Leaders that may be gone: who asks for them may have to wait."""
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` after each request that was taken over."""
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
        """Who told us; `NO_LEADER` before the first time."""
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
        """Where a live broker is reached through a listener of that name."""
        broker = self.snapshot.brokers.get(broker_id)
        return None if broker is None else next((e for e in broker.endpoints if e.listener == listener), None)

    def apply(self, request: m.UpdateMetadataRequest) -> list[str]:
        """Takes over what the controller says; the names of topics that are gone."""
        known = self.snapshot
        topics = dict(known.topics)
        gone = []
        for told in request.topic_states:
            partitions = dict(topics[told.topic_name].partitions) if told.topic_name in topics else {}
            for state in told.partition_states:
                if state.leader == LEADER_DURING_DELETE:
                    partitions.pop(state.partition_index, None)
                else:
                    partitions[state.partition_index] = _partition(state)
            if partitions:
                ordered = dict(sorted(partitions.items()))
                topics[told.topic_name] = TopicMetadata(told.topic_name, told.topic_id, ordered)
            elif topics.pop(told.topic_name, None) is not None:
                gone.append(told.topic_name)
        ids = {topic.id: topic.name for topic in topics.values() if topic.id != NO_UUID}
        brokers = {BrokerId(each.id): _broker(each) for each in request.live_brokers}
        self.snapshot = Snapshot(topics, ids, brokers, BrokerId(request.controller_id))
        self.doubts.keep(
            lambda: brokers.keys() | {p.leader for topic in topics.values() for p in topic.partitions.values()}
        )
        for listener in self._listeners:
            listener()
        return gone


def _partition(state: m.UpdateMetadataRequest.UpdateMetadataPartitionState) -> PartitionMetadata:
    return PartitionMetadata(
        state.partition_index,
        BrokerId(state.leader),
        LeaderEpoch(state.leader_epoch),
        tuple(BrokerId(each) for each in state.replicas),
        tuple(BrokerId(each) for each in state.isr),
        tuple(BrokerId(each) for each in state.offline_replicas),
    )


def _broker(told: m.UpdateMetadataRequest.UpdateMetadataBroker) -> Broker:
    endpoints = tuple(
        Endpoint(each.listener, each.host, each.port, SECURITY_PROTOCOLS.get(each.security_protocol, "PLAINTEXT"))
        for each in told.endpoints
    )
    return Broker(BrokerId(told.id), endpoints, told.rack)
