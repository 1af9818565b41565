# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""The shortest way of a follower's Fetch: the next request of its session, from the frame to the answer.

It does the work of `session_fetch` and `follower_fetch` for the request that leaves nothing to decide:

    no rules of access, no quota of clients                  `admission`, `throttling`
    a listener through which brokers come                    `admission`
    the next request of a follower's session,                `fetch_sessions`
      whose partitions are known
    partitions led here, in the leader epoch of the request,
      with a replica at the follower
    the follower's last epoch is the log's, or none          `follower_fetch.diverging_epoch_of`
    offsets in range, files that are open                    `log.plain_read`
    no throttled partition, if not in sync                   `replication_quota`

In any other case it returns 0, and the dispatcher takes the frame. Until then it has done nothing, or has noted in the
session what the request asks for: the general way does that again with the same result. A request that waits keeps its
frame, which only the general way reads again. If another case arises meanwhile, it goes on from there, so the rules of
refusals and of logs that diverge are not repeated here.

A partition of the session keeps the replica and the follower that were found for it. They are looked for again if the
replica was dropped, or its followers or its ISR have changed (`ReplicaOffsets.changes`).

A test sends the same requests all ways, and compares the answers and the state of the partitions. Compiled; it also
runs uncompiled.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from headrace.broker.fetch.found_fields import (
    FOUND_FD,
    FOUND_FIELDS,
    FOUND_HIGH,
    FOUND_INDEX,
    FOUND_POSITION,
    FOUND_SIZE,
    FOUND_SO_FAR,
    FOUND_SOURCE,
    FOUND_STABLE,
    FOUND_START,
)
from headrace.broker.fetch.plain_session import PlainSessionFetch
from headrace.broker.fetch.small_reads import READ_AT_ONCE_BYTES_MAX
from headrace.log.plain_read import read_plain
from headrace.network.answer_buffer import LONG_ANSWER_BYTES_MAX, OUT_BYTES
from headrace.network.connection import WAITS, Connection
from headrace.network.request_times import RequestTimes
from headrace.octets import Buffer
from headrace.protocol.plain_fetch import (
    HEAD_BYTES,
    PARTITION_BYTES,
    PARTITIONS_MAX,
    TOPIC_BYTES,
    read_follower_fetch,
)

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if cython.compiled:
    from cython.cimports.headrace.network.socket_calls import read_cached

if TYPE_CHECKING:
    from headrace.broker.fetch.fetch_sessions import FetchSession, SessionPartition
    from headrace.broker.fetch.waiting_fetch import WaitingFetch
    from headrace.broker.partitions.local_replica import LocalReplica
    from headrace.broker.services import Services
    from headrace.log.append_state import LogEnd
    from headrace.metadata.deltas import MetadataDelta

_VERSION, _MAX_WAIT, _COMMITTED, _SESSION_EPOCH, _REPLICA_ID, _REPLICA_EPOCH = 0, 2, 5, 7, 8, 9
_ROWS_MAX = PARTITIONS_MAX
_ROW_BYTES = TOPIC_BYTES + PARTITION_BYTES + 16
_ANSWER_BYTES = HEAD_BYTES + 1 + PARTITIONS_MAX * _ROW_BYTES
"""The most that an answer has without its records."""
_AT_MAX = OUT_BYTES
assert _ANSWER_BYTES + READ_AT_ONCE_BYTES_MAX <= LONG_ANSWER_BYTES_MAX
_READ_MAX, _WAITS, _POSITION, _SIZE = READ_AT_ONCE_BYTES_MAX, WAITS, 0, 1
_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


