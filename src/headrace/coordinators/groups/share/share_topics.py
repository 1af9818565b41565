"""Which share partitions of a group have state at a share coordinator: the group's list of topics. Pure values.

    initializing    the persister is asked to begin their state; again after a while without an answer
    initialized     they may be assigned
    deleting        the persister is asked to remove their state; what had been asked for may still come

Source: Kafka's `ShareGroupStatePartitionMetadataInfo`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from headrace.coordinators.groups.modern.topics import Topics

Partitions: TypeAlias = "Mapping[bytes, frozenset[int]]"


class ShareTopic(NamedTuple):
    """Partitions of a topic."""

    name: str
    partitions: frozenset[int]
    since_ms: int = 0
    """When they came here, or were read from the log; not stored."""


class ShareTopics(NamedTuple):
    """The topics of a share group, by their ids."""

    initializing: Mapping[bytes, ShareTopic] = {}
    initialized: Mapping[bytes, ShareTopic] = {}
    deleting: Mapping[bytes, str] = {}
    """Topic id -> name."""

    @property
    def assignable(self) -> dict[bytes, frozenset[int]]:
        """The partitions that may be assigned."""
        return {topic_id: each.partitions for topic_id, each in self.initialized.items()}

    def has_any(self, topic_ids: Iterable[bytes]) -> bool:
        """Whether one of these topics has state, or may have."""
        return any(each in held for each in topic_ids for held in self)

    def missing(self, subscribed: Iterable[str], topics: Topics, retry_ms: int, now_ms: int) -> dict[bytes, ShareTopic]:
        """The partitions of subscribed topics that are to be initialized: those not initialized, and not asked for
        within the last `retry_ms`."""
        missing = {}
        for name in subscribed:
            topic = topics.by_name(name)
            if topic is None:
                continue
            known: set[int] = set()
            if (done := self.initialized.get(topic.topic_id)) is not None:
                known.update(done.partitions)
            asked = self.initializing.get(topic.topic_id)
            if asked is not None and now_ms - asked.since_ms < retry_ms:
                known.update(asked.partitions)
            if len(known) < topic.partition_count:
                partitions = frozenset(range(topic.partition_count)).difference(known)
                missing[topic.topic_id] = ShareTopic(name, partitions, now_ms)
        return missing

    def with_initializing(self, added: Mapping[bytes, ShareTopic]) -> ShareTopics:
        """These partitions are asked for."""
        deleting = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in added}
        return self._replace(initializing=_combined(self.initializing, added), deleting=deleting)

    def with_initialized(self, partitions: Partitions, topics: Topics, now_ms: int) -> ShareTopics:
        """The state of these partitions has begun."""
        added = {
            topic_id: ShareTopic(_name(topic_id, topics), each, now_ms) for topic_id, each in partitions.items() if each
        }
        return self.without_initializing(partitions)._replace(initialized=_combined(self.initialized, added))

    def without_initializing(self, partitions: Partitions) -> ShareTopics:
        """These partitions are not asked for any more."""
        left = {}
        for topic_id, topic in self.initializing.items():
            kept = topic.partitions.difference(partitions.get(topic_id, ()))
            if kept:
                left[topic_id] = topic._replace(partitions=kept)
        return self._replace(initializing=left)

    def with_deleting(self, topic_ids: Collection[bytes]) -> ShareTopics:
        """The state of these initialized topics is to be removed."""
        moved = {topic_id: each.name for topic_id, each in self.initialized.items() if topic_id in topic_ids}
        kept = {topic_id: each for topic_id, each in self.initialized.items() if topic_id not in topic_ids}
        return self._replace(initialized=kept, deleting={**self.deleting, **moved})

    def without(self, topic_ids: Collection[bytes]) -> ShareTopics:
        """These topics were deleted."""
        return ShareTopics(
            {topic_id: each for topic_id, each in self.initializing.items() if topic_id not in topic_ids},
            {topic_id: each for topic_id, each in self.initialized.items() if topic_id not in topic_ids},
            {topic_id: each for topic_id, each in self.deleting.items() if topic_id not in topic_ids},
        )

    def deleted(self, topic_ids: Collection[bytes]) -> ShareTopics:
        """The state of these topics is removed."""
        return self._replace(deleting={key: each for key, each in self.deleting.items() if key not in topic_ids})

    def all_deleting(self, topics: Topics) -> tuple[ShareTopics, dict[bytes, frozenset[int]]]:
        """Everything is to be removed, as before the group is deleted: also what an earlier deletion has left, unless
        its topic is gone. Returns the partitions to remove as well."""
        every = _combined(self.initialized, self.initializing)
        for topic_id in self.deleting:
            topic = topics.by_id(topic_id)
            if topic is not None:
                again = ShareTopic(topic.name, frozenset(range(topic.partition_count)))
                every = _combined(every, {topic_id: again})
        names = {topic_id: each.name for topic_id, each in every.items()}
        return ShareTopics(deleting=names), {topic_id: each.partitions for topic_id, each in every.items()}


def _combined(one: Mapping[bytes, ShareTopic], other: Mapping[bytes, ShareTopic]) -> dict[bytes, ShareTopic]:
    """The partitions of both; the time is that of `other`."""
    every = dict(one)
    for topic_id, topic in other.items():
        known = every.get(topic_id)
        every[topic_id] = topic if known is None else topic._replace(partitions=known.partitions | topic.partitions)
    return every


def _name(topic_id: bytes, topics: Topics) -> str:
    topic = topics.by_id(topic_id)
    return "<UNKNOWN>" if topic is None else topic.name
