"""A replica fetcher: fetches some of this broker's partitions from one leader, over one connection and fetch session.

    partitions to fetch ──▶ Fetch (changed partitions) ──▶ the leader holds it until it has records
          ▲                                                          │
          └── appended, truncated, or backing off ◀── `replication.follower` decides for each partition

Most fetches take a shorter way, without message objects and without a task for each (`plain_fetches`). Whatever has to
be decided is decided here.

A fetcher ends when it has no partition left. A response for a partition is dropped if its leader or epoch has changed
meanwhile: LeaderAndIsr then gives a fetcher another `Followed`. Other work gets its turn between the pieces of a
response. If a topic requires a flush before records count, the next fetch waits for the flush, since fetching from an
offset tells the leader that all records before it are durable.
Source: Kafka's ReplicaFetcherThread, AbstractFetcherThread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.broker.replication import follower_log, leader_offsets
from headrace.broker.replication.followed import Followed, Following
from headrace.broker.replication.following import BYTES_PER_TURN, FetcherServices
from headrace.broker.replication.plain_fetches import PlainFetches
from headrace.errors import ErrorCode, KafkaError, UnsupportedVersion, known_code
from headrace.metadata.model import NO_UUID
from headrace.network.peers.peers import PeerUnreachable
from headrace.protocol import messages as m
from headrace.protocol.conversation.fetch_session_client import NO_SESSION, FetchSessionClient
from headrace.replication.follower import (
    BackOff,
    Compare,
    EpochEnd,
    FollowerAppend,
    RequestOffsets,
    Restart,
    Truncate,
    on_answer,
    out_of_range,
)
from headrace.types import NO_EPOCH, TopicPartition

if TYPE_CHECKING:
    from headrace.broker.partitions.partition import Partition
    from headrace.network.peers.peers import PeerAddress
    from headrace.types import BrokerId

log = logging.getLogger(__name__)

QUOTA_PAUSE_S = 0.1
"""How long a throttled partition is left out of fetches while the replication quota is exceeded."""

PARTITIONS_ADDED_MAX = 2000
"""Partitions that one request adds to the fetch session; the next request adds the others. Each costs some
microseconds here, and some at the leader. Without a session there is nothing to add to."""

_OF_SESSIONS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class ReplicaFetcher:
    """Fetches from one leader while `run` runs."""

    def __init__(
        self, leader: BrokerId, number: int, services: FetcherServices, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.leader, self._services, self._loop = leader, services, loop
        self._lane = f"fetch-{number}"
        self._conversation = FetchSessionClient()
        self._following = following = Following(self._conversation, self._cannot_follow)
        self.partitions: dict[TopicPartition, Followed] = following.partitions
        self._changed, self._uncut, self._delayed = following.changed, following.uncut, following.delayed
        self._names: dict[bytes, str] = {}
        self._session_partitions: dict[TopicPartition, Followed] = {}  # the partitions in the leader's fetch session
        self._plain = PlainFetches(following, services)
        self._wake = asyncio.Event()
        self._failures = 0  # of whole fetches in a row
        self._adds = True
        """Whether a session is begun with some partitions, to which others are added; not if the leader gave none, or
        ended it."""
        self._is_old = False
        """Whether the leader's Fetch is below version 15: OffsetForLeaderEpoch then finds where the logs diverge."""

    def follow(self, partition: Partition) -> None:
        """Fetches a partition in its current leader epoch."""
        key, topic_id = partition.key, partition.log.topic_id or NO_UUID
        self.partitions[key] = each = Followed(partition)
        self._following.ids[key.topic] = topic_id
        self._names[topic_id] = key.topic
        self._following.forget()
        self._delayed.pop(key, None)
        self._changed[key] = None
        self._note_comparison(key, each)
        self._wake.set()

    def leave(self, key: TopicPartition) -> None:
        """Stops fetching a partition."""
        if self.partitions.pop(key, None) is not None:
            self._following.forget()
            self._delayed.pop(key, None)
            self._uncut.pop(key, None)
            self._changed[key] = None
            self._wake.set()

    def wake(self) -> None:
        """Wakes the fetcher after an event that it may wait for."""
        self._wake.set()

    async def run(self) -> None:
        """Fetches until no partition is left, or it is cancelled."""
        while self.partitions:
            self._wake.clear()
            try:
                if not await self._fetch():
                    await self._wait_until_due()
                continue
            except PeerUnreachable as error:
                log.info("fetching from broker %d failed: %s", self.leader, error.message)
            except UnsupportedVersion as error:
                if not self._is_old:
                    self._is_old = True
                    self._conversation.handle_error()
                    continue
                log.error("this broker cannot follow broker %d: %s", self.leader, error.message)
            except Exception:
                log.exception("a fetch from broker %d failed", self.leader)
            self._conversation.handle_error()
            self._failures += 1
            await asyncio.sleep(self._services.settings.backoff_s(self._failures))

    async def _wait_until_due(self) -> None:
        """Waits until a partition is due again or the fetcher is woken, at most a second."""
        due = min((self.partitions[key].retry_at for key in self._delayed), default=None)
        timeout_s = 1.0 if due is None else min(1.0, max(0.0, due - self._loop.time()))
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()

    # Requests

    async def _fetch(self) -> bool:
        """Sends one fetch and handles its response; returns False when there is nothing to fetch."""
        address = self._services.address_of(self.leader)
        if address is None:
            raise PeerUnreachable(f"the address of broker {self.leader} is unknown until the next UpdateMetadata")
        self._rest_and_return()
        if self._is_old:
            await self._check_epochs(address)
        if self._uncut:
            await self._cut_to_leader_end(address)
        await self._until_flushed()
        if await self._fetch_plainly(address):
            return True
        request = self._request()
        if request is None:
            return False
        answer = await self._services.peers.send(
            address,
            request,
            m.FetchResponse,
            timeout_ms=self._services.settings.socket_timeout_ms,
            lane=self._lane,
        )
        await self._answered(answer, address)
        return True

    async def _fetch_plainly(self, address: PeerAddress) -> bool:
        """Fetches the shortest way as long as it goes, and handles the answer at which it ends. Whether it has."""
        lent = self._services.peers.lend(
            address,
            self._plain,
            m.FetchRequest,
            m.FetchResponse,
            timeout_ms=self._services.settings.socket_timeout_ms,
            lane=self._lane,
        )
        if lent is None:
            return False
        taken = self._plain.taken
        try:
            answer = await lent
        finally:
            if self._plain.taken != taken:
                self._failures = 0
        if answer is not None:
            await self._answered(answer, address)
        return True

    async def _answered(self, answer: m.FetchResponse, address: PeerAddress) -> None:
        if self._conversation.answered(answer.error_code, answer.session_id):
            self._failures = 0
            self._adds = answer.session_id != NO_SESSION
            self._services.quota.is_exceeded(self._loop.time())  # fills up, before the answer counts
            await self._take(answer, address)
        elif answer.error_code:
            log.info("broker %d ended the fetch session: %s", self.leader, known_code(answer.error_code).name)
            self._adds = False  # it may be over because it grew too large
            if answer.error_code not in _OF_SESSIONS:
                self._failures += 1
                await asyncio.sleep(self._services.settings.backoff_s(self._failures))

    def _rest_and_return(self) -> None:
        """Resumes partitions whose back-off is over, and backs off throttled ones while the quota is exceeded."""
        now, quota = self._loop.time(), self._services.quota
        for key in [key for key in self._delayed if self.partitions[key].retry_at <= now]:
            self._delayed.pop(key, None)
            self._changed[key] = None
        if quota.is_exceeded(now):
            for key, each in self.partitions.items():
                if key not in self._delayed and quota.is_throttled(key) and not each.partition.is_in_sync:
                    self._delay(key, each, QUOTA_PAUSE_S)

    def _note_comparison(self, key: TopicPartition, each: Followed) -> None:
        if each.compared is None:
            self._uncut.pop(key, None)
        else:
            self._uncut[key] = None

    async def _cut_to_leader_end(self, address: PeerAddress) -> None:
        """Truncates logs that have to be compared to the leader's log end offset (see `replication.follower`).

        The leader of this epoch has all committed records, so those behind its log's end are not committed. Afterwards
        the leader has records to compare with all others, and the comparison ends.
        """
        due = [
            self.partitions[key]
            for key in self._uncut
            if key not in self._delayed and not self.partitions[key].partition.log.is_truncating
        ]
        if not due:
            return
        for start in range(0, len(due), PARTITIONS_ADDED_MAX):
            some = due[start : start + PARTITIONS_ADDED_MAX]
            for each, code, leader_end in await leader_offsets.ends(self._services, address, self._lane, some):
                self._cut(each, code, leader_end)

    def _cut(self, each: Followed, code: ErrorCode, leader_end: int) -> None:
        key = each.partition.key
        if self.partitions.get(key) is not each:
            return
        try:
            if code:
                raise KafkaError(f"its log end offset is unknown ({code.name})", code)
            if leader_end < each.partition.log.log_end_offset:
                self._truncate(key, each, leader_end)
                each.compare_from(min(each.fetch_offset, leader_end))
            del self._uncut[key]
        except (KafkaError, OSError) as error:
            log.info("%s cannot follow broker %d yet: %s", key, self.leader, error)
            self._delay(key, each)

    def _truncate(self, key: TopicPartition, each: Followed, offset: int) -> None:
        log.warning("%s: the log diverges from the leader's log and is truncated to offset %d", key, offset)
        follower_log.truncate(each.partition, offset, self._services.now_ms())

    def _request(self) -> m.FetchRequest | None:
        """Returns the next Fetch request; None when there is nothing to fetch."""
        is_full = self._conversation.is_full
        wanted: dict[TopicPartition, Followed] = {}
        later: dict[TopicPartition, None] = {}
        most = PARTITIONS_ADDED_MAX if self._adds else len(self.partitions)
        for key in self.partitions if is_full else self._changed:
            each = self.partitions.get(key)
            if each is not None and each.partition.log.failure is not None:
                self._delayed[key] = None  # forever: a failed log accepts no more records
                each.retry_at = float("inf")
            if each is not None and key not in self._delayed:
                if len(wanted) < most:
                    wanted[key] = each
                else:
                    later[key] = None
        gone = [] if is_full else self._gone(wanted, later)
        if is_full:
            self._session_partitions.clear()
            self._following.by_id.clear()
            self._following.forget()
        for each in gone:
            self._leave_session(each.key)
        for key, each in wanted.items():
            self._leave_session(key)
            self._session_partitions[key] = each
            if each.topic_id != NO_UUID:
                self._following.by_id[each.topic_id, key.partition] = each
        self._changed.clear()
        self._changed.update(later)
        if not self._session_partitions:
            self._conversation.handle_error()
            return None
        services, settings = self._services, self._services.settings
        request = m.FetchRequest(
            max_wait_ms=0 if later else settings.wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            topics=self._topics(wanted),
            forgotten_topics_data=self._forgotten(gone),
        )
        request.session_id, request.session_epoch = self._conversation.session
        if self._is_old:
            request.replica_id = services.broker_id
        else:
            request.replica_state = m.FetchRequest.ReplicaState(
                replica_id=services.broker_id, replica_epoch=services.broker_epoch()
            )
        return request

    def _gone(self, wanted: Mapping[TopicPartition, Followed], later: Collection[TopicPartition]) -> list[Followed]:
        """What the leader's session is to forget: partitions that are not fetched any more, and those of topics that
        were made anew under another id, which the leader tells apart from those of before."""
        found = []
        for key in self._changed:
            before = self._session_partitions.get(key)
            if before is not None and key not in later:
                now = wanted.get(key)
                if now is None or (now.topic_id != before.topic_id and not self._is_old):
                    found.append(before)
        return found

    def _leave_session(self, key: TopicPartition) -> None:
        each = self._session_partitions.pop(key, None)
        if each is not None:
            self._following.by_id.pop((each.topic_id, key.partition), None)
            self._following.forget()

    def _topics(self, wanted: Mapping[TopicPartition, Followed]) -> list[m.FetchRequest.FetchTopic]:
        topics: dict[tuple[str, bytes], m.FetchRequest.FetchTopic] = {}
        for key, each in wanted.items():
            name = key.topic, each.topic_id
            if name not in topics:
                topics[name] = m.FetchRequest.FetchTopic(topic=key.topic, topic_id=each.topic_id, partitions=[])
            topics[name].partitions.append(self._want(key, each))
        return list(topics.values())

    def _want(self, key: TopicPartition, each: Followed) -> m.FetchRequest.FetchPartition:
        return m.FetchRequest.FetchPartition(
            partition=key.partition,
            current_leader_epoch=each.leader_epoch,
            fetch_offset=each.fetch_offset,
            last_fetched_epoch=NO_EPOCH if self._is_old else each.last_fetched_epoch,
            log_start_offset=each.partition.log.log_start_offset,
            partition_max_bytes=self._services.settings.max_bytes,
        )

    def _forgotten(self, gone: Iterable[Followed]) -> list[m.FetchRequest.ForgottenTopic]:
        topics: dict[tuple[str, bytes], m.FetchRequest.ForgottenTopic] = {}
        for each in gone:
            name = each.key.topic, each.topic_id
            if name not in topics:
                topics[name] = m.FetchRequest.ForgottenTopic(
                    topic=each.key.topic, topic_id=each.topic_id, partitions=[]
                )
            topics[name].partitions.append(each.index)
        return list(topics.values())

    # Responses

    async def _take(self, answer: m.FetchResponse, address: PeerAddress) -> None:
        size = 0
        for topic in answer.responses:
            name = topic.topic or self._names.get(topic.topic_id, "")
            for data in topic.partitions:
                key = TopicPartition(name, data.partition_index)
                each = self._session_partitions.get(key)
                if (
                    each is None
                    or self.partitions.get(key) is not each
                    or topic.topic_id not in (NO_UUID, each.topic_id)
                ):
                    continue  # its leader, epoch or topic id has changed, or it is no longer followed
                try:
                    size += await self._take_one(key, each, data, address)
                except (KafkaError, OSError) as error:
                    self._cannot_follow(key, each, error)
                    continue
                if size >= BYTES_PER_TURN:
                    size = 0
                    await asyncio.sleep(0)

    def _cannot_follow(self, key: TopicPartition, each: Followed, error: Exception) -> None:
        log.error("%s cannot follow broker %d: %s", key, self.leader, error)
        self._delay(key, each)

    async def _take_one(
        self, key: TopicPartition, each: Followed, data: m.FetchResponse.PartitionData, address: PeerAddress
    ) -> int:
        """Acts on the response for one partition; returns the number of appended bytes."""
        partition = each.partition
        diverging = EpochEnd(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
        action = on_answer(
            data.error_code,
            diverging,
            partition.log.log_end_offset,
            partition.high_watermark,
            lambda epoch: follower_log.end_of_epoch(partition, epoch),
        )
        match action:
            case FollowerAppend():
                each.refusals = 0
                return await self._append(key, each, data)
            case Truncate(offset):
                self._truncate(key, each, offset)
                each.compare_if_unknown()
                self._note_comparison(key, each)
                self._changed[key] = None
            case Compare(offset):
                each.has_epochs = False
                each.compare_from(offset)
                self._note_comparison(key, each)
                self._changed[key] = None
            case RequestOffsets():
                await self._start_over(key, each, address)
            case BackOff(code):
                log.info("%s: broker %d refused the fetch: %s", key, self.leader, code.name)
                self._delay(key, each)
        return 0

    async def _append(self, key: TopicPartition, each: Followed, data: m.FetchResponse.PartitionData) -> int:
        """Appends records; takes over the leader's log start offset and high watermark. Returns the appended bytes."""
        partition, services = each.partition, self._services
        high_watermark, start = partition.high_watermark, partition.log.log_start_offset
        left = memoryview(data.records or b"")
        size = len(left)
        while left and each.compared is not None:
            left = self._compare(key, each, each.compared, left)
            await asyncio.sleep(0)
            if self.partitions.get(key) is not each:
                return 0
        if each.compared is not None:
            follower_log.apply_offsets(partition, data, each.compared, services.now_ms())
        else:
            while left := follower_log.append_piece(partition, data, left, services.now_ms()):
                await asyncio.sleep(0)
                if self.partitions.get(key) is not each:
                    return 0
        each.lag = max(0, data.high_watermark - each.fetch_offset)
        if size or partition.log.log_start_offset != start:
            self._changed[key] = None
            services.received(key, size)
        if partition.high_watermark != high_watermark:
            services.advanced(partition)
        return size

    def _compare(self, key: TopicPartition, each: Followed, offset: int, records: memoryview) -> memoryview:
        """Compares one piece, and truncates the log at the first difference. Returns the records that are left."""
        offset, left, differs = follower_log.compare(each.partition, offset, records)
        if differs:
            self._truncate(key, each, offset)  # the next fetch brings the leader's records, once the disk is ready
        each.compare_from(offset)
        return left[:0] if differs else left

    async def _start_over(self, key: TopicPartition, each: Followed, address: PeerAddress) -> None:
        """Continues at an offset that the leader has, after OFFSET_OUT_OF_RANGE."""
        start, end = await leader_offsets.start_and_end(self._services, address, self._lane, each)
        if self.partitions.get(key) is not each:
            return
        partition, now_ms = each.partition, self._services.now_ms()
        log_end_offset = partition.log.log_end_offset
        match out_of_range(start, end, log_end_offset, each.compared):
            case Restart(offset):
                log.warning(
                    "%s: the leader's log starts at offset %d, beyond the log end offset %d; all records are deleted",
                    key,
                    start,
                    log_end_offset,
                )
                for _ in follower_log.restart(partition, offset, now_ms):
                    await asyncio.sleep(0)
                    if self.partitions.get(key) is not each:
                        return
                each.compared = None
            case Truncate(offset):
                if offset < log_end_offset:
                    log.warning(
                        "%s: the leader's log ends at offset %d, and the log is truncated to it from %d",
                        key,
                        end,
                        log_end_offset,
                    )
                follower_log.truncate(partition, offset, now_ms)
                each.compared = None
                if offset == log_end_offset and not start <= offset <= end:
                    self._delay(key, each)
            case Compare(offset):
                if offset == each.compared:
                    self._delay(key, each)
                each.compare_from(offset)
        self._changed[key] = None

    async def _check_epochs(self, address: PeerAddress) -> None:
        """Asks an older leader where the logs diverge, for partitions not yet checked in this leader epoch."""
        unchecked = [each for key, each in self.partitions.items() if not each.is_checked and key not in self._delayed]
        if unchecked:
            for each in await leader_offsets.truncate_to_epochs(self._services, address, self._lane, unchecked):
                self._delay(each.partition.key, each)
            for each in unchecked:
                if self.partitions.get(each.partition.key) is each:
                    self._note_comparison(each.partition.key, each)

    async def _until_flushed(self) -> None:
        """Waits for required flushes and for truncations in progress.

        Fetching from an offset tells the leader that all records before it are durable. A log that is being truncated
        accepts no records.
        """
        now_ms = self._services.now_ms()
        unsafe = [
            (each, flush_to)
            for key in (self.partitions if self._conversation.is_full else self._changed)
            if (each := self.partitions.get(key)) is not None
            and (
                (flush_to := each.partition.log.flusher.flush_by_count(now_ms)) > 0 or each.partition.log.is_truncating
            )
        ]
        while unsafe := [
            (each, flush_to)
            for each, flush_to in unsafe
            if self.partitions.get(each.partition.key) is each
            and (each.partition.log.flusher.recovery_point < flush_to or each.partition.log.is_truncating)
            and each.partition.log.failure is None
        ]:
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._wake.wait()

    def _delay(self, key: TopicPartition, each: Followed, pause_s: float | None = None) -> None:
        """Backs off: leaves a partition out of fetches for a while."""
        if self.partitions.get(key) is each:
            if pause_s is None:
                each.refusals += 1
                pause_s = self._services.settings.backoff_s(each.refusals)
            each.retry_at = self._loop.time() + pause_s
            self._delayed[key] = None
            self._changed[key] = None
