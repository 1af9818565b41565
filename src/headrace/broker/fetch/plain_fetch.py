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

from typing import TYPE_CHECKING, Any

from headrace.broker.fetch.fetch_sessions import FINAL_EPOCH
from headrace.broker.fetch.found_fields import (
    FOUND_FIELDS,
    FOUND_HIGH,
    FOUND_INDEX,
    FOUND_POSITION,
    FOUND_SIZE,
    FOUND_SOURCE,
    FOUND_STABLE,
    FOUND_START,
)
from headrace.broker.fetch.plain_session import PlainSessionFetch
from headrace.errors import KafkaError
from headrace.log.plain_read import read_plain
from headrace.metadata.model import NO_UUID
from headrace.network.connection import WAITS, Connection
from headrace.network.request_times import RequestTimes
from headrace.octets import Buffer
from headrace.protocol.plain_fetch import (
    HEAD_BYTES,
    PARTITION_BYTES,
    PARTITIONS_MAX,
    ROW_FIELDS,
    TOPIC_BYTES,
    begin_fetch_answer,
    end_topic,
    put_topic,
    read_plain_fetch,
)

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if not cython.compiled:
    from headrace.octets import bytes_at, text_at

if TYPE_CHECKING:
    from headrace.broker.fetch.fetch_sessions import FetchSession
    from headrace.broker.fetch.waiting_fetch import WaitingFetch
    from headrace.broker.partitions.partition import Partition
    from headrace.broker.services import Services

_VERSION, _MAX_WAIT, _COMMITTED, _SESSION_ID, _SESSION_EPOCH = 0, 2, 5, 6, 7
_TOPIC_AT, _TOPIC_END, _INDEX, _LEADER_EPOCH, _OFFSET, _LAST_EPOCH, _PARTITION_MAX = 0, 1, 2, 3, 4, 5, 7
_ROW_FIELDS, _ROWS_MAX = ROW_FIELDS, PARTITIONS_MAX
_ANSWER_MAX = HEAD_BYTES + 1
_ROW_ANSWER_MAX = TOPIC_BYTES + PARTITION_BYTES + 250
_PLAIN_END, _WAITS = FINAL_EPOCH, WAITS
_ZSTD_FROM, _IDS_FROM, _POSITION, _SIZE = 10, 13, 0, 1


