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
frame. If another case arises meanwhile, the general way goes on from there, so the rules of refusals and of logs that
diverge are not repeated here. A test sends the same requests all ways, and compares the answers and the state of the
partitions. Compiled; it also runs uncompiled.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from headrace.broker.fetch.plain_session import FOUND_FIELDS, PlainSessionFetch
from headrace.broker.fetch.small_reads import READ_AT_ONCE_BYTES_MAX, read_if_cached
from headrace.log.files import plain_fd_of
from headrace.log.plain_read import read_plain
from headrace.log.segment_list import SegmentRange
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
else:
    from headrace.octets import bytes_at

if TYPE_CHECKING:
    from headrace.broker.fetch.fetch_sessions import FetchSession
    from headrace.broker.fetch.waiting_fetch import WaitingFetch
    from headrace.broker.partitions.partition import Partition
    from headrace.broker.services import Services

_VERSION, _MAX_WAIT, _COMMITTED, _SESSION_EPOCH, _REPLICA_ID, _REPLICA_EPOCH = 0, 2, 5, 7, 8, 9
_ROWS_MAX = PARTITIONS_MAX
_FOUND_FIELDS, _FOUND_INDEX, _FOUND_HIGH, _FOUND_STABLE, _FOUND_START, _FOUND_SIZE = FOUND_FIELDS, 0, 1, 2, 3, 4
_ROW_BYTES = TOPIC_BYTES + PARTITION_BYTES + 16
_ANSWER_BYTES = HEAD_BYTES + 1 + PARTITIONS_MAX * _ROW_BYTES
"""The most that an answer has without its records."""
_READ_MAX, _WAITS, _POSITION, _SIZE = READ_AT_ONCE_BYTES_MAX, WAITS, 0, 1
_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


