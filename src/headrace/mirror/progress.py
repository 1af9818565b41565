"""The progress of a mirror: the offsets to go on at, as committed offsets of a group in the target.

group       headrace-mirror-NAME
partition   the counterpart in the target of a partition of the source
offset      of the next record to read in the source
metadata    topic=ID, the source's topic id: a topic that was deleted and created again has another
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from headrace.client.core.metadata import NO_TOPIC_ID
from headrace.client.operations.admin import Admin
from headrace.client.operations.group_admin import GroupAdmin
from headrace.client.producer.producer import Producer
from headrace.errors import ErrorCode
from headrace.mirror.failures import MirrorStopped
from headrace.mirror.topics import Selection
from headrace.types import TopicPartition

_PREFIX = "headrace-mirror-"


class MirrorProgress:
    """The committed progress of one mirror."""

    def __init__(self, name: str, target: Admin, selection: Selection) -> None:
        self.group: str = _PREFIX + name
        self._target, self._selection = target, selection
        self._topics: Mapping[str, bytes] = {}
        self.committed: dict[TopicPartition, int] = {}
        """By partition of the source."""

    def read(self, partitions: Sequence[TopicPartition], topics: Mapping[str, bytes]) -> None:
        """Reads the progress of the source's partitions; `topics` has the ids of their topics. Raises `MirrorStopped`
        for a topic that is another than was mirrored, and `KafkaError`."""
        self._topics = topics
        counterparts = {self._selection.counterpart(each): each for each in partitions}
        places = GroupAdmin(self._target.cluster).committed(self.group, counterparts, require_stable=True)
        for where, place in places.items():
            name = counterparts[where].topic
            if place.metadata and self._mark(name) and place.metadata != self._mark(name):
                raise MirrorStopped(
                    f"{name} was deleted and created again in the source. To mirror the new one from its start, forget "
                    f"the progress in the target: headrace group forget {self.group} --topic {where.topic}",
                    ErrorCode.UNKNOWN_TOPIC_ID,
                )
        self.committed = {counterparts[where]: int(place.offset) for where, place in places.items()}

    def moved(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The positions that differ from what is committed."""
        return {each: offset for each, offset in positions.items() if self.committed.get(each) != offset}

    def send(self, producer: Producer, moved: Mapping[TopicPartition, int]) -> None:
        """Makes positions part of the open transaction. Raises `KafkaError`."""
        for topic, some in groupby(sorted(moved), lambda each: each.topic):
            offsets = {self._selection.counterpart(each): moved[each] for each in some}
            producer.send_offsets(offsets, self.group, metadata=self._mark(topic))

    def _mark(self, topic: str) -> str:
        """What is committed beside the offsets of a topic; nothing if the source knows no topic ids."""
        found = self._topics.get(topic, NO_TOPIC_ID)
        return "" if found == NO_TOPIC_ID else f"topic={found.hex()}"
