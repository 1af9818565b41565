"""The group coordinator's hands: carries its actions out, wakes it at its deadlines, reads its log back.

    handler ─request, reply─▶ GroupCoordinator ─actions─▶ reply(message)
                                    ▲                 └─▶ append to __consumer_offsets ─▶ done or failed ─┐
                                    └──────────────────────── appended(then, …) ◀─────────────────────────┘

Actions are carried out in the order in which they were decided, also when a write is done at once and decides more:
the last record of a group in the log is then its last state. Everything here runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from headrace.errors import CorruptMessage, ErrorCode, KafkaError
from headrace.groups.actions import Answer, Append
from headrace.groups.coordinator import Actions, GroupCoordinator, Left
from headrace.limits import COLD_READ_CHUNK_BYTES
from headrace.log.scan import records_in
from headrace.records.any_format import any_crc_is_valid, iter_any_headers
from headrace.records.batch import Record, encode_batch
from headrace.records.control import read_marker
from headrace.types import NO_PRODUCER, TopicPartition

if TYPE_CHECKING:
    from headrace.config import BrokerConfig
    from headrace.groups.actions import Action, Reply, Then
    from headrace.groups.commits import FetchedOffset
    from headrace.groups.describing import GroupDescription, GroupOverview, Position
    from headrace.groups.loading import Loading
    from headrace.groups.members import Join
    from headrace.log.partition_log import PartitionLog
    from headrace.protocol import messages as m

log = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"
NOT_WRITTEN = -1
CLOCK_JUMP_MS = 1000
"""Wall clock and monotonic clock may drift apart by this much between two looks; more is a clock that was set."""


class OffsetsHost(Protocol):
    """What the shell needs of the broker."""

    def append_internal(self, partition: int, batch: bytearray) -> Awaitable[int]:
        """Appends to a partition of `__consumer_offsets` with acks=all; its base offset, or a `KafkaError`,
        REQUEST_TIMED_OUT when that takes longer than `offsets.commit.timeout.ms`.

        An `asyncio.Future` that is done already is taken at once, without a turn of the loop.
        """
        ...

    def partition_count(self) -> int:
        """How many partitions `__consumer_offsets` has, or will be made with."""
        ...

    def ensure_offsets_topic(self) -> Awaitable[None]:
        """Makes `__consumer_offsets` if it is not there. Raises `KafkaError`."""
        ...


class GroupShell:
    """The groups of this broker, as its handlers call them."""

    def __init__(
        self,
        config: BrokerConfig,
        host: OffsetsHost,
        *,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self._host, self._loop, self._wall_ms = host, loop, now_ms
        self._seen_ms, self._seen_s = now_ms(), loop.time()
        self._coordinator = GroupCoordinator(config, host.partition_count, new_id, self._seen_ms)
        self._queue: deque[Action] = deque()
        self._is_running = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._arm()

    def close(self) -> None:
        """No deadline passes any more."""
        if self._timer is not None:
            self._timer.cancel()

    # partitions of __consumer_offsets

    async def ensure_offsets_topic(self) -> None:
        """Makes `__consumer_offsets` if it is not there. Raises `KafkaError`."""
        await self._host.ensure_offsets_topic()

    def partition_for(self, group_id: str) -> int:
        """The partition whose leader coordinates the group."""
        return self._coordinator.partition_for(group_id)

    def load_partition(self, partition: int, partition_log: PartitionLog) -> Coroutine[object, object, None]:
        """This broker leads the partition now: its groups are loading from this call on, and served when the
        coroutine that it returns is done. That never raises; a partition that cannot be read is not served."""
        return self._read(partition, partition_log, self._coordinator.begin_loading(partition))

    async def _read(self, partition: int, partition_log: PartitionLog, loading: Loading | None) -> None:
        if loading is None:
            return
        try:
            offset = partition_log.log_start_offset
            while offset < (end_offset := partition_log.log_end_offset):
                chunk = partition_log.read(offset, COLD_READ_CHUNK_BYTES, end_offset=end_offset, at_least_one=True)
                offset = _feed(loading, partition, partition_log.read_bytes(chunk), offset)
                if offset < end_offset:
                    await asyncio.sleep(0)  # a long log must not stall the requests of other partitions
        except (OSError, KafkaError):
            log.exception("%s-%d cannot be read, so its groups are not served", OFFSETS_TOPIC, partition)
            self._run(self._coordinator.unload(partition, self._now_ms()))
        else:
            self._run(self._coordinator.finish_loading(partition, loading, self._now_ms()))

    def unload_partition(self, partition: int) -> None:
        """This broker leads the partition no more."""
        self._run(self._coordinator.unload(partition, self._now_ms()))

    def forget_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions of users' topics were deleted, and so are their offsets."""
        self._run(self._coordinator.forget_partitions(partitions, self._now_ms()))

    # requests

    def join(self, event: Join, reply: Reply) -> None:
        """JoinGroup; `reply` is called now or when the rebalance completes."""
        self._run(self._coordinator.join(event, reply, self._now_ms()))

    def sync(self, request: m.SyncGroupRequest, reply: Reply) -> None:
        """SyncGroup; `reply` is called now or when the assignment is stored."""
        self._run(self._coordinator.sync(request, reply, self._now_ms()))

    def commit(self, request: m.OffsetCommitRequest, reply: Reply) -> None:
        """OffsetCommit; `reply` is called when the offsets are stored."""
        self._run(self._coordinator.commit(request, reply, self._now_ms()))

    def heartbeat(self, request: m.HeartbeatRequest) -> ErrorCode:
        """Heartbeat, answered at once."""
        return self._coordinator.heartbeat(request, self._now_ms())

    def leave(self, group_id: str, members: Iterable[m.LeaveGroupRequest.MemberIdentity]) -> Left:
        """LeaveGroup, answered at once."""
        left, actions = self._coordinator.leave(group_id, members, self._now_ms())
        self._run(actions)
        return left

    def fetch_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, require_stable: bool
    ) -> tuple[ErrorCode, list[FetchedOffset]]:
        """OffsetFetch of one group, answered at once."""
        return self._coordinator.fetch_offsets(group_id, partitions, require_stable)

    # administration

    def overview(self) -> tuple[ErrorCode, list[GroupOverview]]:
        """ListGroups: every group that this broker coordinates."""
        return self._coordinator.overview()

    def positions(self) -> list[Position]:
        """Every offset that a group here has committed."""
        return self._coordinator.positions()

    def describe(self, group_id: str) -> GroupDescription:
        """DescribeGroups, for one."""
        return self._coordinator.describe(group_id)

    def delete_group(self, group_id: str) -> ErrorCode:
        """DeleteGroups, for one."""
        error, actions = self._coordinator.delete_group(group_id, self._now_ms())
        self._run(actions)
        return error

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> tuple[ErrorCode, dict[TopicPartition, ErrorCode]]:
        """OffsetDelete, of partitions that exist: an error for the whole, or one for each."""
        error, results, actions = self._coordinator.delete_offsets(group_id, partitions, self._now_ms())
        self._run(actions)
        return error, results

    # carrying out

    def _run(self, actions: Actions) -> None:
        self._queue.extend(actions)
        if self._is_running:
            return  # whoever is running comes to them, in order
        self._is_running = True
        try:
            while self._queue:
                match self._queue.popleft():
                    case Answer() as answer:
                        _answer(answer)
                    case Append() as append:
                        self._append(append)
        finally:
            self._is_running = False
        self._arm()

    def _append(self, append: Append) -> None:
        batch = encode_batch([Record(0, append.timestamp_ms, key, value) for key, value in append.records])
        writing: asyncio.Future[int] = self._loop.create_future()
        try:
            writing = asyncio.ensure_future(self._host.append_internal(append.partition, batch))
        except KafkaError as error:
            writing.set_exception(error)
        if writing.done():
            self._written(append.then, writing)
        else:
            writing.add_done_callback(lambda _: self._written(append.then, writing))

    def _written(self, then: Then | None, writing: asyncio.Future[int]) -> None:
        error, record_offset = ErrorCode.NONE, NOT_WRITTEN
        try:
            record_offset = writing.result()
        except KafkaError as failure:
            error = failure.code
            log.warning("a record of %s was not written: %s", OFFSETS_TOPIC, failure)
        except asyncio.CancelledError:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER  # the broker is going
        if then is not None:
            self._run(self._coordinator.appended(then, error, record_offset, self._now_ms()))

    # time

    def _now_ms(self) -> int:
        """The wall clock; when it was set, the coordinator is told, so that no session ends or drags on by that."""
        now_ms, now_s = self._wall_ms(), self._loop.time()
        jump_ms = now_ms - self._seen_ms - int((now_s - self._seen_s) * 1000)
        self._seen_ms, self._seen_s = now_ms, now_s
        if abs(jump_ms) > CLOCK_JUMP_MS:
            self._coordinator.clock_was_set(jump_ms)
        return now_ms

    def _arm(self) -> None:
        """Sees to it that the timer is not later than the next deadline; when it is earlier, that costs one look."""
        next_ms = self._coordinator.next_deadline_ms()
        if next_ms is None or (self._timer is not None and self._timer_ms <= next_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = next_ms
        self._timer = self._loop.call_later(max(next_ms - self._now_ms(), 0) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._run(self._coordinator.tick(self._now_ms()))


def _answer(answer: Answer) -> None:
    """One client's trouble must not keep the others of its group from their answers."""
    try:
        answer.reply(answer.message)
    except Exception:
        log.exception("%r could not be answered", answer.message)


def _feed(loading: Loading, partition: int, data: bytes, from_offset: int) -> int:
    """Hands every record of the whole batches in `data` on; the offset after the last one. Raises `CorruptMessage`
    when there is no whole batch; one whose content is broken is left out, as losing all the others would be worse."""
    next_offset = from_offset
    for position, header in iter_any_headers(data):
        batch = memoryview(data)[position : position + header.size_bytes]
        next_offset = header.next_offset
        try:
            if not any_crc_is_valid(data, position, header):
                raise CorruptMessage("its CRC does not fit")
            if header.is_control:
                if header.record_count:  # else compaction has emptied it
                    loading.marker(header.producer_id, read_marker(batch).is_commit)
                continue
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
            for record in records_in(batch, header):
                loading.record(record.key or b"", record.value, header.base_offset, producer_id)
        except KafkaError as error:
            log.warning(
                "%s-%d: the batch at offset %d is left out: %s", OFFSETS_TOPIC, partition, header.base_offset, error
            )
    if next_offset == from_offset:
        raise CorruptMessage(f"no batch at offset {from_offset}")
    return next_offset
