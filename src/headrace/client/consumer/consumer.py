"""The consumer: records of assigned or subscribed partitions, as objects or as columns.

    assign / subscribe ─▶ partitions ─▶ positions (seek, committed, auto_offset_reset) ─▶ fetcher ─▶ poll, poll_columns
                             ▲
                     group session (join, heartbeat, commit)

`position` follows the records that poll returned, not those fetched, so a commit after `poll` covers exactly the
returned records. One thread uses a consumer. Source: `KafkaConsumer`. Left out: the group protocol of KIP-848,
cooperative rebalancing, incremental fetch sessions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.client.consumer.assignors import ASSIGNORS
from headrace.client.consumer.fetched_batches import ChunkRecords, ConsumerRecord, ReadOptions, columns_of
from headrace.client.consumer.fetcher import Chunk, Fetcher
from headrace.client.consumer.fetching import FETCH_SIZES, READ_COMMITTED, READ_UNCOMMITTED, FetchSizes
from headrace.client.consumer.group_session import GroupSession, GroupTimes
from headrace.client.consumer.membership import REJOIN, Membership, MemberState
from headrace.client.core.cluster import Cluster
from headrace.client.core.failures import ClientClosed, NoOffset
from headrace.client.core.group_metadata import GroupMetadata
from headrace.client.core.settings import ClientSettings
from headrace.client.core.timing import Deadline
from headrace.client.operations.admin import EARLIEST, LATEST, Admin
from headrace.errors import ErrorCode, InvalidConfig, KafkaError, OffsetOutOfRange
from headrace.records.format2.columns import RecordColumns
from headrace.types import Offset, TopicPartition

Rebalanced = Callable[[Collection[TopicPartition]], None]
_RESETS = {"earliest": EARLIEST, "latest": LATEST}
_ISOLATION = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The settings of a consumer."""

    group_id: str | None = None
    group_instance_id: str | None = None
    assignors: Sequence[str] = ("range",)
    times: GroupTimes = field(default_factory=GroupTimes)
    auto_offset_reset: str = "latest"
    auto_commit_interval_ms: int | None = 5_000
    """None: only `commit` commits."""
    isolation_level: str = "read_uncommitted"
    max_poll_records: int = 500
    sizes: FetchSizes = FETCH_SIZES

    def check(self) -> None:
        """Raises InvalidConfig, which names the setting."""
        if self.auto_offset_reset not in (*_RESETS, "none"):
            raise InvalidConfig(f"auto_offset_reset={self.auto_offset_reset!r}: expected earliest, latest or none")
        if self.isolation_level not in _ISOLATION:
            raise InvalidConfig(f"isolation_level={self.isolation_level!r}: expected {' or '.join(_ISOLATION)}")
        for name in self.assignors:
            if name not in ASSIGNORS:
                raise InvalidConfig(f"assignors: {name!r} is not one of {', '.join(ASSIGNORS)}")
        if self.group_id == "":
            raise InvalidConfig("group_id is empty: leave it out to consume without a group")


