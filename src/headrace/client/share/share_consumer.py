"""The share consumer: records of topics that it shares, one by one, with the other members of its group (KIP-932).

    poll ─▶ records ─▶ acknowledge each (explicit), or the next poll accepts them (implicit) ─▶ sent with the next fetch

A record is locked for this member until it is acknowledged, or for `group.share.record.lock.duration.ms`; then another
member gets it. One thread uses a share consumer. Source: `KafkaShareConsumer`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeAlias, Unpack

from headrace.client.consumer.group_link import GroupTimes
from headrace.client.consumer.heartbeat_session import new_member_id
from headrace.client.consumer.one_thread import CallingThread, of_one_thread
from headrace.client.consumer.selection import topics_of
from headrace.client.consumer.subscription import SubscriptionState
from headrace.client.core.cluster import Cluster
from headrace.client.core.failures import ClientClosed
from headrace.client.core.option_types import ShareConsumerOptions
from headrace.client.core.settings import ClientSettings
from headrace.client.core.timing import Deadline
from headrace.client.operations.admin import Admin
from headrace.client.security.arguments import settings_of
from headrace.client.share.acknowledgements import AcknowledgeType
from headrace.client.share.acquired_records import ShareRecord
from headrace.client.share.settings import ACQUIRE_MODES, EXPLICIT, ShareConsumerSettings
from headrace.client.share.share_fetcher import ShareFetcher
from headrace.client.share.share_membership import ShareGroupSession, ShareMembership
from headrace.client.share.share_session import FetchLimits
from headrace.errors import ErrorCode, InvalidConfig, KafkaError
from headrace.types import TopicPartition

__all__ = ["AcknowledgeType", "ShareConsumer", "ShareConsumerSettings", "ShareRecord"]

OnAcknowledged: TypeAlias = Callable[[Mapping[TopicPartition, frozenset[int]], KafkaError | None], None]
"""Called with the offsets that were acknowledged, and the error if they were refused."""

_SLICE_MS = 200
_CLOSE_TIMEOUT_MS = 10_000


class ShareConsumer:
    """Reads topics together with the other members of its group. Use `with` or `close`, which releases what is open."""

    settings: ShareConsumerSettings

    def __init__(
        self,
        bootstrap: str | Sequence[str] | Mapping[str, object] | None = None,
        settings: ShareConsumerSettings | None = None,
        client: ClientSettings | None = None,
        **options: Unpack[ShareConsumerOptions],
    ) -> None:
        """Arguments as of `Consumer`; `group_id` is needed. Raises InvalidConfig."""
        address, self.settings, client = settings_of(
            "share_consumer", bootstrap, settings or ShareConsumerSettings(), client, options
        )
        group_id = self.settings.group_id
        if group_id is None:
            raise InvalidConfig("a share consumer needs a group_id: the share group that it reads with")
        self.usage: CallingThread = CallingThread()
        self._cluster = Cluster(address, client)
        self._admin = Admin(self._cluster)
        times = GroupTimes()
        member = ShareMembership(group_id, new_member_id(), times.max_poll_interval_ms, rack=self.settings.client_rack)
        self._member = member
        self._session = ShareGroupSession(self._cluster, member, times)
        limits = FetchLimits(
            self.settings.sizes, self.settings.max_poll_records, ACQUIRE_MODES[self.settings.acquire_mode]
        )
        self._fetcher = ShareFetcher(self._cluster, group_id, member.member_id, limits, self._note)
        self._subscription: SubscriptionState | None = None
        self._buffer: deque[ShareRecord] = deque()
        self._on_acknowledged: OnAcknowledged | None = None
        self._results: list[tuple[TopicPartition, frozenset[int], KafkaError | None]] = []
        self._closed = False

    def __enter__(self) -> ShareConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check_process(self) -> None:
        """Raises ClientForked in a fork of the process that made the consumer."""
        self._cluster.check_process()

    # -- what to read

    @of_one_thread
    def subscribe(self, topics: Collection[str]) -> None:
        """Read these topics. Raises TypeError and ValueError."""
        self._check_open()
        wanted = topics_of(topics)
        if not isinstance(wanted, list):
            raise TypeError("topics is a pattern: a share group takes a list of topics")
        if not wanted:
            self.unsubscribe()
            return
        self._subscription = SubscriptionState(self._admin, wanted, None, None, None)
        self._member.rejoin()

    @of_one_thread
    def unsubscribe(self) -> None:
        """Leave the group, and release what was not acknowledged."""
        if self._subscription is not None:
            self._end(Deadline.after_ms(_CLOSE_TIMEOUT_MS))
        self._subscription = None

    @property
    def subscription(self) -> list[str]:
        """The subscribed topics."""
        return [] if self._subscription is None else list(self._subscription.latest_topics)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that this member reads at the moment; others may read them, too."""
        return sorted(self._member.owned)

    # -- reading

    def __iter__(self) -> Iterator[ShareRecord]:
        """Every record, and then those that come, until the consumer is closed.

        In explicit mode acknowledge each record before the next one is asked for; in implicit mode asking for the next
        one accepts it, and so does close.
        """
        while not self._closed:
            yield from self.poll(max_records=1)  # more would be accepted, though the loop ends before them

    @of_one_thread
    def poll(self, timeout_ms: float = 1_000, max_records: int | None = None) -> list[ShareRecord]:
        """Up to `max_records` records that are locked for this member; an empty list if none arrives in time.

        In implicit mode it accepts what the last poll returned; in explicit mode it raises KafkaError if a record of
        the last poll is not acknowledged. Raises KafkaError also without a subscription, and ConcurrentUse.
        """
        self._check_open()
        subscription = self._subscription
        if subscription is None:
            raise KafkaError("nothing to read: call subscribe before poll", ErrorCode.INVALID_REQUEST)
        self._settle_last_poll()
        deadline = Deadline.after_ms(timeout_ms)
        while True:
            self._follow_group(subscription, deadline)
            if not self._buffer:
                assigned = self._member.places
                for acquired in self._fetcher.fetch(assigned, deadline.sooner(_SLICE_MS)):
                    self._buffer.extend(acquired.records)
            self._tell()
            if self._buffer or deadline.expired or self._fetcher.take_woken():
                return self._deliver(max_records or self.settings.max_poll_records)

    def _settle_last_poll(self) -> None:
        for partition, records in self._fetcher.records.items():
            if self.settings.acknowledgement_mode != EXPLICIT:
                records.accept_open()
            elif records.unacknowledged:
                raise KafkaError(
                    f"{records.unacknowledged} records of {partition} are not acknowledged: acknowledge every record "
                    "before the next poll (share_acknowledgement_mode is explicit)",
                    ErrorCode.INVALID_RECORD_STATE,
                )

    def _follow_group(self, subscription: SubscriptionState, deadline: Deadline) -> None:
        self._session.polled()
        if self._session.is_settled:
            return
        wait = Deadline.after_ms(0) if self._member.owned else deadline
        if self._session.advance(subscription, wait) is not None:
            subscription.joined(subscription.latest_topics)

    def _deliver(self, limit: int) -> list[ShareRecord]:
        found = [self._buffer.popleft() for _ in range(min(limit, len(self._buffer)))]
        for record in found:
            self._fetcher.records[TopicPartition(record.topic, record.partition)].delivered((record.offset,))
        return found

    # -- acknowledging

    @of_one_thread
    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Say what becomes of a record; the next poll or commit sends it. Only in explicit mode.

        After RENEW the record is this member's for another lock duration, and is acknowledged again later. Raises
        KafkaError if the record is not one that this member has.
        """
        self._check_open()
        if self.settings.acknowledgement_mode != EXPLICIT:
            raise KafkaError(
                "acknowledge needs share_acknowledgement_mode=explicit: with implicit, the next poll accepts all",
                ErrorCode.INVALID_REQUEST,
            )
        partition = TopicPartition(record.topic, record.partition)
        held = self._fetcher.records.get(partition)
        if held is None or not held.acknowledge(record.offset, AcknowledgeType(kind)):
            raise KafkaError(
                f"offset {record.offset} of {partition} is not locked for this consumer: it was acknowledged before, "
                "or was not returned by its poll",
                ErrorCode.INVALID_RECORD_STATE,
            )

    @of_one_thread
    def commit(self, timeout_ms: float = 60_000) -> dict[TopicPartition, KafkaError | None]:
        """Send the acknowledgements and wait for the answers: the error of each partition, or None.

        In implicit mode it accepts what the last poll returned. Records whose acknowledgement was refused may be
        delivered again, to any member.
        """
        self._check_open()
        if self.settings.acknowledgement_mode != EXPLICIT:
            self._settle_last_poll()
        before = len(self._results)
        self._fetcher.acknowledge(Deadline.after_ms(timeout_ms))
        self._buffer_arrived()
        found = {partition: error for partition, _, error in self._results[before:]}
        self._tell()
        return found

    def on_acknowledged(self, callback: OnAcknowledged | None) -> None:
        """Call this with the offsets that were acknowledged, inside `poll`, `commit` and `close`."""
        self._on_acknowledged = callback

    def _buffer_arrived(self) -> None:
        for acquired in self._fetcher.take_arrived():
            self._buffer.extend(acquired.records)

    def _note(self, partition: TopicPartition, offsets: frozenset[int], error: KafkaError | None) -> None:
        self._results.append((partition, offsets, error))

    def _tell(self) -> None:
        results, self._results = self._results, []
        if self._on_acknowledged is not None:
            for partition, offsets, error in results:
                self._on_acknowledged({partition: offsets}, error)

    # -- the end

    def wakeup(self) -> None:
        """End the wait of the poll in progress, or of the next one. Any thread may call."""
        self._fetcher.wakeup.set()

    def close(self) -> None:
        """Send the acknowledgements, release the rest, leave the group, and close the connections.

        In implicit mode it accepts what the last poll returned. In a fork of the process it does nothing.
        """
        if self._closed or self._cluster.is_forked:
            return
        self._close()

    @of_one_thread
    def _close(self) -> None:
        self._closed = True
        try:
            if self._subscription is not None:
                self._end(Deadline.after_ms(_CLOSE_TIMEOUT_MS))
        finally:
            self._session.close()
            self._fetcher.close()
            self._cluster.close()

    def _end(self, deadline: Deadline) -> None:
        """End the sessions: acknowledged is acknowledged, the rest is released."""
        if self.settings.acknowledgement_mode != EXPLICIT:
            self._settle_last_poll()
        self._fetcher.acknowledge(deadline, is_last=True)
        self._fetcher.take_arrived()
        self._buffer.clear()
        self._fetcher.forget()
        self._session.leave()
        self._tell()

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("the share consumer is closed")
