# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""The shortest way of a Fetch: a consumer's plain fetch, from its frame to its answer, at once or after a wait.

It does the work of `handlers.fetch` for the request that leaves nothing to decide:

    no rules of access, no quota                             `admission`, `throttling`
    a plain request of a consumer                            `protocol.plain_fetch`
    without a session, or the next one of a session          `fetch_sessions`
      whose partitions are known
    partitions led here, in the leader epoch of the request
    offsets in range, files that are open                    `log.plain_read`
    no aborted transaction, if it reads committed records

In any other case it returns 0, and the dispatcher takes the frame. Until then it has done nothing, or has noted in the
session what the request asks for: the general way does that again with the same result. If the case arises while the
request waits, the general way goes on from there. So the rules of refusals and of new sessions are not repeated here; a
test sends the same requests all ways. Compiled; it also runs uncompiled.
"""

from __future__ import annotations

import logging
from array import array
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from headrace.broker.fetch.fetch_sessions import FINAL_EPOCH
from headrace.broker.fetch.general_fetch import general_fetch
from headrace.errors import KafkaError
from headrace.log.plain_read import PLACE_FIELDS, read_plain
from headrace.log.segment_list import SegmentRange
from headrace.metadata.model import NO_UUID
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
    read_plain_fetch,
)

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
    from cython.cimports.cpython.unicode import PyUnicode_DecodeASCII

if TYPE_CHECKING:
    from headrace.broker.fetch.fetch import Fetch
    from headrace.broker.fetch.fetch_sessions import FetchSession
    from headrace.broker.partitions.partition import Partition
    from headrace.broker.services import Services
    from headrace.types import TopicPartition

log = logging.getLogger(__name__)

SESSION_PARTITIONS_MAX = 1_000
"""A session of more partitions is read by the general way, which lets other requests have their turn."""

_VERSION, _MAX_WAIT, _MIN_BYTES, _MAX_BYTES, _COMMITTED, _SESSION_ID, _SESSION_EPOCH = 0, 2, 3, 4, 5, 6, 7
_TOPIC_AT, _TOPIC_END, _INDEX, _LEADER_EPOCH, _OFFSET, _LAST_EPOCH, _LOG_START, _PARTITION_MAX = range(8)
_ROW_FIELDS, _ROWS_MAX, _SESSION_MAX = ROW_FIELDS, PARTITIONS_MAX, SESSION_PARTITIONS_MAX
_FOUND_FIELDS, _FOUND_INDEX, _FOUND_HIGH, _FOUND_STABLE, _FOUND_START, _FOUND_SIZE = 5, 0, 1, 2, 3, 4
_ANSWER_MAX = HEAD_BYTES + 1
_ROW_ANSWER_MAX = TOPIC_BYTES + PARTITION_BYTES + 250
_PLAIN_END, _WAITS = FINAL_EPOCH, WAITS
_ZSTD_FROM, _IDS_FROM, _POSITION, _SIZE = 10, 13, 0, 1


class WaitingFetch:
    """A plain fetch in the purgatory. It keeps its frame, and is read from there each time; when there is something
    that a plain fetch is not answered with, `fetch.Fetch` goes on in its place."""

    __slots__ = (
        "_connection", "_fetches", "_general", "_keys", "_slot", "answered_ns", "api_key", "epoch", "frame",
        "handed_over_ns", "received_ns", "session", "started_ns", "times",
    )  # fmt: skip

    def __init__(
        self,
        fetches: PlainFetches,
        connection: Connection,
        slot: Slot,
        frame: bytes,
        session: FetchSession | None,
        keys: tuple[TopicPartition, ...],
    ) -> None:
        """`keys`: of the request's partitions, or of the session's."""
        self._fetches, self._connection, self._keys = fetches, connection, keys
        self._slot: Slot | None = slot
        self._general: Fetch | None = None
        self.frame, self.session = frame, session
        self.epoch = 0 if session is None else session.epoch
        """The session's, which changes when the client sends another request before this one is answered."""
        self.times, self.api_key = fetches.times, ApiKey.FETCH
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
            return self._fetches.look_again(self, is_over)
        except Exception:  # a bug of the broker, as in `RequestContext.failed`
            self._fetches.files.clear()
            log.exception("a request failed", extra={"api": "FETCH", "peer": self._connection.peer})
            self._connection.close("an internal error")
            return True

    def go_the_general_way(self, services: Services, is_over: bool) -> bool:
        """Lets a `Fetch` go on in the place of this one. Whether it has answered."""
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
        slot, self._slot = self._slot, None  # the purgatory may keep this for a while, but not what is sent
        assert slot is not None
        self.answered_ns = monotonic_ns()
        self._connection.answer_later(slot, chunks, self)


