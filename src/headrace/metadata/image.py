"""The metadata image: a snapshot of the cluster, and the next snapshot after an UpdateMetadata. Pure.

An UpdateMetadata names a topic by name and id. A new id under a known name is a new topic, and no partition of the old
one is kept. The id zero, from a controller that does not know ids, means the topic that has the name.

    incremental   partitions that the request does not name stay unchanged
    full          topics that the request does not name do not exist. headrace's controllers send it first after each
                  registration of a broker, because the broker may have missed a deletion while it was down

Topics that a request does not name are shared by both snapshots, so an update costs as much as what it changes. The
next snapshot of a large request is made in slices; nobody sees it before it is complete.
Source: Kafka's `ZkMetadataCache.updateMetadata`. Apache Kafka applies `full` only from KRaft controllers.
"""

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.in_slices import finished
from headrace.limits import ELEMENTS_PER_SLICE
from headrace.metadata.deltas import MetadataDelta, TopicIdentity
from headrace.metadata.model import FULL_UPDATE, LEADER_DURING_DELETE, NO_UUID, SECURITY_PROTOCOLS, Broker, Endpoint
from headrace.protocol import messages as m
from headrace.types import NO_LEADER, BrokerId, LeaderEpoch


class PartitionMetadata(NamedTuple):
    """One partition, as Metadata responses describe it."""

    partition: int
    leader: BrokerId  # NO_LEADER if it has none
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
    """The cluster's metadata at one moment; immutable."""

    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    names_by_id: Mapping[bytes, str] = field(default_factory=dict)
    brokers: Mapping[BrokerId, Broker] = field(default_factory=dict)
    controller_id: BrokerId = NO_LEADER
    has_topics: bool = False
    """Whether an update has told of topics, or that there are none. The first one of a registration may not."""


def updated(known: Snapshot, request: m.UpdateMetadataRequest) -> tuple[Snapshot, MetadataDelta]:
    """The next snapshot, and the delta between the two."""
    return finished(updating(known, request))


def updating(
    known: Snapshot, request: m.UpdateMetadataRequest
) -> Generator[None, None, tuple[Snapshot, MetadataDelta]]:
    """As `updated`, in slices of `ELEMENTS_PER_SLICE` partitions."""
    is_full = request.type == FULL_UPDATE
    has_topics = bool(request.topic_states) or is_full
    topics = _Topics(known if has_topics else Snapshot())
    for state in request.topic_states:
        yield from topics.apply(state)
    if is_full:
        topics.retain({state.topic_name for state in request.topic_states})
    brokers = {BrokerId(each.id): _broker(each) for each in request.live_brokers}
    controller_id = BrokerId(request.controller_id)
    delta = MetadataDelta(
        tuple(topics.created),
        tuple(topics.deleted),
        topics.changed,
        frozenset(brokers.keys() - known.brokers.keys()),
        frozenset(known.brokers.keys() - brokers.keys()),
        frozenset(each for each in brokers.keys() & known.brokers.keys() if brokers[each] != known.brokers[each]),
    )
    if not has_topics:
        return Snapshot(known.topics, known.names_by_id, brokers, controller_id, known.has_topics), delta
    return Snapshot(topics.by_name, topics.names_by_id, brokers, controller_id, True), delta


class _Topics:
    """The topics of the next snapshot while a request is applied."""

    def __init__(self, known: Snapshot) -> None:
        self.by_name = dict(known.topics)
        self.names_by_id = dict(known.names_by_id)
        self.created: list[TopicIdentity] = []
        self.deleted: list[TopicIdentity] = []
        self.changed: dict[str, tuple[int, ...]] = {}
        self._left_in_slice = ELEMENTS_PER_SLICE

    def apply(self, topic: m.UpdateMetadataRequest.UpdateMetadataTopicState) -> Generator[None, None, None]:
        """Applies the state of one topic."""
        self._left_in_slice -= 1
        name, known = topic.topic_name, self.by_name.get(topic.topic_name)
        if known is not None and NO_UUID not in (known.id, topic.topic_id) and known.id != topic.topic_id:
            self._delete(known)
            known = None
        before = known.partitions if known is not None else {}
        partitions, changed, gone = dict(before), [], False
        for state in topic.partition_states:
            if self._left_in_slice <= 0:
                self._left_in_slice = ELEMENTS_PER_SLICE
                yield
            self._left_in_slice -= 1
            number = state.partition_index
            if state.leader == LEADER_DURING_DELETE:
                gone = True
                partitions.pop(number, None)
                continue
            partition = _partition(state)
            if before.get(number) != partition:
                partitions[number] = partition
                changed.append(number)
        if changed:
            self.changed[name] = tuple(changed)
        topic_id = topic.topic_id if topic.topic_id != NO_UUID or known is None else known.id
        if not partitions:
            if known is not None:
                self._delete(known)
            elif gone:
                self.deleted.append(TopicIdentity(name, topic.topic_id))
            return
        if known is None:
            self.created.append(TopicIdentity(name, topic_id))
        elif not changed and len(partitions) == len(before) and topic_id == known.id:
            return
        if len(partitions) > len(before) or gone:
            partitions = dict(sorted(partitions.items()))
        self.by_name[name] = TopicMetadata(name, topic_id, partitions)
        if topic_id != NO_UUID:
            self.names_by_id[topic_id] = name

    def retain(self, names: Iterable[str]) -> None:
        """Deletes all topics but these."""
        for name in self.by_name.keys() - names:
            self._delete(self.by_name[name])

    def _delete(self, topic: TopicMetadata) -> None:
        del self.by_name[topic.name]
        self.names_by_id.pop(topic.id, None)
        self.deleted.append(TopicIdentity(topic.name, topic.id))


def _partition(state: m.UpdateMetadataRequest.UpdateMetadataPartitionState) -> PartitionMetadata:
    return PartitionMetadata(
        state.partition_index,
        BrokerId(state.leader),
        LeaderEpoch(state.leader_epoch),
        tuple(BrokerId(each) for each in state.replicas),
        tuple(BrokerId(each) for each in state.isr),
        tuple(BrokerId(each) for each in state.offline_replicas),
    )


def _broker(live: m.UpdateMetadataRequest.UpdateMetadataBroker) -> Broker:
    endpoints = tuple(
        Endpoint(each.listener, each.host, each.port, SECURITY_PROTOCOLS.get(each.security_protocol, "PLAINTEXT"))
        for each in live.endpoints
    )
    return Broker(BrokerId(live.id), endpoints, live.rack)
