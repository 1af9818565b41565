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

import logging
import os
from array import array
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from headrace.broker.fetch.general_fetch import general_fetch
from headrace.broker.fetch.small_reads import READ_AT_ONCE_BYTES_MAX, read_if_cached
from headrace.log.files import plain_fd_of
from headrace.log.plain_read import PLACE_FIELDS, read_plain
from headrace.log.segment_list import SegmentRange
from headrace.network.connection import WAITS, Chunks, Connection, Shortcut, Slot
from headrace.network.request_times import AnsweredAtOnce, RequestTimes, Timed
from headrace.protocol.apis import ApiKey
from headrace.protocol.plain_fetch import (
    HEAD_BYTES,
    PARTITION_BYTES,
    PARTITIONS_MAX,
    REQUEST_FIELDS,
    ROW_FIELDS,
    TOPIC_BYTES,
    Buffer,
    begin_fetch_answer,
    end_fetch_answer,
    end_topic,
    put_partition,
    put_topic,
    read_follower_fetch,
)

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
    from cython.cimports.headrace.network.socket_calls import read_cached

if TYPE_CHECKING:
    from headrace.broker.fetch.fetch import Fetch
    from headrace.broker.fetch.fetch_sessions import FetchSession
    from headrace.broker.partitions.partition import Partition
    from headrace.broker.services import Services

log = logging.getLogger(__name__)

SESSION_PARTITIONS_MAX = 1_000
"""A session of more partitions is read by the general way."""

_VERSION, _MAX_WAIT, _MIN_BYTES, _MAX_BYTES, _COMMITTED, _SESSION_ID, _SESSION_EPOCH = 0, 2, 3, 4, 5, 6, 7
_REPLICA_ID, _REPLICA_EPOCH = 8, 9
_TOPIC_AT, _INDEX, _LEADER_EPOCH, _OFFSET, _LAST_EPOCH, _LOG_START, _PARTITION_MAX = 0, 2, 3, 4, 5, 6, 7
_ROW_FIELDS, _ROWS_MAX, _SESSION_MAX = ROW_FIELDS, PARTITIONS_MAX, SESSION_PARTITIONS_MAX
_FOUND_FIELDS, _FOUND_INDEX, _FOUND_HIGH, _FOUND_STABLE, _FOUND_START, _FOUND_SIZE = 5, 0, 1, 2, 3, 4
_ID_BYTES, _ROW_BYTES = 16, TOPIC_BYTES + PARTITION_BYTES + 16
_ANSWER_BYTES = HEAD_BYTES + 1 + PARTITIONS_MAX * _ROW_BYTES
"""The most that an answer has without its records."""
_READ_MAX, _WAITS, _POSITION, _SIZE = READ_AT_ONCE_BYTES_MAX, WAITS, 0, 1
_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


class WaitingFollow:
    """A follower's fetch in the purgatory. It keeps its frame, and is read from there each time. Where that has to
    decide something, `session_fetch` goes on in its place."""

    __slots__ = (
        "_connection", "_follows", "_general", "_keys", "_slot", "answered_ns", "api_key", "epoch", "frame",
        "handed_over_ns", "received_ns", "session", "started_ns", "times",
    )  # fmt: skip

    def __init__(
        self, follows: PlainFollows, connection: Any, slot: Slot, frame: bytes, session: FetchSession, keys: Any
    ) -> None:
        """`keys`: of the session's partitions."""
        self._follows, self._connection, self._keys = follows, connection, keys
        self._slot: Slot | None = slot
        self._general: Fetch | None = None
        self.frame, self.session, self.epoch = frame, session, session.epoch
        self.times, self.api_key = follows.times, ApiKey.FETCH
        self.received_ns, self.started_ns = connection.received_ns, connection.looked_ns
        self.handed_over_ns = self.answered_ns = connection.looked_ns = monotonic_ns()

    def try_complete(self) -> bool:
        """See `purgatory.DelayedOperation`."""
        return self._look_again(False)

    def expire(self) -> None:
        """See `purgatory.DelayedOperation`."""
        self._look_again(True)

    def _look_again(self, is_over: bool) -> bool:
        if self._connection.is_closed:
            return True
        try:
            if self._general is not None:
                return self._ask_general(self._general, is_over)
            return self._follows.look_again(self, is_over)
        except Exception:  # a bug of the broker, as in `RequestContext.failed`
            self._follows.files.clear()
            log.exception("a request failed", extra={"api": "FETCH", "peer": self._connection.peer})
            self._connection.close("an internal error")
            return True

    def go_the_general_way(self, services: Services, is_over: bool) -> bool:
        """Lets a `SessionFetch` go on in the place of this one. Whether it has answered."""
        slot, self._slot = self._slot, None
        assert slot is not None
        self._general = general_fetch(
            services, self._connection, slot, self, self.frame, self.session, self.epoch, self._keys
        )
        return self._ask_general(self._general, is_over)

    def _ask_general(self, fetch: Fetch, is_over: bool) -> bool:
        if is_over:
            fetch.expire()
            return True
        return fetch.try_complete()

    def answer(self, chunks: Chunks) -> None:
        """Sends the answer."""
        slot, self._slot = self._slot, None
        assert slot is not None
        self.answered_ns = monotonic_ns()
        self._connection.answer_later(slot, chunks, self)


