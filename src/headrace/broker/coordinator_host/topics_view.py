"""The topics of the cluster as groups see them, from this broker's metadata.

A topic is built at its first use and kept until it changes. The rack of a broker is remembered when the broker goes:
its replicas are still there, and a restart is no reason for a new assignment.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from headrace.coordinators.groups.modern.topics import ModernTopic

if TYPE_CHECKING:
    from headrace.metadata.deltas import MetadataDelta
    from headrace.metadata.image import TopicMetadata
    from headrace.metadata.metadata_cache import MetadataCache
    from headrace.types import BrokerId


class TopicsView:
    """The topics that exist. `version` grows when names, ids, partitions or racks of topics change; `newest_version` is
    the one in which a topic was created last."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self._topics: dict[str, ModernTopic] = {}
        self._racks: dict[BrokerId, str] = {}
        self.version, self.newest_version = 0, 0

    def by_name(self, name: str) -> ModernTopic | None:
        """The topic of this name."""
        known = self._topics.get(name)
        if known is None and (found := self._metadata.topic(name)) is not None:
            known = self._topics[name] = self._build(found)
        return known

    def by_id(self, topic_id: bytes) -> ModernTopic | None:
        """The topic of this id (16 bytes)."""
        name = self._metadata.snapshot.names_by_id.get(topic_id)
        return None if name is None else self.by_name(name)

    def names(self) -> Collection[str]:
        """The names of all topics."""
        return self._metadata.topics.keys()

    def apply(self, delta: MetadataDelta) -> set[str]:
        """Applies a change of the metadata. Returns the names of topics that are not as they were."""
        changed = {each.name for each in (*delta.topics_created, *delta.topics_deleted)}
        if self._learn_racks():
            changed.update(self._topics)
        changed.update(name for name in delta.partitions_changed if self._has_changed(name))
        for name in changed:
            self._topics.pop(name, None)
        if changed:
            self.version += 1
        if delta.topics_created:
            self.newest_version = self.version
        return changed

    def _learn_racks(self) -> bool:
        racks = {**self._racks, **{each.id: each.rack for each in self._metadata.brokers.values() if each.rack}}
        is_new, self._racks = racks != self._racks, racks
        return is_new

    def _has_changed(self, name: str) -> bool:
        """Whether a topic has other partitions or racks than known; other leaders do not matter."""
        known, found = self._topics.get(name), self._metadata.topic(name)
        return known is None or found is None or known != self._build(found)

    def _build(self, topic: TopicMetadata) -> ModernTopic:
        racks = self._racks
        return ModernTopic(
            topic.name,
            topic.id,
            tuple(
                tuple(sorted(racks[each] for each in partition.replicas if each in racks))
                for partition in topic.partitions.values()
            ),
        )
