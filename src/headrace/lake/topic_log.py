"""A topic as the writer of its table sees it: where its partitions begin and end, and their records as columns."""

from collections.abc import Collection, Iterator

from headrace.client.consumer.fetched_batches import ReadOptions
from headrace.client.consumer.fetching import READ_COMMITTED, READ_UNCOMMITTED
from headrace.client.consumer.reader import read_range
from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import Admin
from headrace.lake.core.plan import Bounds, Slice
from headrace.records.format2.columns import RecordColumns
from headrace.types import TopicPartition


class TopicLog:
    """Reads one topic. With `read_committed` logs end at the last stable offset, and aborted records are left out."""

    def __init__(self, cluster: Cluster, topic: str, *, headers: bool = False, read_committed: bool = True) -> None:
        self._cluster = cluster
        self.topic = topic
        self._isolation_level = READ_COMMITTED if read_committed else READ_UNCOMMITTED
        self._options = ReadOptions(headers=headers, isolation_level=self._isolation_level)

    def partitions(self) -> list[TopicPartition]:
        """All partitions, also those that were added since. Raises UnknownTopicOrPartition."""
        deadline = self._cluster.deadline()
        self._cluster.retry(lambda: self._cluster.refresh([self.topic], deadline), deadline)
        return Admin(self._cluster).partitions_of(self.topic)

    def topic_id(self) -> int | None:
        """A number of the topic that one of the same name does not have; None from brokers without topic ids."""
        deadline = self._cluster.deadline()
        self._cluster.retry(lambda: self._cluster.refresh([self.topic], deadline), deadline)
        found = self._cluster.topic(self.topic).topic_id
        return int.from_bytes(found[:8], "big") >> 1 if any(found) else None

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """The offsets that the partitions have, as the leaders know them."""
        found = Admin(self._cluster).watermarks(partitions, isolation_level=self._isolation_level)
        return {partition: Bounds(int(start), int(end)) for partition, (start, end) in found.items()}

    def read(self, one: Slice) -> Iterator[RecordColumns]:
        """The records of a slice, in order. Raises OffsetOutOfRange if some were deleted."""
        return read_range(self._cluster, one.partition, one.start, one.end, self._options)
