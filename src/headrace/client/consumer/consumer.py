"""The consumer: records of assigned or subscribed partitions, as objects or as columns.

    assign / subscribe ─▶ partitions ─▶ positions (seek, committed, auto_offset_reset) ─▶ fetcher ─▶ poll, poll_columns
                             ▲
                     group session (join, heartbeat, commit)

A commit after `poll` covers exactly the records that it returned, and one inside `for record in consumer` the records
up to this one. One thread uses a consumer. Source: `KafkaConsumer`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Unpack

from headrace.client.consumer.commits import Commits
from headrace.client.consumer.deserialized_records import DeserializedRecords, deserializing_of
from headrace.client.consumer.fetched_batches import ChunkRecords, ConsumerRecord, ReadOptions, columns_of
from headrace.client.consumer.fetcher import CompletedFetch, Fetcher
from headrace.client.consumer.interceptors import consumer_interceptors
from headrace.client.consumer.one_thread import CallingThread, of_one_thread
from headrace.client.consumer.positions import Positions
from headrace.client.consumer.rebalancing import Rebalancing
from headrace.client.consumer.selection import Offsets, offset_of, offsets_of, partition_of, partitions_of, topics_of
from headrace.client.consumer.sessions import Session, resource_of, session_of
from headrace.client.consumer.settings import ISOLATION, ConsumerSettings
from headrace.client.consumer.subscription import Rebalanced, SubscriptionState
from headrace.client.core.cluster import Cluster
from headrace.client.core.failures import ClientClosed
from headrace.client.core.group_metadata import GroupMetadata, OffsetAndMetadata
from headrace.client.core.option_types import ConsumerOptions
from headrace.client.core.other_methods import CONSUMER, tells_of
from headrace.client.core.record_times import checked_ms
from headrace.client.core.settings import ClientSettings
from headrace.client.core.timing import Deadline
from headrace.client.metrics.consuming import ConsumerMetrics
from headrace.client.operations.admin import EARLIEST, LATEST, Admin, OffsetAndTime
from headrace.client.security.arguments import settings_of
from headrace.errors import CorruptMessage, ErrorCode, InvalidConfig, KafkaError
from headrace.records.format2.columns import RecordColumns
from headrace.types import Offset, TopicPartition

__all__ = ["Consumer", "ConsumerSettings"]

_ITERATION_MS = 1_000
_SETTLED_MS, _REBALANCING_MS = 200, 50
"""How often a poll that waits for records looks whether the group has changed, and whether a change goes on."""


@tells_of(CONSUMER)
class Consumer:
    """Reads partitions in order. Use `with` or `close` to leave the group at once."""

    settings: ConsumerSettings

    def __init__(
        self,
        bootstrap: str | Sequence[str] | Mapping[str, object] | None = None,
        settings: ConsumerSettings | None = None,
        client: ClientSettings | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """`bootstrap` is HOST:PORT, several of them, or a mapping with `bootstrap.servers` and other settings.

        `options` are settings by Kafka's names or ours (`client.core.options`), over those of `settings` and
        `client`. Raises InvalidConfig.
        """
        address, self.settings, client = settings_of(
            "consumer", bootstrap, settings or ConsumerSettings(), client, options
        )
        self.usage: CallingThread = CallingThread()
        self._isolation_level = ISOLATION[self.settings.isolation_level]
        self._cluster = Cluster(address, client)
        self._admin = Admin(self._cluster)
        self._fetcher = Fetcher(self._cluster, self.settings.sizes, self._isolation_level, self.settings.client_rack)
        self._session: Session | None = session_of(self._cluster, self.settings)
        self._positions = Positions(self._admin, self._fetcher, self._session, self.settings)
        self._interceptors = consumer_interceptors(self.settings.interceptors)
        self._metrics = ConsumerMetrics(self._cluster, self._positions, resource_of(self.settings, self._session))
        self._fetcher.metrics = self._metrics
        self._commits = Commits(self._session, self._positions, self.settings, self._interceptors, self._metrics)
        self._rebalancing: Rebalancing | None = None
        if self._session is not None:
            commit = partial(self._commits.auto_commit, now=True)
            self._rebalancing = Rebalancing(self._session, self._positions, commit, self._metrics)
        self._subscription: SubscriptionState | None = None
        self._deserializing = deserializing_of(
            self.settings.key_deserializer, self.settings.value_deserializer, self.settings.on_deserialization_error
        )
        self._current: tuple[CompletedFetch, ChunkRecords | DeserializedRecords] | None = None
        self._is_closing = False
        self._closed = False

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check_process(self) -> None:
        """Raises ClientForked in a fork of the process that made the consumer."""
        self._cluster.check_process()

    # -- what to read

    @of_one_thread
    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions, without joining a group (commits still go to `group_id`).

        Pairs of a topic and a number are taken, too. Ends a subscription. Raises TypeError.
        """
        chosen = partitions_of(partitions)
        self._end_subscription()
        self._positions.use(chosen)

    @of_one_thread
    def subscribe(
        self,
        topics: Collection[str] | re.Pattern[str],
        on_assigned: Rebalanced | None = None,
        on_revoked: Rebalanced | None = None,
        on_lost: Rebalanced | None = None,
    ) -> None:
        """Read these topics, or all whose whole name matches the pattern, sharing them with the rest of the group.

        The callbacks run inside `poll` and `close`: before the first record of new partitions and after the last one of
        old ones. `on_lost` (if None, `on_revoked`) is called where this member was out of the group, so that others may
        own the partitions already. A topic that does not exist is a warning in the log. Raises InvalidConfig without a
        group_id, TypeError and ValueError.
        """
        wanted = topics_of(topics)
        if self._session is None:
            raise InvalidConfig("subscribe requires a group_id: set one, or use assign")
        if wanted == []:
            self.unsubscribe()
            return
        if self._subscription is None:
            self._positions.use([])
        self._subscription = SubscriptionState(self._admin, wanted, on_assigned, on_revoked, on_lost)
        self._session.member.rejoin()

    @of_one_thread
    def unsubscribe(self) -> None:
        """Leave the group, after a commit if these are automatic, and read nothing."""
        self._end_subscription()
        self._positions.use([])

    @property
    def subscription(self) -> list[str] | re.Pattern[str]:
        """The subscribed topics, or the pattern; an empty list without a subscription."""
        wanted = [] if self._subscription is None else self._subscription.wanted
        return wanted if isinstance(wanted, re.Pattern) else list(wanted)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are assigned at the moment."""
        return list(self._positions.assigned)

    @of_one_thread
    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`, or until another member has had them."""
        chosen = partitions_of(partitions)
        for partition in chosen:
            self._positions.check_assigned(partition)
        self._fetcher.paused.update(chosen)
        if self._current is not None and (current := self._current[0].partition) in chosen:
            self._positions.seek(current, self._positions.following[current])  # drops the rest of its records

    @of_one_thread
    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Continue after `pause`."""
        self._fetcher.paused.difference_update(partitions_of(partitions))

    @property
    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return set(self._fetcher.paused)

    # -- where to read

    @of_one_thread
    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Return the records of `partition` from `offset` on. Raises TypeError, ValueError and KafkaError."""
        self._positions.seek(partition_of(partition), offset_of(offset))

    @of_one_thread
    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Seek to the first offset of these partitions, or of all."""
        self._positions.seek_to(EARLIEST, self._chosen(partitions))

    @of_one_thread
    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Seek to the end of these partitions, or of all."""
        self._positions.seek_to(LATEST, self._chosen(partitions))

    @of_one_thread
    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Seek to the first record at or after a time, or to the end if there is none. Raises InvalidRecord."""
        self._positions.seek_to(checked_ms(timestamp_ms), self._chosen(partitions))

    @of_one_thread
    def position(self, partition: TopicPartition) -> Offset:
        """The offset of the next record that poll returns."""
        chosen = partition_of(partition)
        self._positions.check_assigned(chosen)
        self._positions.find_missing()
        return self._positions.following[chosen]

    @of_one_thread
    def beginning_offsets(self, partitions: Collection[TopicPartition] | None = None) -> dict[TopicPartition, Offset]:
        """The first offset of each of these partitions (None: of the assigned ones)."""
        return self._positions.beginnings(self._chosen(partitions))

    @of_one_thread
    def end_offsets(self, partitions: Collection[TopicPartition] | None = None) -> dict[TopicPartition, Offset]:
        """The offset after the last readable record of each of these partitions (None: of the assigned ones)."""
        return self._positions.ends(self._chosen(partitions))

    @of_one_thread
    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTime | None]:
        """The first record at or after a time in each partition, or None if there is none. Raises InvalidRecord."""
        return self._positions.at({partition_of(each): checked_ms(time_ms) for each, time_ms in times_ms.items()})

    @of_one_thread
    def lag(self, partitions: Collection[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """How many offsets each assigned partition has from its position to its end. Asks the brokers."""
        return self._positions.lag(self._chosen(partitions))

    def _chosen(self, partitions: Collection[TopicPartition] | None) -> list[TopicPartition]:
        return partitions_of(partitions) if partitions else list(self._positions.assigned)

    # -- reading

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Every record, one after the other, and then those that come, until the consumer is closed.

        The position is after the record that was given last, so a commit in the loop includes it. A seek, or the loss
        of the partition, ends the records that were fetched of it. Do not poll inside the loop.
        """
        while not self._closed:
            found = self._poll(_ITERATION_MS, None)
            if not found:
                continue
            partition = TopicPartition(found[0].topic, found[0].partition)
            following = self._positions.following
            at = after = following[partition]
            records = self._intercepted(found)
            for record in records:
                if following is not self._positions.following or following.get(partition) != at:
                    if self._positions.following.get(partition) == at:  # assigned as before: the rest comes again
                        self._positions.seek(partition, at)
                    break
                at = following[partition] = after if record is records[-1] else Offset(record.offset + 1)
                yield record

    def poll(self, timeout_ms: float = 1_000, max_records: int | None = None) -> list[ConsumerRecord]:
        """Up to `max_records` records of one partition; an empty list if none arrives within `timeout_ms`.

        Raises KafkaError, also if nothing is subscribed or assigned, and ConcurrentUse. RecordDeserializationError says
        that the next record cannot be deserialized: `seek` goes past it.
        """
        return self._intercepted(self._poll(timeout_ms, max_records))

    def _intercepted(self, found: list[ConsumerRecord]) -> list[ConsumerRecord]:
        return found if self._interceptors is None or not found else self._interceptors.on_consume(found)

    @of_one_thread
    def _poll(self, timeout_ms: float, max_records: int | None) -> list[ConsumerRecord]:
        """What poll returns, before the interceptors."""
        began_s = self._metrics.poll_begins()
        found = self._found(timeout_ms, max_records)
        self._metrics.poll_ends(began_s, len(found))
        return found

    def _found(self, timeout_ms: float, max_records: int | None) -> list[ConsumerRecord]:
        deadline = Deadline.after_ms(timeout_ms)
        limit = max_records or self.settings.max_poll_records
        self._before_reading(deadline)
        while True:
            if self._current is None:
                chunk = self._next_chunk(deadline)
                if chunk is None:
                    return []
                self._current = (chunk, self._records_of(chunk))
            found = self._take_begun(*self._current, limit)
            if found:
                return found

    def _take_begun(
        self, chunk: CompletedFetch, rest: ChunkRecords | DeserializedRecords, limit: int
    ) -> list[ConsumerRecord]:
        """The next records of the begun chunk; none if its position was set since, or they were the last."""
        is_wanted = self._fetcher.is_current(chunk)
        found = rest.take(limit) if is_wanted else []
        if rest.is_done or not is_wanted:
            self._current = None
            self._positions.consumed(chunk, chunk.following)
        else:
            self._positions.consumed(chunk, Offset(found[-1].offset + 1))
        return found

    def _poll_at_once(self, limit: int) -> list[ConsumerRecord]:
        """As `poll`, where it has decoded records and nobody to ask before; else none. It never waits."""
        if self._current is None or not self._current[1].has_rows:
            return []
        if self._commits.is_due:
            return []
        if self._subscription is not None and self._session is not None:
            if not self._session.is_settled or self._subscription.is_to_check:
                return []
            self._session.polled()
        return self._take_begun(*self._current, limit)

    @of_one_thread
    def poll_columns(
        self, timeout_ms: float = 1_000, options: ReadOptions | None = None
    ) -> list[tuple[TopicPartition, RecordColumns]]:
        """Records that were fetched or arrive within `timeout_ms`, as columns, without a Python object per record.

        Keys and values are bytes here, also with deserializers, and no interceptor sees them. CorruptMessage names a
        batch that is damaged; it comes again, unless `seek` goes past it.
        """
        deadline = Deadline.after_ms(timeout_ms)
        began_s = self._metrics.poll_begins()
        how = options or ReadOptions(isolation_level=self._isolation_level)
        self._before_reading(deadline)
        begun, self._current = self._current, None
        chunk = begun[0] if begun is not None and self._fetcher.is_current(begun[0]) else self._next_chunk(deadline)
        while chunk is not None:
            found = [(chunk.partition, columns) for columns in self._columns_of(chunk, how)]
            self._positions.consumed(chunk, chunk.following)
            if found:
                self._metrics.poll_ends(began_s, sum(columns.count for _, columns in found))
                return found
            chunk = self._next_chunk(deadline)
        self._metrics.poll_ends(began_s, 0)
        return []

    def _columns_of(self, chunk: CompletedFetch, how: ReadOptions) -> list[RecordColumns]:
        """The records of a chunk. After an error they are fetched again: the next chunk would begin behind them."""
        position = self._positions.of(chunk)
        try:
            return list(columns_of(chunk.answer, position, None, how))
        except BaseException as cause:
            if self._fetcher.is_current(chunk):
                self._positions.seek(chunk.partition, position)
            if isinstance(cause, CorruptMessage):
                raise CorruptMessage(f"{chunk.partition}: {cause.message}") from cause
            raise

    def wakeup(self) -> None:
        """End the wait of the poll in progress, or of the next one. Any thread may call."""
        self._fetcher.wakeup.set()

    def _records_of(self, chunk: CompletedFetch) -> ChunkRecords | DeserializedRecords:
        records = ChunkRecords(chunk.partition, chunk.answer, self._positions.of(chunk), self._isolation_level)
        return records if self._deserializing is None else DeserializedRecords(records, self._deserializing)

    def _next_chunk(self, deadline: Deadline) -> CompletedFetch | None:
        """The next chunk, or None at the deadline or after `wakeup`. The group may change meanwhile."""
        while True:
            limit = deadline
            if self._subscription is not None and self._session is not None:
                limit = deadline.sooner(_SETTLED_MS if self._session.is_settled else _REBALANCING_MS)
            chunk = self._fetcher.next_chunk(limit)
            lost = self._fetcher.take_out_of_range()
            if lost:
                self._positions.reset(lost)
            elif chunk is not None or deadline.expired or not limit.expired:
                return chunk
            else:
                self._before_reading(deadline)

    def _before_reading(self, deadline: Deadline) -> None:
        self._check_open()
        if self._subscription is not None and self._rebalancing is not None:
            self._rebalancing.follow(self._subscription, deadline)
        elif not self._positions.assigned:
            raise KafkaError("nothing to read: call subscribe or assign before poll", ErrorCode.INVALID_REQUEST)
        self._commits.auto_commit()
        self._positions.find_missing()

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("the consumer is closed")

    def metrics(self) -> dict[str, dict[str, float]]:
        """What the consumer has measured of itself, by Kafka's groups and names. Asks nobody."""
        return self._metrics.registry.read()

    # -- the group

    def _end_subscription(self) -> None:
        if self._subscription is not None and self._rebalancing is not None:
            self._rebalancing.leave(self._subscription)
        self._subscription = None

    # -- committing

    @of_one_thread
    def commit(self, offsets: Offsets | None = None) -> None:
        """Commit these offsets (of the next records to read), those after one record or several, or all positions.

        An OffsetAndMetadata also has a text, which `committed_with_metadata` returns. Raises KafkaError if refused.
        """
        self._commits.group("commit")
        self._check_open()
        if offsets is None:
            wanted = {partition: OffsetAndMetadata(at) for partition, at in self._positions.following.items()}
        else:
            wanted = offsets_of(offsets)
        self._commits.commit(wanted)

    @of_one_thread
    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The committed offsets of the group, without partitions that have none."""
        found = self._commits.group("committed").committed(partitions_of(partitions))
        return {partition: Offset(place.offset) for partition, place in found.items()}

    @of_one_thread
    def committed_with_metadata(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """As `committed`, with the texts that were committed."""
        return self._commits.group("committed_with_metadata").committed(partitions_of(partitions))

    def group_metadata(self) -> GroupMetadata:
        """This consumer's membership, for `Producer.send_offsets`: a member that lost its place commits nothing."""
        member = self._commits.group("group_metadata").member
        return GroupMetadata(member.group_id, member.generation, member.member_id, member.group_instance_id)

    def close(self) -> None:
        """Commit (if auto-commit is on; for 30 s at most), leave the group, and close the connections.

        In a fork of the process it does nothing: the consumer is its parent's. Raises ConcurrentUse.
        """
        if self._closed or self._cluster.is_forked:
            return
        self._close()

    @of_one_thread
    def _close(self) -> None:
        if self._is_closing:  # a callback closes
            return
        self._is_closing = True
        try:
            if self._subscription is not None and self._rebalancing is not None and self._positions.assigned:
                self._rebalancing.give_all_up(self._subscription)
            else:
                self._commits.auto_commit(now=True)
        finally:
            self._closed = True  # callbacks may still commit
            self._metrics.end()
            if self._session is not None:
                self._session.close()
            self._fetcher.end_sessions()
            self._cluster.close()
            self._fetcher.close()
            if self._interceptors is not None:
                self._interceptors.close()