class PlainFollows(Shortcut):
    """The fetches of followers that come to a dispatcher."""

    __slots__ = (
        "_admission", "_asked", "_broker_epoch", "_by_version", "_follower", "_found", "_is_alive", "_listeners",
        "_looked", "_now_ms", "_partitions", "_place", "_read", "_remaining", "_request", "_rows", "_services",
        "_sessions", "_size", "_throttling", "_version", "taken", "times", "waited",
    )  # fmt: skip

    def __init__(self, services: Services, times: RequestTimes) -> None:
        """`times`: of all fetches."""
        super().__init__()
        self._services, self.times, self._by_version = services, times, times.by_version
        self._admission, self._throttling = services.admission, services.throttling
        self._sessions = services.fetch_sessions
        self._partitions = services.replicas.partitions
        config = services.config
        names = (config.inter_broker_listener_name.upper(), config.control_plane_listener_name.upper())
        self._listeners = names if names[0] else ()
        """Those that brokers come through, as in `admission`; empty for all."""
        self._request = memoryview(array("q", bytes(8 * REQUEST_FIELDS)))
        self._rows = memoryview(array("q", bytes(8 * ROW_FIELDS * PARTITIONS_MAX)))
        self._place = memoryview(array("q", bytes(8 * PLACE_FIELDS)))
        self._found = memoryview(array("q", bytes(8 * _FOUND_FIELDS * PARTITIONS_MAX)))
        self._looked: list[Any] = []  # the session's partitions, with what was read of them
        self._asked: list[Any] = []  # the session's partitions that the request names; later those to be answered
        self._read: list[tuple[Partition, SegmentRange]] = []
        self._remaining = self._size = self._version = self._now_ms = self._broker_epoch = 0
        self._follower: Any = None  # a `BrokerId`
        self._is_alive = False
        self.taken = self.waited = 0
        """How many were answered at once, and how many had to wait."""

    def timed(self, connection: Connection) -> Timed:
        """See `Shortcut`."""
        now_ns = monotonic_ns()
        made = AnsweredAtOnce(self.times, connection.received_ns, connection.looked_ns, now_ns)
        connection.looked_ns = now_ns
        return made

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
        session = self._session_of(connection, octets, count)
        if session is None:
            return 0
        self._is_alive = self._follower in self._services.metadata.brokers
        self._now_ms = self._services.now_ms()
        changed = self._read_session(session, True)
        if changed < 0:
            return 0
        self._by_version[self._version] += 1
        self._sessions.proceed(session, self._now_ms)
        self._count_sent()
        if request[_MAX_WAIT] > 0 and not self._is_enough():
            self._wait(connection, octets, start, end, session)
            return _WAITS
        self.taken += 1
        return self._write(session, changed, at)

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
        self._version = request[_VERSION]
        self._follower, self._broker_epoch = request[_REPLICA_ID], request[_REPLICA_EPOCH]
        self._forget()
        self._size = 0
        self._remaining = min(request[_MAX_BYTES], self._services.config.fetch_max_bytes)
        return count

    def _forget(self) -> None:
        """Lets go of what was read: a file of a deleted segment takes space as long as somebody has it."""
        self._looked.clear()
        self._asked.clear()
        self._read.clear()

    def _session_of(self, connection: Any, octets: Buffer, count: int) -> FetchSession | None:
        """The session of a request, which has its partitions and notes what is asked of them. None if the general way
        has to find it."""
        request, rows = self._request, self._rows
        session: FetchSession | None = self._sessions.get(request[_SESSION_ID])
        if session is None or session.epoch != request[_SESSION_EPOCH] or session.principal != connection.principal:
            return None
        if not session.is_follower or not session.by_id or not session.partitions:
            return None
        if len(session.partitions) > _SESSION_MAX:
            return None
        number, row = 0, 0
        topic_id = b""
        while number < count:
            if not number or rows[row + _TOPIC_AT] != rows[row - _ROW_FIELDS + _TOPIC_AT]:
                topic_id = _bytes(octets, rows[row + _TOPIC_AT], rows[row + _TOPIC_AT] + _ID_BYTES)
            each = session.partitions.get((topic_id, rows[row + _INDEX]))
            if each is None:
                return None
            self._asked.append(each)
            number += 1
            row += _ROW_FIELDS
        number = row = 0
        while number < count:
            wanted: Any = self._asked[number].wanted
            wanted.fetch_offset, wanted.partition_max_bytes = rows[row + _OFFSET], rows[row + _PARTITION_MAX]
            wanted.current_leader_epoch, wanted.last_fetched_epoch = rows[row + _LEADER_EPOCH], rows[row + _LAST_EPOCH]
            wanted.log_start_offset = rows[row + _LOG_START]
            number += 1
            row += _ROW_FIELDS
        self._asked.clear()
        return session

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

    def _count_sent(self) -> None:
        for partition, range_ in self._read:
            self._services.replication.sent(partition.key, range_[2])

    def _is_enough(self) -> bool:
        """See `Fetch`."""
        return self._size >= self._request[_MIN_BYTES] or self._remaining <= 0

    # -- requests that wait

    def _wait(self, connection: Any, octets: Buffer, start: int, end: int, session: FetchSession) -> None:
        partitions = self._partitions
        keys = [each.key for each in session.partitions.values()]
        slot = connection.place()
        waiting = WaitingFollow(self, connection, slot, _bytes(octets, start, end), session, keys)
        self.waited += 1
        purgatory = self._services.purgatory
        watched = [partitions[key].end_key for key in keys]
        slot.abandon = partial(purgatory.cancel, purgatory.wait(waiting, watched, self._request[_MAX_WAIT]))

    def look_again(self, waiting: WaitingFollow, is_over: bool) -> bool:
        """Reads for a request that waits, and answers it if there is enough or the wait `is_over`. Whether it did."""
        frame, session = waiting.frame, waiting.session
        changed = -1
        is_plain = session.epoch == waiting.epoch and self._may_follow(waiting._connection)
        if is_plain and self._begin(frame, 0, len(frame)) >= 0:
            changed = self._read_session(session, False)
        if changed < 0:
            self._forget()
            return waiting.go_the_general_way(self._services, is_over)
        self._count_sent()
        is_answered = is_over or self._is_enough()
        size = self._write(session, changed, 0) if is_answered else 0
        self._forget()
        if is_answered:
            waiting.answer(self.take(size))
        return is_answered

    # -- answers

    def _write(self, session: FetchSession, changed: int, at: int) -> int:
        """Writes the answer, and notes it in the session. Returns its end."""
        request, out, asked, found = self._request, self.out, self._asked, self._found
        request[_COMMITTED] = 1  # the answer to a follower has an array of aborted transactions, which is empty
        topics, number = 0, 0
        while number < changed:
            if self._is_first_of_topic(number):
                topics += 1
            number += 1
        pos = begin_fetch_answer(request, session.id, topics, out, at)
        first = file_bytes = 0
        while first < changed:
            if self._is_first_of_topic(first):
                topic_id = asked[first][0][0]
                of_topic, number = 0, first
                while number < changed:
                    if asked[number][0][0] == topic_id:
                        of_topic += 1
                    number += 1
                pos = put_topic(request, topic_id, 0, _ID_BYTES, of_topic, out, pos)
                number = first
                while number < changed:
                    if asked[number][0][0] == topic_id:
                        row = number * _FOUND_FIELDS
                        size = found[row + _FOUND_SIZE]
                        pos = put_partition(
                            request, found[row + _FOUND_INDEX], found[row + _FOUND_HIGH], found[row + _FOUND_STABLE],
                            found[row + _FOUND_START], size, out, pos,
                        )  # fmt: skip
                        if size:
                            read = self._put_records(asked[number][2], asked[number][3], pos)
                            file_bytes += size - read
                            pos += read
                        pos = end_topic(request, out, pos)  # the tags of a partition
                    number += 1
                pos = end_topic(request, out, pos)
            first += 1
        pos = end_topic(request, out, pos)
        end_fetch_answer(pos - at - 4 + file_bytes, out, at)
        number = 0
        while number < changed:
            asked_of = asked[number]
            row = number * _FOUND_FIELDS
            session.note(
                asked_of[0], asked_of[1], found[row + _FOUND_HIGH], found[row + _FOUND_START],
                found[row + _FOUND_SIZE] > 0,
            )  # fmt: skip
            number += 1
        return pos

    def _is_first_of_topic(self, number: int) -> bool:
        """Whether no changed partition before this one has the same topic."""
        topic_id, before = self._asked[number][0][0], 0
        while before < number:
            if self._asked[before][0][0] == topic_id:
                return False
            before += 1
        return True

    def _put_records(self, range_: SegmentRange, size_so_far: int, pos: int) -> int:
        """Writes few records to `out[pos:]` and returns their size. Others are sent apart: 0. See `small_reads`."""
        file, position, size = range_[0], range_[1], range_[2]
        chunk: Any = range_
        if size_so_far <= _READ_MAX:
            if pos + size + _ANSWER_BYTES <= len(self.out):
                if _read_cached(plain_fd_of(file), self.out, pos, size, position) == size:
                    return size
            else:
                chunk = read_if_cached(range_) or range_
        self.cuts[len(self.files)] = pos
        self.files.append(chunk)
        return 0


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


def _bytes(buf: Buffer, start: int, end: int) -> bytes:
    if cython.compiled:
        found: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, cython.address(buf[start])), end - start)
        return found
    return bytes(buf[start:end])