class PlainFetches(PlainSessionFetch):
    """The plain fetches that come to a dispatcher."""

    __slots__ = ("_is_committed",)

    def __init__(self, services: Services, times: RequestTimes) -> None:
        """`times`: of all fetches."""
        super().__init__(services, times)
        self._is_committed = False

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
            session = self._session_of(connection, octets, count, False)
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
        self._count_traffic(is_answered, count)
        if not is_answered:
            self._wait_for_news(connection, octets, start, end, session)
            return _WAITS
        self.taken += 1
        return self._write(octets, count, session, at)

    def _begin(self, octets: Buffer, start: int, end: int) -> int:
        """Begins to read a request; returns the number of its partitions, or a negative one if it is not plain."""
        count = read_plain_fetch(octets, start, end, self._request, self._rows)
        self._is_committed = self._request[_COMMITTED] != 0
        self._begin_to_read(self._request[_VERSION])
        return count

    def _write_waiting(self, waiting: WaitingFetch, count: int) -> int:
        """See `FetchShortcut`."""
        return self._write(waiting.frame, count, waiting.session, 0)

    def _write(self, octets: Buffer, count: int, session: FetchSession | None, at: int) -> int:
        return self._write_alone(octets, count, at) if session is None else self._write_of_session(session, count, at)

    # -- that wait

    def _wait_for_news(
        self, connection: Connection, octets: memoryview, start: int, end: int, session: FetchSession | None
    ) -> None:
        if session is None:
            keys = tuple([replica.key for replica in self._asked])
        else:
            keys = tuple([each.key for each in session.partitions.values()])
        self._wait(self._kept(connection, octets, start, end, session, keys), keys, self._request[_MAX_WAIT])

    def _find_again(self, waiting: WaitingFetch) -> int:
        """See `FetchShortcut`."""
        if self._admission.has_rules or self._throttling.is_active:
            return -1
        session = waiting.session
        if session is None:
            return self._read_alone(waiting.frame, self._begin(waiting.frame, 0, len(waiting.frame)))
        if session.epoch != waiting.epoch:
            return -1
        self._go_on_with(waiting)
        self._is_committed = waiting.is_committed
        return self._read_session(session)

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
            return text_at(octets, start, end)
        name: str | None = self._services.metadata.snapshot.names_by_id.get(bytes_at(octets, start, end))
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
        number = row = self._apart_bytes = 0
        while number < count:
            of_topic, name_at = 1, rows[row + _TOPIC_AT]
            while number + of_topic < count and rows[row + of_topic * _ROW_FIELDS + _TOPIC_AT] == name_at:
                of_topic += 1
            pos = put_topic(request, octets, name_at, rows[row + _TOPIC_END], of_topic, out, pos)
            row += of_topic * _ROW_FIELDS
            while of_topic:
                pos = self._put_partition(number, pos)
                number += 1
                of_topic -= 1
            pos = end_topic(request, out, pos)
        return self._end_answer(at, pos)

    # -- in a session

    def _read_session(self, session: FetchSession) -> int:
        """Reads the partitions of a session; returns the number of those that have changed since its last answer, which
        are in `_asked`, with their keys. -1 if the general way has to."""
        changed = 0
        for each in session.partitions.values():
            partition: Any = self._partitions.get(each.key)
            if partition is None:
                return -1
            state, log = partition.state, partition.log
            if each.topic_id != NO_UUID and each.topic_id != partition.log.topic_id:
                return -1
            offset, leader_epoch, high_watermark = each.fetch_offset, each.leader_epoch, each.high_watermark
            if (
                offset == state.high_watermark
                and offset == high_watermark
                and log.log_start_offset == each.log_start_offset
                and state.is_leader
                and (leader_epoch < 0 or leader_epoch == state.leader_epoch)
            ):
                continue
            if changed == _ROWS_MAX or not self._read_partition(
                partition, changed, each.index, offset, leader_epoch, each.last_epoch, each.max_bytes
            ):
                return -1
            at = changed * FOUND_FIELDS
            if (
                self._found[at + FOUND_SIZE]
                or self._found[at + FOUND_HIGH] != high_watermark
                or self._found[at + FOUND_START] != each.log_start_offset
            ):
                self._asked.append(each)
                changed += 1
        return changed

    # -- each partition

    def _read_partition(
        self, partition: Any, number: int, index: int, offset: int, leader_epoch: int, last_epoch: int, max_bytes: int
    ) -> bool:
        """Reads a partition, with its results in the row of that number. False if the general way has to."""
        state, log, place, at = partition.state, partition.log, self._place, number * FOUND_FIELDS
        if not state.is_leader or last_epoch >= 0 or (leader_epoch >= 0 and leader_epoch != state.leader_epoch):
            return False
        if self._version < _ZSTD_FROM and partition.log.config.compression_type == "zstd":
            return False
        high_watermark = stable = state.high_watermark
        transactions: Any = log.producers.transactions
        if transactions._open or transactions._closed:
            stable = partition.last_stable_offset
        size, file = 0, None
        if self._remaining > 0 or self._size <= 0:
            most = max(0, min(max_bytes, self._remaining))
            end_offset = stable if self._is_committed else high_watermark
            file = read_plain(log, offset, most, end_offset, self._size == 0, place)
            if file is None:
                return False
            size = place[_SIZE]
            if size:
                self._size += size
                self._remaining -= size
            else:
                file = None
        if self._is_committed:
            active: Any = log.active
            is_none = active.txn_index.is_empty and offset >= active.base_offset
            if not is_none and self._has_aborted(partition, offset, log.log_end_offset):
                return False
        found = self._found
        found[at + FOUND_INDEX], found[at + FOUND_HIGH], found[at + FOUND_STABLE] = index, high_watermark, stable
        found[at + FOUND_START], found[at + FOUND_SIZE] = log.log_start_offset, size
        found[at + FOUND_POSITION], found[at + FOUND_SOURCE] = place[_POSITION], len(self._read)
        self._read.append(partition)
        self._sources.append(file)
        return True

    def _has_aborted(self, partition: Partition, offset: int, end_offset: int) -> bool:
        """Whether records may belong to aborted transactions; also if that cannot be read, which the general way
        tells the client."""
        try:
            return bool(partition.log.aborted_transactions(offset, end_offset))
        except (KafkaError, OSError):
            return True

    def _count_traffic(self, is_answered: bool, count: int) -> None:
        """Counts what was read, and the records if they are sent."""
        for replica in self._read:
            replica.traffic.fetches += 1
        number = row = 0
        while is_answered and number < count:
            if self._found[row + FOUND_SIZE]:
                replica = self._read[self._found[row + FOUND_SOURCE]]
                replica.traffic.bytes_out += self._found[row + FOUND_SIZE]
            number += 1
            row += FOUND_FIELDS


def _is_same_id(topic_id: bytes | None, buf: Buffer, start: int) -> bool:
    """Whether the id in a request is the log's."""
    return topic_id is not None and topic_id == bytes_at(buf, start, start + 16)
