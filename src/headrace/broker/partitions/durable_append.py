"""Durable appends, for all users: waits until appended records are committed, and flushed if the topic requires it.

    Partition.append ─▶ pending(…) ─▶ None: durable already, answer now
                                   └▶ PendingAppend ─▶ UntilDurable in the purgatory ─▶ done(an error code for each)

`replication.commit_wait` has the one commit rule, which decides when and how the wait ends; this module applies it
whenever the partition is touched. One operation waits for all appends of a request. `DurableAppends.append` appends and
waits for one batch of an internal topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.broker.partitions.partition import ACKS_ALL, Partition
from headrace.broker.partitions.replica_manager import ReplicaManager
from headrace.broker.request.purgatory import Purgatory
from headrace.errors import ErrorCode, KafkaError
from headrace.log.appending import AppendOrigin, AppendResult
from headrace.log.producers.verification import Verification
from headrace.records.format2.header import read_header
from headrace.replication.commit_wait import CommitWait, outcome
from headrace.types import TopicPartition


class PendingAppend(NamedTuple):
    """An append that is not durable yet."""

    partition: Partition
    wait: CommitWait


class NotDurable(KafkaError):
    """A batch was appended at `base_offset`, and is not durable: the error says whether the log keeps it."""

    def __init__(self, message: str, code: ErrorCode, base_offset: int) -> None:
        super().__init__(message, code)
        self.base_offset = base_offset


class DurableAppends:
    """The appends of one broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        purgatory: Purgatory,
        *,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
    ) -> None:
        self._replicas, self._purgatory = replicas, purgatory
        self._loop, self.now_ms = loop, now_ms

    def append(
        self, key: TopicPartition, batch: bytearray, *, timeout_ms: int, verification: Verification | None = None
    ) -> asyncio.Future[int]:
        """Appends a coordinator's batch with acks=all. The future holds its base offset once it is durable, or a
        `KafkaError`, which is `NotDurable` if the batch was appended.

        The future is done on return when the batch is durable at once. A transactional batch has a `verification`,
        unless its transaction is open in the partition.
        """
        written: asyncio.Future[int] = self._loop.create_future()
        now_ms = self.now_ms()
        try:
            partition = self._replicas.leader(*key)
            view = memoryview(batch)
            appended = partition.append(
                view,
                read_header(view),
                now_ms=now_ms,
                acks=ACKS_ALL,
                verification=verification,
                origin=AppendOrigin.COORDINATOR,
            )
        except KafkaError as error:
            written.set_exception(error)
            return written
        pending = self.pending(partition, appended, acks=ACKS_ALL, now_ms=now_ms)
        if pending is None:
            written.set_result(appended.base_offset)
            return written

        def done(codes: Sequence[ErrorCode]) -> None:
            if written.done():
                return
            if codes[0] is ErrorCode.NONE:
                written.set_result(appended.base_offset)
            else:
                text = f"{key}: the records at offset {appended.base_offset} may not be committed"
                written.set_exception(NotDurable(text, codes[0], appended.base_offset))

        self._purgatory.wait(self.until_durable([pending], done), [partition.key], timeout_ms)
        return written

    def high_watermark(self, key: TopicPartition) -> int:
        """The high watermark of a partition; 0 if this broker does not lead it."""
        partition = self._replicas.partitions.get(key)
        return partition.state.high_watermark if partition is not None and partition.state.is_leader else 0

    def pending(self, partition: Partition, appended: AppendResult, *, acks: int, now_ms: int) -> PendingAppend | None:
        """Wakes the readers and followers of an append. Returns the pending append; None when it is durable at once."""
        partition.touch_appended(self._purgatory)
        state = partition.state
        commit_to = appended.last_offset + 1 if acks == ACKS_ALL else 0
        flush_to = partition.log.flusher.flush_by_count(now_ms)
        if commit_to <= state.high_watermark and not flush_to:
            return None
        return PendingAppend(partition, CommitWait(commit_to, flush_to, state.leading_since))

    def until_durable(
        self, appends: Sequence[PendingAppend], done: Callable[[Sequence[ErrorCode]], None]
    ) -> UntilDurable:
        """An operation for the purgatory, to wait under the partitions' keys. `done` is called once."""
        return UntilDurable(self, appends, done)

    def outcome(self, append: PendingAppend, now_ms: int) -> ErrorCode | None:
        """Returns how the wait for an append ended; None while it continues, with any required flush in progress."""
        partition, wait = append
        log = partition.log
        is_offline = log.failure is not None or partition.key in self._replicas.offline
        flushed_offset = log.flusher.recovery_point
        if flushed_offset < wait.flush_to and not (is_offline or log.flusher.flush_by_count(now_ms)):
            flushed_offset = wait.flush_to  # the topic's settings no longer require the flush
        return outcome(wait, partition.state, flushed_offset, is_offline=is_offline)


class UntilDurable:
    """Waits until every append of a request is durable or has failed, or the request times out."""

    __slots__ = ("_appends", "_codes", "_done", "_waiting")

    def __init__(
        self,
        appends: DurableAppends,
        waiting: Sequence[PendingAppend],
        done: Callable[[Sequence[ErrorCode]], None],
    ) -> None:
        self._appends, self._done = appends, done
        self._waiting = list(enumerate(waiting))
        self._codes = [ErrorCode.REQUEST_TIMED_OUT] * len(waiting)

    def try_complete(self) -> bool:
        """Notes appends whose wait has ended; returns True when none is left."""
        now_ms, still = self._appends.now_ms(), []
        for number, append in self._waiting:
            code = self._appends.outcome(append, now_ms)
            if code is None:
                still.append((number, append))
            else:
                self._codes[number] = code
        self._waiting = still
        if not still:
            self._done(self._codes)
        return not still

    def expire(self) -> None:
        """Answers REQUEST_TIMED_OUT for the appends that still wait."""
        self._done(self._codes)
