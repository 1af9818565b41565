"""What a member of a group subscribes to: topics or a pattern, who is told of rebalances, and topics that are missing.

A topic that does not exist is a warning, once, with similar names. It is looked for again and again, so that a consumer
which starts before its topic reads it soon after it is created.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence

from headrace.client.consumer.assignors.member import Layout
from headrace.client.core.missing_topics import missing_text
from headrace.client.core.timing import Deadline
from headrace.client.operations.admin import Admin
from headrace.types import TopicPartition

Rebalanced = Callable[[Collection[TopicPartition]], None]

_MISSING_AGAIN_MS = 1_000

_log = logging.getLogger(__name__)


class SubscriptionState:
    """The topics of one member, and their numbers of partitions when it joined."""

    def __init__(
        self,
        admin: Admin,
        wanted: Sequence[str] | re.Pattern[str],
        on_assigned: Rebalanced | None,
        on_revoked: Rebalanced | None,
        on_lost: Rebalanced | None,
    ) -> None:
        self.wanted = wanted
        self._admin = admin
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_lost = on_lost or on_revoked
        self._joined_counts: Mapping[str, int] = {}
        self._latest: list[str] = [] if isinstance(wanted, re.Pattern) else list(wanted)
        self._told: set[str] = set()
        self._look_again: Deadline | None = None

    def topics(self) -> list[str]:
        """The subscribed topics; of a pattern those that exist."""
        if not isinstance(self.wanted, re.Pattern):
            self._latest = list(self.wanted)
        else:
            matches = self.wanted.fullmatch
            self._latest = [topic.name for topic in self._admin.list_topics() if matches(topic.name)]
        return self._latest

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """The pattern, if it is one."""
        return self.wanted if isinstance(self.wanted, re.Pattern) else None

    @property
    def latest_topics(self) -> list[str]:
        """What `topics` returned last; asks nobody."""
        return self._latest

    def layout(self, topics: Collection[str]) -> Layout:
        """The partitions of the topics that exist, with the racks of their replicas."""
        counts = self.counts(topics)
        view = self._admin.cluster.view
        if not any(view.racks.values()):
            return Layout(counts)
        racks = {
            topic: [
                frozenset(rack for each in info.replicas if (rack := view.racks.get(each)))
                for info in view.topics[topic].partitions
            ]
            for topic in counts
        }
        return Layout(counts, racks)

    def counts(self, topics: Collection[str]) -> dict[str, int]:
        """The number of partitions of each topic; none of a topic that does not exist."""
        if not topics:
            return {}
        known = self._admin.cluster.refresh(set(topics)).topics
        return {name: len(known[name].partitions) for name in topics if name in known and known[name].partitions}

    @property
    def is_to_check(self) -> bool:
        """Whether it is time for `has_changed` to ask the brokers."""
        return self._is_due or self._admin.cluster.metadata_is_old

    @property
    def _is_due(self) -> bool:
        return self._look_again is not None and self._look_again.expired

    def has_changed(self) -> bool:
        """Whether topics or partitions came or went since the join. Asks only when it is time to."""
        if not self.is_to_check:
            return False
        if self._is_due:
            self._look_again = Deadline.after_ms(_MISSING_AGAIN_MS)
        return self.counts(self.topics()) != self._joined_counts

    def joined(self, topics: Sequence[str]) -> None:
        """The member joined for `topics`: remember their partitions, and tell which are missing."""
        self._joined_counts = self.counts(topics)
        missing = [topic for topic in topics if topic not in self._joined_counts]
        self._look_again = Deadline.after_ms(_MISSING_AGAIN_MS) if missing else None
        untold = [topic for topic in missing if topic not in self._told]
        if not untold:
            return
        self._told.update(untold)
        existing = self._admin.cluster.topic_names(self._admin.cluster.deadline())
        for topic in untold:
            _log.warning("%s (the subscription gets its records once it is created)", missing_text(topic, existing))

    def tell_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Run the callback of new partitions."""
        if self._on_assigned is not None:
            self._on_assigned(partitions)

    def tell_revoked(self, partitions: Collection[TopicPartition], *, is_lost: bool) -> None:
        """Run the callback of partitions that go: `on_lost` where others may own them already."""
        told = self._on_lost if is_lost else self._on_revoked
        if told is not None and partitions:
            told(partitions)
