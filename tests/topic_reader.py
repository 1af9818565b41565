"""Reads a whole topic again and again, at one isolation level, to compare what was written with what is committed."""

from headrace.client.consumer.consumer import Consumer, ConsumerSettings
from headrace.client.consumer.fetched_batches import ConsumerRecord
from headrace.types import TopicPartition


class TopicReader:
    """All records of a topic so far, in order within each partition."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, isolation_level: str) -> None:
        self.consumer = Consumer(bootstrap, ConsumerSettings(isolation_level=isolation_level))
        self.consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
        self.consumer.seek_to_beginning()
        self.records: list[ConsumerRecord] = []

    def __enter__(self) -> "TopicReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.close()

    def read(self) -> list[ConsumerRecord]:
        """Reads what is new; all records so far."""
        while new := self.consumer.poll(100):
            self.records.extend(new)
        return self.records

    def values(self) -> list[str]:
        """Reads what is new; the values of all records so far."""
        return [(each.value or b"").decode() for each in self.read()]