class Consumer:
    """Reads partitions in order. Use `with` or `close` to leave the group at once."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        settings: ConsumerSettings | None = None,
        client: ClientSettings | None = None,
    ) -> None:
        self.settings = settings or ConsumerSettings()
        self.settings.check()
        self._isolation_level = _ISOLATION[self.settings.isolation_level]
        self._cluster = Cluster(bootstrap, client)
        self._admin = Admin(self._cluster)
        self._fetcher = Fetcher(self._cluster, self.settings.sizes, self._isolation_level)
        self._session: GroupSession | None = self._new_session()
        self._topics: Collection[str] | re.Pattern[str] | None = None
        self._joined_counts: Mapping[str, int] = {}
        self._on_assigned: Rebalanced | None = None
        self._on_revoked: Rebalanced | None = None
        self._assigned: list[TopicPartition] = []
        self._positions: dict[TopicPartition, Offset] = {}
        self._committed: dict[TopicPartition, Offset] = {}
        self._next_commit = Deadline.after_ms(self.settings.auto_commit_interval_ms or 0)
        self._current: tuple[Chunk, ChunkRecords] | None = None
        self._closed = False

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what to read

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions, without joining a group (commits still go to `group_id`)."""
        self._topics = None
        self._use(list(partitions))

    def subscribe(
        self,
        topics: Collection[str] | re.Pattern[str],
        on_assigned: Rebalanced | None = None,
        on_revoked: Rebalanced | None = None,
    ) -> None:
        """Read these topics, or all whose whole name matches the pattern, sharing them with the rest of the group.

        The callbacks run inside `poll`, before the first record of new partitions and after the last one of old ones.
        """
        if self._session is None:
            raise InvalidConfig("subscribe requires a group_id: set one, or use assign")
        self._topics = topics
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._session.membership.rejoin()

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are assigned at the moment."""
        return list(self._assigned)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`."""
        self._fetcher.paused |= set(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Continue after `pause`."""
        self._fetcher.paused -= set(partitions)

    # -- where to read

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Return the records of `partition` from `offset` on."""
        self._check_assigned(partition)
        self._positions[partition] = Offset(offset)
        self._fetcher.seek(partition, Offset(offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Seek to the first offset of these partitions, or of all."""
        self._seek_to(EARLIEST, partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Seek to the end of these partitions, or of all."""
        self._seek_to(LATEST, partitions)

    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Seek to the first record at or after a time, or to the end if there is none."""
        wanted = partitions or tuple(self._assigned)
        found = self._admin.list_offsets(dict.fromkeys(wanted, timestamp_ms), isolation_level=self._isolation_level)
        for partition, place in found.items():
            if place.offset >= 0:
                self.seek(partition, place.offset)
            else:
                self.seek_to_end(partition)

    def position(self, partition: TopicPartition) -> Offset:
        """The offset of the next record that poll returns."""
        self._check_assigned(partition)
        self._find_positions()
        return self._positions[partition]

    # -- reading

    def poll(self, timeout_ms: float = 1_000, max_records: int | None = None) -> list[ConsumerRecord]:
        """Up to `max_records` records of one partition; an empty list if none arrives within `timeout_ms`."""
        deadline = Deadline.after_ms(timeout_ms)
        limit = max_records or self.settings.max_poll_records
        self._before_reading(deadline)
        while True:
            if self._current is None:
                chunk = self._next_chunk(deadline)
                if chunk is None:
                    return []
                self._current = (chunk, self._records_of(chunk))
            chunk, rest = self._current
            is_wanted = self._fetcher.is_current(chunk)
            found = rest.take(limit) if is_wanted else []
            if rest.is_done or not is_wanted:
                self._current = None
                self._consumed(chunk, chunk.following)
            else:
                self._consumed(chunk, Offset(found[-1].offset + 1))
            if found:
                return found

    def poll_columns(
        self, timeout_ms: float = 1_000, options: ReadOptions | None = None
    ) -> list[tuple[TopicPartition, RecordColumns]]:
        """Records that were fetched or arrive within `timeout_ms`, as columns, without a Python object per record."""
        deadline = Deadline.after_ms(timeout_ms)
        how = options or ReadOptions(isolation_level=self._isolation_level)
        self._before_reading(deadline)
        begun, self._current = self._current, None
        chunk = begun[0] if begun is not None and self._fetcher.is_current(begun[0]) else self._next_chunk(deadline)
        while chunk is not None:
            position = max(chunk.position, self._positions.get(chunk.partition, chunk.position))
            found = [(chunk.partition, columns) for columns in columns_of(chunk.answer, position, None, how)]
            self._consumed(chunk, chunk.following)
            if found:
                return found
            chunk = self._next_chunk(deadline)
        return []

    def _records_of(self, chunk: Chunk) -> ChunkRecords:
        position = max(chunk.position, self._positions.get(chunk.partition, chunk.position))
        return ChunkRecords(chunk.partition, chunk.answer, position, self._isolation_level)

    def _consumed(self, chunk: Chunk, following: Offset) -> None:
        if self._fetcher.is_current(chunk):
            self._positions[chunk.partition] = following

    def _next_chunk(self, deadline: Deadline) -> Chunk | None:
        while True:
            chunk = self._fetcher.next_chunk(deadline)
            lost = self._fetcher.take_out_of_range()
            if not lost:
                return chunk
            self._reset(lost)

    def _before_reading(self, deadline: Deadline) -> None:
        if self._closed:
            raise ClientClosed("the consumer is closed")
        if self._topics is not None:
            self._follow_group(deadline)
        self._auto_commit()
        self._find_positions()

    # -- the group

    def _new_session(self) -> GroupSession | None:
        settings = self.settings
        if settings.group_id is None:
            return None
        membership = Membership(
            settings.group_id,
            settings.assignors,
            settings.times.session_timeout_ms,
            settings.times.max_poll_interval_ms,
            settings.group_instance_id,
        )
        return GroupSession(self._cluster, membership, settings.times)

    def _follow_group(self, deadline: Deadline) -> None:
        """Join the group if this member is not in it (any more), and apply the new assignment."""
        session = self._session
        assert session is not None and self._topics is not None
        if self._cluster.metadata_is_old and self._counts(self._subscribed()) != self._joined_counts:
            session.membership.rejoin()
        session.polled()
        if session.membership.state is MemberState.STABLE:
            return
        if self._assigned:
            self._revoke()
        topics = self._subscribed()
        assigned = session.advance(topics, self._counts, deadline)
        if assigned is not None:
            self._joined_counts = self._counts(topics)
            self._use(assigned)
            if self._on_assigned is not None:
                self._on_assigned(self._assigned)

    def _revoke(self) -> None:
        self._auto_commit(now=True)
        if self._on_revoked is not None:
            self._on_revoked(self._assigned)
        self._use([])

    def _subscribed(self) -> list[str]:
        assert self._topics is not None
        if not isinstance(self._topics, re.Pattern):
            return sorted(self._topics)
        matches = self._topics.fullmatch
        return [topic.name for topic in self._admin.list_topics() if matches(topic.name)]

    def _counts(self, topics: Collection[str]) -> dict[str, int]:
        if not topics:
            return {}
        known = self._cluster.refresh(set(topics)).topics
        return {name: len(known[name].partitions) for name in topics if name in known}

    # -- positions

    def _use(self, partitions: list[TopicPartition]) -> None:
        self._assigned = partitions
        self._fetcher.keep_only(partitions)
        self._positions = {known: at for known, at in self._positions.items() if known in partitions}
        self._committed = {known: at for known, at in self._committed.items() if known in partitions}
        self._current = None

    def _find_positions(self) -> None:
        """Set missing positions: to the group's committed offsets, or as `auto_offset_reset` says."""
        missing = [partition for partition in self._assigned if partition not in self._positions]
        if not missing:
            return
        if self._session is not None:
            for partition, place in self._session.committed(missing).items():
                self._committed[partition] = place.offset
                self.seek(partition, place.offset)
        still = [partition for partition in missing if partition not in self._positions]
        if still and self.settings.auto_offset_reset == "none":
            raise NoOffset(
                f"{still[0]}: group {self.settings.group_id} has no committed offset and auto_offset_reset is none; "
                "seek to an offset, or set auto_offset_reset to earliest or latest"
            )
        if still:
            self._seek_to(_RESETS[self.settings.auto_offset_reset], still)

    def _seek_to(self, where: int, partitions: Collection[TopicPartition]) -> None:
        wanted = partitions or self._assigned
        found = self._admin.list_offsets(dict.fromkeys(wanted, where), isolation_level=self._isolation_level)
        for partition, place in found.items():
            self.seek(partition, place.offset)

    def _reset(self, lost: Mapping[TopicPartition, OffsetOutOfRange]) -> None:
        if self.settings.auto_offset_reset == "none":
            raise next(iter(lost.values()))
        self._seek_to(_RESETS[self.settings.auto_offset_reset], [p for p in lost if p in self._assigned])

    def _check_assigned(self, partition: TopicPartition) -> None:
        if partition not in self._assigned:
            raise KafkaError(f"{partition} is not assigned to this consumer", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    # -- committing

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit these offsets (of the next records to read), or all positions. Raises KafkaError if refused."""
        if self._session is None:
            raise InvalidConfig("commit needs a group_id")
        chosen = self._positions if offsets is None else offsets
        wanted = {partition: Offset(offset) for partition, offset in chosen.items()}
        self._session.commit(wanted)
        self._committed.update(wanted)

    def group_metadata(self) -> GroupMetadata:
        """This consumer's membership, for `Producer.send_offsets`: a member that lost its place commits nothing."""
        if self._session is None:
            raise InvalidConfig("group_metadata needs a group_id")
        member = self._session.membership
        return GroupMetadata(member.group_id, member.generation, member.member_id, member.group_instance_id)

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The committed offsets of the group, without partitions that have none."""
        if self._session is None:
            raise InvalidConfig("committed needs a group_id")
        return {partition: place.offset for partition, place in self._session.committed(list(partitions)).items()}

    def _auto_commit(self, *, now: bool = False) -> None:
        interval_ms = self.settings.auto_commit_interval_ms
        if self._session is None or interval_ms is None or not (now or self._next_commit.expired):
            return
        self._next_commit = Deadline.after_ms(interval_ms)
        changed = {known: at for known, at in self._positions.items() if self._committed.get(known) != at}
        try:
            self._session.commit(changed)
            self._committed.update(changed)
        except KafkaError as cause:
            if cause.code not in REJOIN:
                raise

    def close(self) -> None:
        """Commit (if auto-commit is on), leave the group, and close the connections."""
        if self._closed:
            return
        self._closed = True
        try:
            self._auto_commit(now=True)
        finally:
            if self._session is not None:
                self._session.close()
            self._cluster.close()