class PlainFollows(PlainSessionFetch):
    """The fetches of followers that come to a dispatcher."""

    __slots__ = ("_broker_epoch", "_follower", "_is_alive", "_listeners", "_looked", "_now_ms")

    def __init__(self, services: Services, times: RequestTimes) -> None:
        """`times`: of all fetches."""
        super().__init__(services, times)
        config = services.config
        names = (config.inter_broker_listener_name.upper(), config.control_plane_listener_name.upper())
        self._listeners = names if names[0] else ()
        """Those that brokers come through, as in `admission`; empty for all."""
        self._looked: list[Any] = []  # the session's partitions, with what was read of them
        self._now_ms = self._broker_epoch = 0
        self._follower: Any = None  # a `BrokerId`
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
        if at + _ANSWER_BYTES > len(self.out) or not self._may_follow(connection):
            return 0
        count = self._begin(octets, start, end)
        if count < 0:
            return 0
        session = self._session_of(connection, octets, count, True)
        if session is None:
            return 0
        self._is_alive = self._follower in self._services.metadata.brokers
        self._now_ms = self._services.now_ms()
        changed = self._read_session(session, True)
        if changed < 0:
            return 0
        self._by_version[self._version] += 1
        self._sessions.proceed(session, self._now_ms)
        self._count_traffic(True)
        if request[_MAX_WAIT] > 0 and not self._is_enough():
            self._wait_for_records(connection, octets, start, end, session)
            return _WAITS
        self.taken += 1
        return self._write(octets, changed, session, at)

    def _may_follow(self, connection: Any) -> bool:
        """Whether other brokers come this way, and nothing has to be asked about them. See `admission`."""
        if self._admission.has_rules or self._throttling.is_active or self._services.is_alone:
            return False
        return not self._listeners or connection.listener in self._listeners

    def _begin(self, octets: Buffer, start: int, end: int) -> int:
        """Begins to read a request; returns the number of its partitions, or a negative one if it is not plain."""
        request = self._request
        count = read_follower_fetch(octets, start, end, request, self._rows)
        if count < 0 or request[_COMMITTED] or request[_SESSION_EPOCH] <= 0:
            return -1
        self._follower, self._broker_epoch = request[_REPLICA_ID], request[_REPLICA_EPOCH]
        self._begin_to_read(request[_VERSION])
        return count

    def _forget(self) -> None:
        self._looked.clear()
        self._asked.clear()
        self._read.clear()

    # -- reads

    def _read_session(self, session: FetchSession, counts: bool) -> int:
        """Reads the partitions of a session; returns the number of those that have changed since its last answer, which
        are in `_asked`. -1 if the general way has to. `counts`: see `FollowerFetch.begin`.

        Nothing counts before all partitions are read: the general way tells the last stable offset of before."""
        if not self._look_at_all(session):
            return -1
        changed, found = 0, self._found
        for each_looked in self._looked:
            key, each, partition, range_, size_so_far = each_looked
            wanted, state, end = each.wanted, partition.state, partition.log
            is_same_start = end.log_start_offset == each.log_start_offset
            is_at_the_end = wanted.fetch_offset == end.log_end_offset and is_same_start
            if is_at_the_end and wanted.last_fetched_epoch == end.leader_epochs.latest:
                if counts and not self._is_at_the_end(partition) and not self._count(partition, wanted):
                    return -1
                if state.high_watermark == each.high_watermark:
                    continue
            stable = state.high_watermark
            transactions: Any = end.producers.transactions
            if transactions._open or transactions._closed:
                stable = partition.last_stable_offset
            if counts and not self._count(partition, wanted):
                return -1
            high_watermark = state.high_watermark
            if range_ is not None or high_watermark != each.high_watermark or not is_same_start:
                if changed == _ROWS_MAX:
                    return -1
                at = changed * _FOUND_FIELDS
                found[at + _FOUND_INDEX], found[at + _FOUND_HIGH] = wanted.partition, high_watermark
                found[at + _FOUND_STABLE], found[at + _FOUND_START] = stable, end.log_start_offset
                found[at + _FOUND_SIZE] = 0 if range_ is None else range_[2]
                self._asked.append((key, each, range_, size_so_far))
                changed += 1
        return changed

    def _look_at_all(self, session: FetchSession) -> bool:
        """Finds the records of a session's partitions, for `_looked`. False if the general way has to."""
        follower, records = self._follower, 0
        for key, each in session.partitions.items():
            partition: Any = self._partitions.get(each.key)
            if partition is None:
                return False
            wanted, state, end = each.wanted, partition.state, partition.log
            offset, epoch, latest = wanted.fetch_offset, wanted.last_fetched_epoch, end.leader_epochs.latest
            progress: Any = partition.state.followers.get(follower)
            if (
                not state.is_leader
                or wanted.current_leader_epoch != state.leader_epoch
                or offset < end.log_start_offset
                or offset > end.log_end_offset
                or latest > state.leader_epoch
                or (epoch != latest and epoch != -1)
                or each.topic_id != partition.log.topic_id
                or progress is None
                or (self._broker_epoch != -1 and self._broker_epoch < progress.broker_epoch)
            ):
                return False
            if follower not in partition.state.isr_state.isr and self._is_throttled(partition):
                return False
            range_ = None
            if offset < end.log_end_offset:
                if not self._find(partition, offset, wanted.partition_max_bytes):
                    return False
                if self._place[_SIZE]:
                    if records == _ROWS_MAX:
                        return False
                    range_ = self._read[records][1]
                    records += 1
            self._looked.append((key, each, partition, range_, self._size))
        return True

    def _is_throttled(self, partition: Partition) -> bool:
        throttled: bool = self._services.replication.leader_quota.is_throttled(partition.key)
        return throttled

    def _is_at_the_end(self, partition: Partition) -> bool:
        return partition.state.is_still_at_the_end(self._follower, self._broker_epoch, self._now_ms)

    def _count(self, partition: Partition, wanted: Any) -> bool:
        """See `FollowerFetch`. False if the general way has to refuse the fetch."""
        fetched = partition.state.follower_fetched(
            self._follower,
            wanted.fetch_offset,
            self._now_ms,
            log_start_offset=wanted.log_start_offset,
            broker_epoch=self._broker_epoch,
            may_join=self._is_alive,
        )
        if fetched is None:
            return False
        if fetched.high_watermark_moved:
            self._services.purgatory.touch(partition.key)
        if fetched.alter is not None:
            self._services.replication.isr_changes.submit(partition)
        return True

    def _find(self, partition: Any, offset: int, max_bytes: int) -> bool:
        """Finds the records that the limits allow, with their size in `_place`. False if the general way has to."""
        end, place = partition.log, self._place
        place[_SIZE] = 0
        if self._remaining <= 0 and self._size > 0:
            return True
        most = max(0, min(max_bytes, self._remaining))
        file = read_plain(end, offset, most, end.log_end_offset, self._size == 0, place)
        if file is None:
            return False
        size = place[_SIZE]
        if size:
            self._read.append((partition, tuple.__new__(SegmentRange, (file, place[_POSITION], size))))
            self._size += size
            self._remaining -= size
        return True

    def _count_traffic(self, is_answered: bool) -> None:
        for partition, range_ in self._read:
            if range_ is not None:
                self._services.replication.sent(partition.key, range_[2])

    # -- requests that wait

    def _wait_for_records(self, connection: Any, octets: Buffer, start: int, end: int, session: FetchSession) -> None:
        partitions = self._partitions
        keys = [each.key for each in session.partitions.values()]
        watched = [partitions[key].end_key for key in keys]
        self._wait(connection, bytes_at(octets, start, end), session, keys, watched, self._request[_MAX_WAIT])

    def _find_again(self, waiting: WaitingFetch) -> int:
        """See `FetchShortcut`."""
        frame, session = waiting.frame, waiting.session
        if session is None or session.epoch != waiting.epoch or not self._may_follow(waiting.connection):
            return -1
        return self._read_session(session, False) if self._begin(frame, 0, len(frame)) >= 0 else -1

    # -- answers

    def _write(self, octets: Buffer, count: int, session: FetchSession | None, at: int) -> int:
        """See `FetchShortcut`."""
        assert session is not None
        self._request[_COMMITTED] = 1  # the answer to a follower has an array of aborted transactions, which is empty
        return self._write_of_session(session, count, at)

    def _put_records(self, number: int, range_: SegmentRange, pos: int) -> int:
        """Few records are written. See `small_reads`."""
        size_so_far = self._asked[number][3]
        file, position, size = range_[0], range_[1], range_[2]
        chunk: Any = range_
        if size_so_far <= _READ_MAX:
            if pos + size + _ANSWER_BYTES <= len(self.out):
                if _read_cached(plain_fd_of(file), self.out, pos, size, position) == size:
                    return size
            else:
                chunk = read_if_cached(range_) or range_
        return self._put_apart(chunk, pos)


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
