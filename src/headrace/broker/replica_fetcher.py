"""One fetcher: keeps some of this broker's followers up with one leader, over one connection, in one fetch session.

    partitions to fetch ──▶ Fetch (what changed since the last one) ──▶ the leader holds it until there is something
          ▲                                                                      │
          └── appended, truncated, or left alone for a while ◀── `replication.follower` decides for each partition

A fetcher ends when it has no partition left. What a partition is told is dropped when its leader or epoch has changed
meanwhile: `LeaderAndIsr` gives a fetcher another `Followed` then. Nothing blocks the event loop for long: between
pieces of an answer others get their turn. Where a topic wants records flushed before they count, the next fetch waits
for the flush, since asking for an offset says that all before it is safe.
Source: Kafka's ReplicaFetcherThread, AbstractFetcherThread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.broker import follower_log, leader_offsets
from headrace.broker.following import Followed, Surroundings
from headrace.coordination.model import NO_UUID
from headrace.coordination.peers import PeerUnreachable
from headrace.errors import ErrorCode, KafkaError, UnsupportedVersion
from headrace.protocol import messages as m
from headrace.replication.fetch_conversation import FetchConversation
from headrace.replication.follower import (
    Append,
    AskOffsets,
    BackOff,
    EpochEnd,
    Restart,
    Truncate,
    on_answer,
    out_of_range,
)
from headrace.types import NO_EPOCH, TopicPartition

if TYPE_CHECKING:
    from headrace.broker.partition import Partition
    from headrace.coordination.peers import PeerAddress
    from headrace.types import BrokerId

log = logging.getLogger(__name__)

BYTES_PER_TURN = 256 << 10
"""How much is appended before others get their turn of the event loop."""

QUOTA_PAUSE_S = 0.1
"""How long a partition rests when the replication quota is exceeded."""

_OF_SESSIONS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class ReplicaFetcher:
    """Fetches from one leader; `run` is its life."""

    def __init__(self, leader: BrokerId, number: int, around: Surroundings, loop: asyncio.AbstractEventLoop) -> None:
        self.leader, self._around, self._loop = leader, around, loop
        self._lane = f"fetch-{number}"
        self.partitions: dict[TopicPartition, Followed] = {}
        self._asked: dict[TopicPartition, Followed] = {}  # what the leader's session has
        # In the order of coming, so that the same events make the same requests.
        self._changed: dict[TopicPartition, None] = {}  # what it has to be told of
        self._resting: dict[TopicPartition, None] = {}  # until their `retry_at`
        self._ids: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}
        self._conversation = FetchConversation()
        self._wake = asyncio.Event()
        self._failures = 0  # of whole fetches, one after the other
        self._is_old = False
        """Whether the leader's Fetch is below version 15: OffsetForLeaderEpoch is asked then where logs part."""

    def follow(self, partition: Partition) -> None:
        """Keeps this partition up, in its present leader epoch."""
        key, topic_id = partition.key, partition.log.topic_id or NO_UUID
        self.partitions[key] = Followed(partition)
        self._ids[key.topic] = topic_id
        self._names[topic_id] = key.topic
        self._resting.pop(key, None)
        self._changed[key] = None
        self._wake.set()

    def leave(self, key: TopicPartition) -> None:
        """Not any more."""
        if self.partitions.pop(key, None) is not None:
            self._resting.pop(key, None)
            self._changed[key] = None
            self._wake.set()

    def wake(self) -> None:
        """Something that it may wait for has happened."""
        self._wake.set()

    async def run(self) -> None:
        """Until there is no partition left, or it is cancelled."""
        while self.partitions:
            self._wake.clear()
            try:
                if not await self._fetch():
                    await self._nap()
                continue
            except PeerUnreachable as error:
                log.info("nothing can be fetched from broker %d: %s", self.leader, error.message)
            except UnsupportedVersion as error:
                if not self._is_old:
                    self._is_old = True
                    self._conversation.broke()
                    continue
                log.error("broker %d cannot be followed: %s", self.leader, error.message)
            except Exception:
                log.exception("a fetch from broker %d failed", self.leader)
            self._conversation.broke()
            self._failures += 1
            await asyncio.sleep(self._around.settings.backoff_s(self._failures))

    async def _nap(self) -> None:
        """Until a partition has rested, or something happens."""
        due = min((self.partitions[key].retry_at for key in self._resting), default=None)
        timeout_s = 1.0 if due is None else min(1.0, max(0.0, due - self._loop.time()))
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()

    # Asking

    async def _fetch(self) -> bool:
        """One fetch and what follows from it; False when there is nothing to be fetched now."""
        address = self._around.address_of(self.leader)
        if address is None:
            raise PeerUnreachable(f"nobody has said where broker {self.leader} is")
        self._rest_and_return()
        if self._is_old:
            await self._check_epochs(address)
        await self._until_flushed()
        request = self._request()
        if request is None:
            return False
        answer = await self._around.peers.ask(
            address,
            request,
            m.FetchResponse,
            timeout_ms=self._around.settings.socket_timeout_ms,
            lane=self._lane,
        )
        if self._conversation.answered(answer.error_code, answer.session_id):
            self._failures = 0
            await self._take(answer, address)
        elif answer.error_code:
            log.info("broker %d ends the fetch session: %s", self.leader, ErrorCode(answer.error_code).name)
            if answer.error_code not in _OF_SESSIONS:
                self._failures += 1
                await asyncio.sleep(self._around.settings.backoff_s(self._failures))
        return True

    def _rest_and_return(self) -> None:
        """Whoever has rested is asked for again; whoever is over the quota rests."""
        now, quota = self._loop.time(), self._around.quota
        for key in [key for key in self._resting if self.partitions[key].retry_at <= now]:
            self._resting.pop(key, None)
            self._changed[key] = None
        if quota.is_exceeded(now):
            for key, each in self.partitions.items():
                if key not in self._resting and quota.is_throttled(key) and not each.partition.is_in_sync:
                    self._rest(key, each, QUOTA_PAUSE_S)

    def _request(self) -> m.FetchRequest | None:
        """What is to be said; None when nothing is wanted."""
        is_full = self._conversation.is_full
        wanted: dict[TopicPartition, Followed] = {}
        for key in self.partitions if is_full else self._changed:
            each = self.partitions.get(key)
            if each is not None and each.partition.log.failure is not None:
                self._resting[key] = None  # for good: nothing is appended to it any more
                each.retry_at = float("inf")
            if each is not None and key not in self._resting:
                wanted[key] = each
        gone = [] if is_full else [key for key in self._changed if key not in wanted and key in self._asked]
        if is_full:
            self._asked = {}
        self._asked.update(wanted)
        for key in gone:
            del self._asked[key]
        self._changed.clear()
        if not self._asked:
            self._conversation.broke()
            return None
        around, settings = self._around, self._around.settings
        request = m.FetchRequest(
            max_wait_ms=settings.wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            topics=self._topics(wanted),
            forgotten_topics_data=self._forgotten(gone),
        )
        request.session_id, request.session_epoch = self._conversation.session
        if self._is_old:
            request.replica_id = around.broker_id
        else:
            request.replica_state = m.FetchRequest.ReplicaState(
                replica_id=around.broker_id, replica_epoch=around.broker_epoch()
            )
        return request

    def _topics(self, wanted: dict[TopicPartition, Followed]) -> list[m.FetchRequest.FetchTopic]:
        topics: dict[str, m.FetchRequest.FetchTopic] = {}
        for key, each in wanted.items():
            if key.topic not in topics:
                topics[key.topic] = m.FetchRequest.FetchTopic(
                    topic=key.topic, topic_id=self._ids[key.topic], partitions=[]
                )
            topics[key.topic].partitions.append(self._want(key, each))
        return list(topics.values())

    def _want(self, key: TopicPartition, each: Followed) -> m.FetchRequest.FetchPartition:
        log_ = each.partition.log
        return m.FetchRequest.FetchPartition(
            partition=key.partition,
            current_leader_epoch=each.leader_epoch,
            fetch_offset=log_.log_end_offset,
            last_fetched_epoch=NO_EPOCH if self._is_old else follower_log.last_epoch(each.partition),
            log_start_offset=log_.log_start_offset,
            partition_max_bytes=self._around.settings.max_bytes,
        )

    def _forgotten(self, gone: Iterable[TopicPartition]) -> list[m.FetchRequest.ForgottenTopic]:
        topics: dict[str, m.FetchRequest.ForgottenTopic] = {}
        for key in gone:
            if key.topic not in topics:
                topics[key.topic] = m.FetchRequest.ForgottenTopic(
                    topic=key.topic, topic_id=self._ids[key.topic], partitions=[]
                )
            topics[key.topic].partitions.append(key.partition)
        return list(topics.values())

    # Answers

    async def _take(self, answer: m.FetchResponse, address: PeerAddress) -> None:
        size = 0
        for topic in answer.responses:
            name = topic.topic or self._names.get(topic.topic_id, "")
            for told in topic.partitions:
                key = TopicPartition(name, told.partition_index)
                each = self._asked.get(key)
                if each is None or self.partitions.get(key) is not each:
                    continue  # it has another leader or epoch by now, or none
                try:
                    size += await self._take_one(key, each, told, address)
                except (KafkaError, OSError) as error:
                    log.error("%s cannot follow broker %d: %s", key, self.leader, error)
                    self._rest(key, each)
                    continue
                if size >= BYTES_PER_TURN:
                    size = 0
                    await asyncio.sleep(0)

    async def _take_one(
        self, key: TopicPartition, each: Followed, told: m.FetchResponse.PartitionData, address: PeerAddress
    ) -> int:
        """Does what an answer asks for; how many bytes were appended."""
        partition, around = each.partition, self._around
        diverging = EpochEnd(told.diverging_epoch.epoch, told.diverging_epoch.end_offset)
        action = on_answer(
            told.error_code,
            diverging,
            partition.log.log_end_offset,
            lambda epoch: follower_log.end_of_epoch(partition, epoch),
        )
        match action:
            case Append():
                each.refusals = 0
                return await self._append(key, each, told)
            case Truncate(offset):
                log.warning("%s: the log is not its leader's from offset %d on, which goes", key, offset)
                follower_log.truncate(partition, offset, around.now_ms())
                self._changed[key] = None
            case AskOffsets():
                await self._start_over(key, each, address)
            case BackOff(code):
                log.info("%s: broker %d says %s", key, self.leader, code.name)
                self._rest(key, each)
        return 0

    async def _append(self, key: TopicPartition, each: Followed, told: m.FetchResponse.PartitionData) -> int:
        """Takes the leader's records over, and where its log begins and up to where it is committed; how many bytes."""
        partition, around = each.partition, self._around
        high_watermark, start = partition.high_watermark, partition.log.log_start_offset
        left = memoryview(told.records or b"")
        size = len(left)
        while left := follower_log.take_over(partition, told, left, around.now_ms()):
            await asyncio.sleep(0)
            if self.partitions.get(key) is not each:
                return 0
        each.lag = max(0, told.high_watermark - partition.log.log_end_offset)
        if size or partition.log.log_start_offset != start:
            self._changed[key] = None
            around.received(key, size)
        if partition.high_watermark != high_watermark:
            around.advanced(partition)
        return size

    async def _start_over(self, key: TopicPartition, each: Followed, address: PeerAddress) -> None:
        """The leader does not have the offset: goes on where it does."""
        start, end = await leader_offsets.start_and_end(self._around, address, self._lane, each)
        if self.partitions.get(key) is not each:
            return
        partition, now_ms = each.partition, self._around.now_ms()
        log_end_offset = partition.log.log_end_offset
        match out_of_range(start, end, log_end_offset):
            case Restart(offset):
                log.warning(
                    "%s: its leader begins at %d, beyond the end %d; starting there", key, start, log_end_offset
                )
                follower_log.restart(partition, offset, now_ms)
            case Truncate(offset):
                if offset < log_end_offset:
                    log.warning("%s: its leader ends at %d, before %d, which goes", key, end, log_end_offset)
                follower_log.truncate(partition, offset, now_ms)
                if offset == log_end_offset and not start <= offset <= end:
                    self._rest(key, each)
        self._changed[key] = None

    async def _check_epochs(self, address: PeerAddress) -> None:
        """Asks an older leader where logs part, of those that it was not asked about in this epoch."""
        unchecked = [each for key, each in self.partitions.items() if not each.is_checked and key not in self._resting]
        if unchecked:
            for each in await leader_offsets.truncate_to_epochs(self._around, address, self._lane, unchecked):
                self._rest(each.partition.key, each)

    async def _until_flushed(self) -> None:
        """Asking for an offset tells the leader that all before it is here for good, where the topic wants it so."""
        now_ms = self._around.now_ms()
        unsafe = [
            (each, flush_to)
            for key in (self.partitions if self._conversation.is_full else self._changed)
            if (each := self.partitions.get(key)) is not None
            and (flush_to := each.partition.log.flush_by_count(now_ms)) > 0
        ]
        while unsafe := [
            (each, flush_to)
            for each, flush_to in unsafe
            if self.partitions.get(each.partition.key) is each
            and each.partition.log.recovery_point < flush_to
            and each.partition.log.failure is None
        ]:
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._wake.wait()

    def _rest(self, key: TopicPartition, each: Followed, pause_s: float | None = None) -> None:
        """Leaves a partition alone for a while."""
        if self.partitions.get(key) is each:
            if pause_s is None:
                each.refusals += 1
                pause_s = self._around.settings.backoff_s(each.refusals)
            each.retry_at = self._loop.time() + pause_s
            self._resting[key] = None
            self._changed[key] = None
