"""Types shared by all layers: offsets, epochs and ids, which mypy tells apart."""

from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
"""A record's position in its partition, from 0. As an end it is exclusive: the offset after the last record."""

LeaderEpoch = NewType("LeaderEpoch", int)
BrokerId = NewType("BrokerId", int)
ProducerId = NewType("ProducerId", int)

NO_LEADER = BrokerId(-1)
NO_EPOCH = LeaderEpoch(-1)
NO_PRODUCER = ProducerId(-1)


class TopicPartition(NamedTuple):
    """One partition of one topic. Its text is the name of Kafka's directory for it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetRange(NamedTuple):
    """The records of one partition from `start` (inclusive) to `end` (exclusive)."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """The most records the range can hold; compaction and control records make it fewer."""
        return self.end - self.start
