"""From which broker a consumer fetches a partition: its leader, or a replica in the consumer's rack (KIP-392).

The leader names the replica in its answer, once it knows the consumer's rack. The choice holds until that replica
fails, lacks an offset, or the metadata grows old. A topic that was deleted and created anew has another id: what was
known of its partitions, positions included, is of the old one.
"""

from __future__ import annotations

import logging

from headrace.client.core.cluster import Cluster
from headrace.client.core.timing import Deadline
from headrace.types import NO_LEADER, BrokerId, TopicPartition

_log = logging.getLogger(__name__)


class FetchSources:
    """The broker of each partition, and the topics that are not what they were."""

    def __init__(self, cluster: Cluster, rack: str | None) -> None:
        self.rack: str = rack or ""
        self._cluster = cluster
        self._preferred: dict[TopicPartition, tuple[BrokerId, Deadline]] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._anew: set[str] = set()

    def broker(self, partition: TopicPartition, deadline: Deadline) -> BrokerId:
        """Where to fetch from. Raises KafkaError."""
        leader = self._cluster.leader(partition, deadline)
        topic_id = self._cluster.topic(partition.topic, deadline).topic_id
        if self._topic_ids.setdefault(partition.topic, topic_id) != topic_id:
            _log.warning("topic %s was deleted and created anew; its positions are reset", partition.topic)
            self._topic_ids[partition.topic] = topic_id
            self._anew.add(partition.topic)
        replica, until = self._preferred.get(partition, (NO_LEADER, deadline))
        if replica == NO_LEADER:
            return leader
        if until.expired or replica not in self._cluster.view.brokers:
            del self._preferred[partition]
            return leader
        return replica

    def prefer(self, partition: TopicPartition, replica: int) -> None:
        """Fetch from this replica, as the leader has said."""
        until = Deadline.after_ms(self._cluster.settings.metadata_max_age_ms)
        self._preferred[partition] = BrokerId(replica), until

    def forget(self, partition: TopicPartition) -> bool:
        """Fetch from the leader again; returns whether it was another replica."""
        return self._preferred.pop(partition, None) is not None

    def keep_only(self, topics: set[str]) -> None:
        """Other topics are not read any more."""
        self._topic_ids = {topic: topic_id for topic, topic_id in self._topic_ids.items() if topic in topics}

    def take_anew(self) -> set[str]:
        """The topics that were noticed to be created anew, once."""
        found, self._anew = self._anew, set()
        return found
