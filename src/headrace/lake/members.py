"""The partitions of one runner among several: a consumer group assigns them, and nothing is read through it.

The group only divides the work. A member that has lost a partition and does not know it yet may still commit rows of
it: the progress in the table, not the group, keeps each offset in the table once. The group's committed offsets follow
the table, so that `headrace group describe` shows how far it is behind.
"""

import logging
from collections.abc import Collection, Iterable

from headrace.client.consumer.consumer import Consumer, ConsumerSettings
from headrace.client.core.settings import ClientSettings
from headrace.errors import KafkaError
from headrace.lake.core.plan import Slice
from headrace.types import Offset, TopicPartition

log = logging.getLogger(__name__)


def group_of(topic: str) -> str:
    """The group of the runners of a topic's table."""
    return f"headrace-lake-{topic}"


class Members:
    """This runner's place in the group. Use `with` or `close` to give it up at once."""

    def __init__(self, bootstrap: str, client: ClientSettings, topic: str, group: str | None = None) -> None:
        settings = ConsumerSettings(
            group_id=group or group_of(topic),
            group_protocol="consumer",
            auto_commit=False,
            auto_offset_reset="earliest",
        )
        self._consumer = Consumer(bootstrap, settings, client)
        self._consumer.subscribe([topic], on_assigned=self._read_nothing)

    def __enter__(self) -> "Members":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def assigned(self) -> Collection[TopicPartition]:
        """The partitions that are this runner's now."""
        self._consumer.poll_columns(0)
        return self._consumer.assignment

    def tell(self, slices: Iterable[Slice]) -> None:
        """Commit the table's progress as the group's offsets. They only inform, so a failure is only logged."""
        mine = set(self._consumer.assignment)
        ends = {one.partition: Offset(one.end) for one in slices if one.partition in mine}
        try:
            if ends:
                self._consumer.commit(ends)
        except KafkaError as failed:
            log.warning("the offsets of group %s are behind the table: %s", self._consumer.settings.group_id, failed)

    def _read_nothing(self, partitions: Collection[TopicPartition]) -> None:
        self._consumer.pause(partitions)