class PlainFollows(PlainSessionFetch):
    """The fetches of followers that come to a dispatcher."""

    __slots__ = (
        "_broker_epoch", "_brokers", "_follower", "_is_alive", "_is_alone", "_listeners", "_now_ms", "_outgoing",
    )  # fmt: skip

    def __init__(self, services: Services, times: RequestTimes) -> None:
        """`times`: of all fetches."""
        super().__init__(services, times)
        config = services.config
        names = (config.inter_broker_listener_name.upper(), config.control_plane_listener_name.upper())
        self._listeners = names if names[0] else ()
        """The listeners through which brokers come, as in `admission`; empty for all."""
        self._is_alone = services.is_alone
        self._brokers: Any = services.metadata.brokers
        """The live ones of the last snapshot of the metadata."""
        services.metadata.on_change(self._metadata_changed)
        self._outgoing = services.replication.outgoing
        self._now_ms = self._broker_epoch = self._follower = 0
        self._is_alive = False

    def answer(self, connection: Connection, octets: memoryview, start: int, end: int, at: int) -> int:
        """See `Shortcut`."""
        answer_end = self._answer(connection, octets, start, end, at)
        self._forget()
        return answer_end

    def offer(self, connection: Any, frame: memoryview) -> int:
        """As `answer`, for the whole `frame` of a connection of another kind, to the beginning of `out`."""
        answer_end = self._answer(connection, frame, 0, len(frame), 0)
        self._forget()
        return answer_end

    def _answer(self, connection: Any, octets: Buffer, start: int, end: int, at: int) -> int:
        request = self._request
        if at > _AT_MAX or not self._may_follow(connection):
            return 0
        count = self._begin(octets, start, end)
        if count < 0:
            return 0
        session = self._session_of(connection, octets, count, True)
        if session is None:
            return 0
        self._is_alive = self._follower in self._brokers
        self._now_ms = self._clock_ms()
        changed = self._read_session(session, True)
        if changed < 0:
            return 0
        self._by_version[self._version] += 1
        self._sessions.proceed(session, self._now_ms)
        self._count_traffic(True, changed)
        if request[_MAX_WAIT] > 0 and not self._is_enough():
            self._wait_for_records(connection, octets, start, end, session)
            return _WAITS
        self.taken += 1
        request[_COMMITTED] = 1  # the answer to a follower has an array of aborted transactions, which is empty
        return self._write_of_session(session, changed, at)

    def _metadata_changed(self, delta: MetadataDelta) -> None:
        self._brokers = self._services.metadata.brokers

    def _may_follow(self, connection: Any) -> bool:
        """Whether other brokers come this way, and nothing has to be asked about them. See `admission`."""
        if self._admission.has_rules or self._throttling.is_active or self._is_alone:
            return False
        if isinstance(connection, Connection):
            own = connection
            listener = own.listener
        else:
            listener = connection.listener
        return not self._listeners or listener in self._listeners

    def _begin(self, octets: Buffer, start: int, end: int) -> int:
        """Begins to read a request; returns the number of its partitions, or a negative one if it is not plain."""
        request = self._request
        count = read_follower_fetch(octets, start, end, request, self._rows)
        if count < 0 or request[_COMMITTED] or request[_SESSION_EPOCH] <= 0:
            return -1
        self._follower, self._broker_epoch = request[_REPLICA_ID], request[_REPLICA_EPOCH]
        self._begin_to_read(request[_VERSION])
        return count

    # -- reads

    def _read_session(self, session: FetchSession, counts: bool) -> int:
        """Reads the partitions of a session; returns the number of those that have changed since its last answer, which
        are in `_asked`. -1 if the general way has to. `counts`: see `FollowerFetch.begin`.

        Nothing counts before all partitions are read: the general way tells the last stable offset of before."""
        if not self._look_at_all(session):
            return -1
        changed, found = 0, self._found
        for each in session.partitions.values():
            replica = each.replica
            state, end = replica.state, replica.log
            if each.is_at_the_end:
                progress = each.follower
                is_known = progress.log_start_offset == each.start_offset
                if counts and not (
                    (is_known and state.member_is_at_the_end(progress, self._broker_epoch, self._now_ms))
                    or self._count(each, replica)
                ):
                    return -1
                if state.high_watermark == each.high_watermark:
                    continue
            stable = state.high_watermark
            if each.producers is not end.producers:
                _find_transactions(each, end)
            if each.open_transactions or each.closed_transactions:
                stable = end.last_stable_offset(stable)
            if counts and not self._count(each, replica):
                return -1
            high_watermark = state.high_watermark
            if each.size or high_watermark != each.high_watermark or end.log_start_offset != each.log_start_offset:
                if changed == _ROWS_MAX:
                    return -1
                at = changed * FOUND_FIELDS
                found[at + FOUND_INDEX], found[at + FOUND_HIGH] = each.index, high_watermark
                found[at + FOUND_STABLE], found[at + FOUND_START] = stable, end.log_start_offset
                found[at + FOUND_POSITION], found[at + FOUND_SIZE] = each.position, each.size
                found[at + FOUND_SO_FAR], found[at + FOUND_SOURCE] = each.size_so_far, each.source
                found[at + FOUND_FD] = end.active.records.plain_fd if each.is_in_active else -1
                self._asked.append(each)
                changed += 1
        return changed

    def _look_at_all(self, session: FetchSession) -> bool:
        """Finds the records of a session's partitions. False if the general way has to."""
        for each in session.partitions.values():
            if not self._is_found(each) and not self._find(each):
                return False
            replica, progress = each.replica, each.follower
            state, end, offset, epoch = replica.state, replica.log, each.fetch_offset, each.last_epoch
            latest = end.leader_epochs.latest
            if (
                not state.is_leader
                or each.leader_epoch != state.leader_epoch
                or offset < end.log_start_offset
                or offset > end.log_end_offset
                or latest > state.leader_epoch
                or (epoch != latest and epoch != -1)
                or (self._broker_epoch != -1 and self._broker_epoch < progress.broker_epoch)
            ):
                return False
            if not progress.is_in_sync and end.may_be_throttled and self._is_throttled(replica):
                return False
            each.size = 0
            each.is_at_the_end = (
                offset == end.log_end_offset and epoch == latest and end.log_start_offset == each.log_start_offset
            )
            if offset < end.log_end_offset and not self._find_records(each, end):
                return False
        return True

    def _is_found(self, each: SessionPartition) -> bool:
        """Whether what was found for a partition of the session is still so."""
        replica = each.replica
        return (
            replica is not None
            and not replica.is_dropped
            and replica.state.changes == each.changes
            and each.follower_id == self._follower
        )

    def _find(self, each: SessionPartition) -> bool:
        """Finds a partition of the session, and the follower. False if the general way has to."""
        each.replica = each.follower = None
        partition: Any = self._partitions.get(each.key)
        if partition is None or each.topic_id != partition.log.topic_id:
            return False
        progress = partition.state.followers.get(self._follower)
        if progress is None:
            return False
        each.replica, each.follower, each.follower_id = partition, progress, self._follower
        each.changes = partition.state.changes
        return True

    def _is_throttled(self, replica: LocalReplica) -> bool:
        throttled: bool = self._services.replication.leader_quota.is_throttled(replica.key)
        return throttled

    def _count(self, each: SessionPartition, replica: LocalReplica) -> bool:
        """See `FollowerFetch`. False if the general way has to refuse the fetch."""
        moved = replica.state.member_fetched(
            each.follower, each.fetch_offset, self._now_ms, each.start_offset, self._broker_epoch, self._is_alive
        )
        if moved < 0:
            return self._count_another(each, replica)
        if moved:
            self._purgatory.touch(replica.key)
        return True

    def _count_another(self, each: SessionPartition, replica: LocalReplica) -> bool:
        """Counts the fetch of a follower that is no ISR member, or is registered anew."""
        partition: Any = replica
        fetched = partition.state.follower_fetched(
            self._follower,
            each.fetch_offset,
            self._now_ms,
            log_start_offset=each.start_offset,
            broker_epoch=self._broker_epoch,
            may_join=self._is_alive,
        )
        if fetched is None:
            return False
        if fetched.high_watermark_moved:
            self._purgatory.touch(replica.key)
        if fetched.alter is not None:
            self._services.replication.isr_changes.submit(partition)
        return True

    def _find_records(self, each: SessionPartition, end: LogEnd) -> bool:
        """Finds the records that the limits allow. False if the general way has to."""
        if self._remaining <= 0 and self._size > 0:
            return True
        place, most = self._place, max(0, min(each.max_bytes, self._remaining))
        file = read_plain(end, each.fetch_offset, most, end.log_end_offset, self._size == 0, place)
        if file is None:
            return False
        size = place[_SIZE]
        if size:
            if len(self._read) == _ROWS_MAX:
                return False
            self._size += size
            self._remaining -= size
            each.position, each.size, each.size_so_far = place[_POSITION], size, self._size
            each.source, each.is_in_active = len(self._read), each.fetch_offset >= end.active.base_offset
            self._read.append(each)
            self._sources.append(file)
        return True

    def _count_traffic(self, is_answered: bool, count: int) -> None:
        for each in self._read:
            self._outgoing.bytes_out += each.size
            if each.replica.log.may_be_throttled:
                self._services.replication.leader_quota.record(each.replica.key, each.size)

    # -- requests that wait

    def _wait_for_records(self, connection: Any, octets: Buffer, start: int, end: int, session: FetchSession) -> None:
        watched = session.watched
        if watched is None:
            watched = session.watched = tuple([each.replica.end_key for each in session.partitions.values()])
        waiting = self._kept(connection, octets, start, end, session, ())
        waiting.follower, waiting.broker_epoch = self._follower, self._broker_epoch
        self._wait(waiting, watched, self._request[_MAX_WAIT])

    def _find_again(self, waiting: WaitingFetch) -> int:
        """See `FetchShortcut`."""
        session = waiting.session
        if session is None or session.epoch != waiting.epoch or not self._may_follow(waiting.connection):
            return -1
        self._go_on_with(waiting)
        self._follower, self._broker_epoch = waiting.follower, waiting.broker_epoch
        return self._read_session(session, False)

    # -- answers

    def _write_waiting(self, waiting: WaitingFetch, count: int) -> int:
        """See `FetchShortcut`."""
        session: Any = waiting.session
        self._request[_COMMITTED] = 1  # as in `_answer`
        return self._write_of_session(session, count, 0)

    def _put_records(self, file: Any, fd: int, position: int, size: int, so_far: int, pos: int) -> int:
        """Few records are written. See `small_reads`."""
        if so_far <= _READ_MAX and _read_cached(fd, self.out, pos, size, position) == size:
            return size
        return self._put_apart(file, fd, position, size, pos)


def _find_transactions(each: SessionPartition, end: LogEnd) -> None:
    """The lists of a log's transactions, which stay the same as long as its producers do."""
    each.producers = end.producers
    transactions = end.producers.transactions
    each.open_transactions, each.closed_transactions = transactions._open, transactions._closed


def _read_cached(fd: int, out: memoryview, pos: int, size: int, position: int) -> int:
    """Reads what the page cache has of a file to `out[pos:]`; returns the number of bytes, negative after a failure."""
    if fd < 0:
        return -1
    if cython.compiled:
        got: int = read_cached(fd, cython.address(out[pos]), size, position)
        return got
    try:
        return os.preadv(fd, [out[pos : pos + size]], position, _RWF_NOWAIT) if _RWF_NOWAIT else -1
    except OSError:
        return -1
