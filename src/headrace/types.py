"""The nouns that travel between layers, as types that mypy tells apart."""

from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
"""A record's number in its partition, from 0; also, exclusive, the number after the last one."""

LeaderEpoch = NewType("LeaderEpoch", int)
BrokerId = NewType("BrokerId", int)
ProducerId = NewType("ProducerId", int)

NO_LEADER = BrokerId(-1)
NO_EPOCH = LeaderEpoch(-1)
NO_PRODUCER = ProducerId(-1)


class TopicPartition(NamedTuple):
    """One partition of one topic; prints as Kafka names its directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
