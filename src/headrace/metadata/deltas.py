"""Metadata deltas: what one UpdateMetadata changed, for listeners such as coordinators. Pure.

    topics_created       name and id; a topic that was recreated under its name is both deleted and created
    topics_deleted       name and id, also of a topic that this broker did not know: its deletion began while the
                         broker was down, and listeners may still have state of it, such as committed offsets
    partitions_changed   by topic: new partitions, and those with another leader, leader epoch, ISR or replicas
    brokers_*            registered brokers; `changed`: other endpoints, or another rack

A broker that restarts between two updates does not appear: UpdateMetadata of ZooKeeper mode has no broker epochs.
Source: Kafka's `TopicsDelta`, `ClusterDelta`. Its `ZkMetadataCache` returns only the deleted partitions of an update.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.types import BrokerId


class TopicIdentity(NamedTuple):
    """A topic's name, which another topic may reuse, and its id, which is unique."""

    name: str
    id: bytes  # 16 bytes; zero if the controller does not know ids


@dataclass(frozen=True, slots=True)
class MetadataDelta:
    """The difference between two snapshots."""

    topics_created: tuple[TopicIdentity, ...] = ()
    topics_deleted: tuple[TopicIdentity, ...] = ()
    partitions_changed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    brokers_added: frozenset[BrokerId] = frozenset()
    brokers_removed: frozenset[BrokerId] = frozenset()
    brokers_changed: frozenset[BrokerId] = frozenset()

    @property
    def names_deleted(self) -> frozenset[str]:
        """The names of deleted topics, including names that a new topic has now."""
        return frozenset(each.name for each in self.topics_deleted)

    @property
    def names_recreated(self) -> frozenset[str]:
        """The names of topics that were deleted and created again."""
        return self.names_deleted & {each.name for each in self.topics_created}