class PlainFetches(Shortcut):
    """The plain fetches that come to a dispatcher."""

    __slots__ = (
        "_admission", "_asked", "_by_version", "_found", "_is_committed", "_partitions", "_place", "_read",
        "_remaining", "_request", "_rows", "_services", "_sessions", "_size", "_throttling", "_version", "taken",
        "times", "waited",
    )  # fmt: skip

    def __init__(self, services: Services, times: RequestTimes) -> None:
        """`times`: of all fetches."""
        super().__init__()
        self._services, self.times, self._by_version = services, times, times.by_version
        self._admission, self._throttling = services.admission, services.throttling
        self._sessions = services.fetch_sessions
        self._partitions = services.replicas.partitions
        self._request = memoryview(array("q", bytes(8 * REQUEST_FIELDS)))
        self._rows = memoryview(array("q", bytes(8 * ROW_FIELDS * PARTITIONS_MAX)))
        self._place = memoryview(array("q", bytes(8 * PLACE_FIELDS)))
        self._found = memoryview(array("q", bytes(8 * _FOUND_FIELDS * PARTITIONS_MAX)))
        self._asked: list[Any] = []  # the partitions that the request names; of a session, those to be answered
        self._read: list[tuple[Partition, SegmentRange | None]] = []  # in the order in which they were read
        self._remaining = self._size = self._version = 0
        self._is_committed = False
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
        if self._admission.has_rules or self._throttling.is_active:
            return 0
        answer_end = self._answer(connection, octets, start, end, at)
        self._forget()
        return answer_end

    def _answer(self, connection: Connection, octets: memoryview, start: int, end: int, at: int) -> int:
        request = self._request
        count, session = self._begin(octets, start, end), None
        if count < 0:
            return 0
        if request[_SESSION_EPOCH] == _PLAIN_END:
            if request[_SESSION_ID] or not count:
                return 0
            count = self._read_alone(octets, count)
        elif request[_SESSION_EPOCH] > 0:
            session = self._session_of(connection, octets, count)
            if session is None:
                return 0
            count = self._read_session(session)
        else:
            return 0
        if count < 0 or at + _ANSWER_MAX + count * _ROW_ANSWER_MAX > len(self.out):
            return 0
        self._by_version[self._version] += 1
        if session is not None:
            self._sessions.proceed(session, self._services.now_ms())
        is_answered = request[_MAX_WAIT] <= 0 or self._is_enough()
        self._count_traffic(is_answered)
        if not is_answered:
            self._wait(connection, octets, start, end, session)
            return _WAITS
        self.taken += 1
        return self._write(octets, count, session, at)

    def _begin(self, octets: Buffer, start: int, end: int) -> int:
        """Begins to read a request; returns the number of its partitions, or a negative one if it is not plain."""
        count = read_plain_fetch(octets, start, end, self._request, self._rows)
        self._version, self._is_committed = self._request[_VERSION], self._request[_COMMITTED] != 0
        self._forget()
        self._size = 0
        self._remaining = min(self._request[_MAX_BYTES], self._services.config.fetch_max_bytes)
        return count

    def _forget(self) -> None:
        """Lets go of what was read: a file of a deleted segment takes space as long as somebody has it."""
        self._asked.clear()
        self._read.clear()

    def _write(self, octets: Buffer, count: int, session: FetchSession | None, at: int) -> int:
        return self._write_alone(octets, count, at) if session is None else self._write_of_session(session, count, at)

    # -- that wait

    def _wait(
        self, connection: Connection, octets: memoryview, start: int, end: int, session: FetchSession | None
    ) -> None:
        if session is None:
            keys = tuple([each.key for each in self._asked])
        else:
            keys = tuple([each.key for each in session.partitions.values()])
        slot = connection.place()
        waiting = WaitingFetch(self, connection, slot, _bytes(octets, start, end), session, keys)
        self.waited += 1
        purgatory = self._services.purgatory
        slot.abandon = partial(purgatory.cancel, purgatory.wait(waiting, keys, self._request[_MAX_WAIT]))

    def look_again(self, waiting: WaitingFetch, is_over: bool) -> bool:
        """Reads for a request that waits, and answers it if there is enough or the wait `is_over`. Whether it did."""
        if self._admission.has_rules or self._throttling.is_active:
            return waiting.go_the_general_way(self._services, is_over)
        frame, session = waiting.frame, waiting.session
        count = self._begin(frame, 0, len(frame))
        if session is None:
            count = self._read_alone(frame, count)
        elif session.epoch == waiting.epoch:
            count = self._read_session(session)
        else:
            count = -1
        if count < 0:
            self._forget()
            return waiting.go_the_general_way(self._services, is_over)
        is_answered = is_over or self._is_enough()
        self._count_traffic(is_answered)
        size = self._write(frame, count, session, 0) if is_answered else 0
        self._forget()
        if is_answered:
            waiting.answer(self.take(size))
        return is_answered

    # -- without a session

    def _read_alone(self, octets: Buffer, count: int) -> int:
        """Reads the partitions of a request; returns their number. -1 if the general way has to."""
        rows, number, row = self._rows, 0, 0
        name = ""
        while number < count:
            if not number or rows[row + _TOPIC_AT] != rows[row - _ROW_FIELDS + _TOPIC_AT]:
                named = self._name_of(octets, rows[row + _TOPIC_AT], rows[row + _TOPIC_END])
                if named is None:
                    return -1
                name = named
            partition = self._partitions.get((name, rows[row + _INDEX]))
            if partition is None or (number and partition in self._asked):
                return -1
            if self._version >= _IDS_FROM and not _is_same_id(partition.log.topic_id, octets, rows[row + _TOPIC_AT]):
                return -1
            self._asked.append(partition)
            if not self._read_partition(
                partition, number, rows[row + _INDEX], rows[row + _OFFSET], rows[row + _LEADER_EPOCH],
                rows[row + _LAST_EPOCH], rows[row + _PARTITION_MAX],
            ):  # fmt: skip
                return -1
            number += 1
            row += _ROW_FIELDS
        return count

    def _name_of(self, octets: Buffer, start: int, end: int) -> str | None:
        """The name of a topic of the request; None if its id is not known."""
        if self._version < _IDS_FROM:
            return _text(octets, start, end)
        name: str | None = self._services.metadata.snapshot.names_by_id.get(_bytes(octets, start, end))
        return name

    def _write_alone(self, octets: Buffer, count: int, at: int) -> int:
        request, rows, out = self._request, self._rows, self.out
        topics, number, row = 0, 0, 0
        while number < count:
            if not number or rows[row + _TOPIC_AT] != rows[row - _ROW_FIELDS + _TOPIC_AT]:
                topics += 1
            number += 1
            row += _ROW_FIELDS
        pos = begin_fetch_answer(request, 0, topics, out, at)
        number = row = file_bytes = 0
        while number < count:
            of_topic, name_at = 1, rows[row + _TOPIC_AT]
            while number + of_topic < count and rows[row + of_topic * _ROW_FIELDS + _TOPIC_AT] == name_at:
                of_topic += 1
            pos = put_topic(request, octets, name_at, rows[row + _TOPIC_END], of_topic, out, pos)
            row += of_topic * _ROW_FIELDS
            while of_topic:
                file_bytes += self._found[number * _FOUND_FIELDS + _FOUND_SIZE]
                pos = self._put_partition(number, self._read[number][1], pos)
                number += 1
                of_topic -= 1
            pos = end_topic(request, out, pos)
        pos = end_topic(request, out, pos)
        end_fetch_answer(pos - at - 4 + file_bytes, out, at)
        return pos

    # -- in a session

    def _session_of(self, connection: Connection, octets: memoryview, count: int) -> FetchSession | None:
        """The session of a request, which has its partitions and notes what is asked of them. None if the general way
        has to find it."""
        request, rows = self._request, self._rows
        session: FetchSession | None = self._sessions.get(request[_SESSION_ID])
        if session is None or session.epoch != request[_SESSION_EPOCH] or session.principal != connection.principal:
            return None
        if not session.partitions:  # it ends with this request
            return None
        is_by_id = self._version >= _IDS_FROM
        if session.is_follower or session.by_id != is_by_id or len(session.partitions) > _SESSION_MAX:
            return None
        number, row = 0, 0
        topic: str | bytes = ""
        while number < count:
            if not number or rows[row + _TOPIC_AT] != rows[row - _ROW_FIELDS + _TOPIC_AT]:
                start, end = rows[row + _TOPIC_AT], rows[row + _TOPIC_END]
                topic = _bytes(octets, start, end) if is_by_id else _text(octets, start, end)
            each = session.partitions.get((topic, rows[row + _INDEX]))
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

    def _read_session(self, session: FetchSession) -> int:
        """Reads the partitions of a session; returns the number of those that have changed since its last answer, which
        are in `_asked`, with their keys. -1 if the general way has to."""
        changed = 0
        for key, each in session.partitions.items():
            partition: Any = self._partitions.get(each.key)
            if partition is None:
                return -1
            wanted, state, log = each.wanted, partition.state, partition.log
            if each.topic_id != NO_UUID and each.topic_id != partition.log.topic_id:
                return -1
            offset, leader_epoch, high_watermark = wanted.fetch_offset, wanted.current_leader_epoch, each.high_watermark
            if (
                offset == state.high_watermark
                and offset == high_watermark
                and log.log_start_offset == each.log_start_offset
                and state.is_leader
                and (leader_epoch < 0 or leader_epoch == state.leader_epoch)
            ):
                continue
            if changed == _ROWS_MAX or not self._read_partition(
                partition, changed, wanted.partition, offset, leader_epoch, wanted.last_fetched_epoch,
                wanted.partition_max_bytes,
            ):  # fmt: skip
                return -1
            at = changed * _FOUND_FIELDS
            if (
                self._found[at + _FOUND_SIZE]
                or self._found[at + _FOUND_HIGH] != high_watermark
                or self._found[at + _FOUND_START] != each.log_start_offset
            ):
                self._asked.append((key, each, self._read[len(self._read) - 1][1]))
                changed += 1
        return changed

    def _write_of_session(self, session: FetchSession, changed: int, at: int) -> int:
        request, out, asked, found = self._request, self.out, self._asked, self._found
        topics, number = 0, 0
        while number < changed:
            if self._is_first_of_topic(number):
                topics += 1
            number += 1
        pos = begin_fetch_answer(request, session.id, topics, out, at)
        first = file_bytes = 0
        while first < changed:
            if self._is_first_of_topic(first):
                topic = asked[first][0][0]
                of_topic, number = 0, first
                while number < changed:
                    if asked[number][0][0] == topic:
                        of_topic += 1
                    number += 1
                name = topic if isinstance(topic, bytes) else topic.encode()
                pos = put_topic(request, name, 0, len(name), of_topic, out, pos)
                number = first
                while number < changed:
                    if asked[number][0][0] == topic:
                        file_bytes += found[number * _FOUND_FIELDS + _FOUND_SIZE]
                        pos = self._put_partition(number, asked[number][2], pos)
                    number += 1
                pos = end_topic(request, out, pos)
            first += 1
        pos = end_topic(request, out, pos)
        end_fetch_answer(pos - at - 4 + file_bytes, out, at)
        number = 0
        while number < changed:
            key, each, _ = asked[number]
            row = number * _FOUND_FIELDS
            session.note(key, each, found[row + _FOUND_HIGH], found[row + _FOUND_START], found[row + _FOUND_SIZE] > 0)
            number += 1
        return pos

    def _is_first_of_topic(self, number: int) -> bool:
        """Whether no changed partition before this one has the same topic."""
        topic, before = self._asked[number][0][0], 0
        while before < number:
            if self._asked[before][0][0] == topic:
                return False
            before += 1
        return True

    # -- each partition

    def _read_partition(
        self, partition: Any, number: int, index: int, offset: int, leader_epoch: int, last_epoch: int, max_bytes: int
    ) -> bool:
        """Reads a partition, with its results in the row of that number. False if the general way has to."""
        state, log, place, at = partition.state, partition.log, self._place, number * _FOUND_FIELDS
        if not state.is_leader or last_epoch >= 0 or (leader_epoch >= 0 and leader_epoch != state.leader_epoch):
            return False
        if self._version < _ZSTD_FROM and partition.log.config.compression_type == "zstd":
            return False
        high_watermark = stable = state.high_watermark
        transactions: Any = log.producers.transactions
        if transactions._open or transactions._closed:
            stable = partition.last_stable_offset
        size, range_ = 0, None
        if self._remaining > 0 or self._size <= 0:
            most = max(0, min(max_bytes, self._remaining))
            end_offset = stable if self._is_committed else high_watermark
            file = read_plain(log, offset, most, end_offset, self._size == 0, place)
            if file is None:
                return False
            size = place[_SIZE]
            if size:
                range_ = tuple.__new__(SegmentRange, (file, place[_POSITION], size))
                self._size += size
                self._remaining -= size
        if self._is_committed:
            active: Any = log.active
            is_none = active.txn_index.is_empty and offset >= active.base_offset
            if not is_none and self._has_aborted(partition, offset, log.log_end_offset):
                return False
        found = self._found
        found[at + _FOUND_INDEX], found[at + _FOUND_HIGH], found[at + _FOUND_STABLE] = index, high_watermark, stable
        found[at + _FOUND_START], found[at + _FOUND_SIZE] = log.log_start_offset, size
        self._read.append((partition, range_))
        return True

    def _has_aborted(self, partition: Partition, offset: int, end_offset: int) -> bool:
        """Whether records may belong to aborted transactions; also if that cannot be read, which the general way
        tells the client."""
        try:
            return bool(partition.log.aborted_transactions(offset, end_offset))
        except (KafkaError, OSError):
            return True

    def _is_enough(self) -> bool:
        """See `Fetch`."""
        return self._size >= self._request[_MIN_BYTES] or self._remaining <= 0

    def _count_traffic(self, is_answered: bool) -> None:
        """Counts what was read, and the records if they are sent."""
        for partition, range_ in self._read:
            traffic = partition.traffic
            traffic.fetches += 1
            if is_answered and range_ is not None:
                traffic.bytes_out += range_[2]

    def _put_partition(self, number: int, range_: SegmentRange | None, pos: int) -> int:
        request, out, found, at = self._request, self.out, self._found, number * _FOUND_FIELDS
        pos = put_partition(
            request, found[at + _FOUND_INDEX], found[at + _FOUND_HIGH], found[at + _FOUND_STABLE],
            found[at + _FOUND_START], found[at + _FOUND_SIZE], out, pos,
        )  # fmt: skip
        if range_ is not None:
            self.cuts[len(self.files)] = pos
            self.files.append(range_)
        return end_topic(request, out, pos)  # the tags of a partition


def _is_same_id(topic_id: bytes | None, buf: Buffer, start: int) -> bool:
    """Whether the id in a request is the log's."""
    return topic_id is not None and topic_id == _bytes(buf, start, start + 16)


def _bytes(buf: Buffer, start: int, end: int) -> bytes:
    if cython.compiled:
        found: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, cython.address(buf[start])), end - start)
        return found
    return bytes(buf[start:end])


def _text(buf: Buffer, start: int, end: int) -> str:
    """ASCII as text."""
    if cython.compiled:
        text: str = PyUnicode_DecodeASCII(
            cython.cast(cython.p_char, cython.address(buf[start])), end - start, cython.NULL
        )
        return text
    return str(buf[start:end], "ascii")
