"""Where a consumer reads its partitions next, and what its group has committed.

    assigned ─▶ a position: set by seek, else committed by the group, else by auto_offset_reset

A position is the offset of the next record that poll returns, not that of the next fetch. Source: Kafka's
`SubscriptionState`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping

from headrace.client.consumer.fetcher import CompletedFetch, Fetcher
from headrace.client.consumer.group_link import GroupLink
from headrace.client.consumer.settings import ISOLATION, RESETS, ConsumerSettings
from headrace.client.core.failures import NoOffset, TopicCreatedAnew
from headrace.client.core.group_metadata import OffsetAndMetadata
from headrace.client.operations.admin import EARLIEST, LATEST, Admin, OffsetAndTime
from headrace.errors import ErrorCode, KafkaError, OffsetOutOfRange
from headrace.types import Offset, TopicPartition

_log = logging.getLogger(__name__)


class Positions:
    """The assigned partitions and their positions."""

    def __init__(self, admin: Admin, fetcher: Fetcher, session: GroupLink | None, settings: ConsumerSettings) -> None:
        self.assigned: list[TopicPartition] = []
        self.following: dict[TopicPartition, Offset] = {}
        self.committed: dict[TopicPartition, Offset] = {}
        self._admin = admin
        self._fetcher = fetcher
        self._session = session
        self._settings = settings
        self._isolation_level = ISOLATION[settings.isolation_level]

    def use(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions. Those that were assigned before keep their positions."""
        self.assigned = partitions
        self._fetcher.keep_only(partitions)
        self.following = {known: at for known, at in self.following.items() if known in partitions}
        self.committed = {known: at for known, at in self.committed.items() if known in partitions}

    def seek(self, partition: TopicPartition, offset: Offset) -> None:
        """Read `partition` from `offset` on. Raises KafkaError if it is not assigned."""
        self.check_assigned(partition)
        self.following[partition] = offset
        self._fetcher.seek(partition, offset)

    def seek_to(self, where: int, partitions: Collection[TopicPartition]) -> None:
        """Seek to the beginning, to the end, or to the first record at or after a time (to the end if none is)."""
        for partition in partitions:
            self.check_assigned(partition)
        found = self.offsets(dict.fromkeys(partitions, where))
        late = [partition for partition, place in found.items() if place.offset < 0]
        if late:
            found.update(self.offsets(dict.fromkeys(late, LATEST)))
        for partition, place in found.items():
            self.seek(partition, place.offset)

    def find_missing(self) -> None:
        """Set missing positions: to the group's committed offsets, or as `auto_offset_reset` says."""
        missing = [partition for partition in self.assigned if partition not in self.following]
        if not missing:
            return
        if self._session is not None:
            for partition, place in self._session.committed(missing).items():
                self.committed[partition] = Offset(place.offset)
                self.seek(partition, Offset(place.offset))
        still = [partition for partition in missing if partition not in self.following]
        if still and self._settings.auto_offset_reset == "none":
            raise NoOffset(
                f"{still[0]}: group {self._settings.group_id} has no committed offset and auto_offset_reset is none; "
                "seek to an offset, or set auto_offset_reset to earliest or latest"
            )
        if still:
            self.seek_to(RESETS[self._settings.auto_offset_reset], still)

    def reset(self, lost: Mapping[TopicPartition, OffsetOutOfRange]) -> None:
        """Set positions that the broker refused, as `auto_offset_reset` says; of a topic that was created anew to the
        beginning, as nothing of it was read. Raises OffsetOutOfRange for none."""
        if self._settings.auto_offset_reset == "none":
            raise next(iter(lost.values()))
        for partition in lost:
            self.committed.pop(partition, None)
        kept = [partition for partition in lost if partition in self.assigned]
        anew = {partition for partition in kept if isinstance(lost[partition], TopicCreatedAnew)}
        self.seek_to(EARLIEST, anew)
        self.seek_to(RESETS[self._settings.auto_offset_reset], [each for each in kept if each not in anew])
        for partition in kept:
            where = f"the {self._settings.auto_offset_reset} offset, {self.following[partition]} (auto_offset_reset)"
            _log.warning("%s: reading on from %s", lost[partition].message, "its start" if partition in anew else where)

    def consumed(self, chunk: CompletedFetch, following: Offset) -> None:
        """The records of a chunk before `following` were returned."""
        if self._fetcher.is_current(chunk):
            self.following[chunk.partition] = following

    def of(self, chunk: CompletedFetch) -> Offset:
        """Where to begin in a chunk."""
        return max(chunk.position, self.following.get(chunk.partition, chunk.position))

    def to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions that differ from what was committed last."""
        return {
            known: OffsetAndMetadata(at)
            for known, at in self.following.items()
            if known in self.assigned and self.committed.get(known) != at
        }

    def offsets(self, requested: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTime]:
        """Offsets by time, or the ends, as a reader of this isolation level sees them."""
        return self._admin.list_offsets(requested, isolation_level=self._isolation_level)

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The offset after the last readable record of each partition."""
        return {partition: place.offset for partition, place in self.offsets(dict.fromkeys(partitions, LATEST)).items()}

    def beginnings(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The first offset of each partition."""
        found = self.offsets(dict.fromkeys(partitions, EARLIEST))
        return {partition: place.offset for partition, place in found.items()}

    def at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTime | None]:
        """The first record at or after a time in each partition, or None if there is none."""
        found = self.offsets(times_ms)
        return {partition: place if place.offset >= 0 else None for partition, place in found.items()}

    def lag(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """How many offsets each assigned partition has from its position to its end."""
        for partition in partitions:
            self.check_assigned(partition)
        self.find_missing()
        ends = self.ends(partitions)
        return {partition: max(0, ends[partition] - self.following[partition]) for partition in partitions}

    def known_lag(self) -> float:
        """The largest lag of a partition, by the ends that fetches have told; not a number before the first one."""
        ends, following = self._fetcher.high_watermarks.copy(), self.following.copy()
        return max((max(0, ends[known] - at) for known, at in following.items() if known in ends), default=math.nan)

    def check_assigned(self, partition: TopicPartition) -> None:
        """Raises KafkaError if the partition is not assigned."""
        if partition not in self.assigned:
            raise KafkaError(
                f"{partition} is not assigned to this consumer: assign it, or, after subscribe, wait for poll to call "
                "on_assigned",
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
