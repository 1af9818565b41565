# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""What the shortest ways of consumers' and followers' fetches have in common: the request in arrays of integers, the
session that it goes on with, and the answer.

    _request, _rows   the request's fields, and those of its partitions     `protocol.plain_fetch`
    _found            for each partition to answer with: index | high watermark | last stable offset | log start offset
                      | size of the records
    _asked            of a session, the same ones: (key, partition of the session, range of a file or None, …)
    _read             all that was read

Compiled; it also runs uncompiled.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from headrace.broker.fetch.waiting_fetch import FetchShortcut
from headrace.log.plain_read import PLACE_FIELDS
from headrace.log.segment_list import SegmentRange
from headrace.protocol.plain_fetch import (
    PARTITIONS_MAX,
    REQUEST_FIELDS,
    ROW_FIELDS,
    begin_fetch_answer,
    end_fetch_answer,
    end_topic,
    put_partition,
    put_topic,
)

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if not cython.compiled:
    from headrace.octets import bytes_at, text_at

if TYPE_CHECKING:
    from headrace.broker.fetch.fetch_sessions import FetchSession
    from headrace.broker.partitions.partition import Partition
    from headrace.broker.services import Services
    from headrace.network.connection import Connection
    from headrace.network.request_times import RequestTimes
    from headrace.octets import Buffer

SESSION_PARTITIONS_MAX = 1_000
"""A session of more partitions is read by the general way, which lets other requests have their turn."""

FOUND_FIELDS = 5

_MIN_BYTES, _MAX_BYTES, _SESSION_ID, _SESSION_EPOCH = 3, 4, 6, 7
_TOPIC_AT, _TOPIC_END, _INDEX, _LEADER_EPOCH, _OFFSET, _LAST_EPOCH, _LOG_START, _PARTITION_MAX = range(8)
_ROW_FIELDS, _SESSION_MAX = ROW_FIELDS, SESSION_PARTITIONS_MAX
_FOUND_FIELDS, _FOUND_INDEX, _FOUND_HIGH, _FOUND_STABLE, _FOUND_START, _FOUND_SIZE = FOUND_FIELDS, 0, 1, 2, 3, 4
_IDS_FROM = 13


class PlainSessionFetch(FetchShortcut):
    """The shortest way of fetches in sessions."""

    __slots__ = (
        "_apart_bytes", "_asked", "_found", "_partitions", "_place", "_read", "_remaining", "_request", "_rows",
        "_sessions", "_size", "_version",
    )  # fmt: skip

    def __init__(self, services: Services, times: RequestTimes) -> None:
        """`times`: of all fetches."""
        super().__init__(services, times)
        self._sessions = services.fetch_sessions
        self._partitions = services.replicas.partitions
        self._request = memoryview(array("q", bytes(8 * REQUEST_FIELDS)))
        self._rows = memoryview(array("q", bytes(8 * ROW_FIELDS * PARTITIONS_MAX)))
        self._place = memoryview(array("q", bytes(8 * PLACE_FIELDS)))
        self._found = memoryview(array("q", bytes(8 * FOUND_FIELDS * PARTITIONS_MAX)))
        self._asked: list[Any] = []
        self._read: list[tuple[Partition, SegmentRange | None]] = []  # in the order in which they were read
        self._remaining = self._size = self._version = self._apart_bytes = 0

    def _begin_to_read(self, version: int) -> None:
        """Nothing is read yet, and the request's limits allow all."""
        self._version = version
        self._forget()
        self._size = 0
        self._remaining = min(self._request[_MAX_BYTES], self._services.config.fetch_max_bytes)

    def _forget(self) -> None:
        self._asked.clear()
        self._read.clear()

    def _is_enough(self) -> bool:
        """See `Fetch`."""
        return self._size >= self._request[_MIN_BYTES] or self._remaining <= 0

    # -- the session

    def _session_of(self, connection: Connection, octets: Buffer, count: int, is_follower: bool) -> FetchSession | None:
        """The session of a request, which has its partitions and notes what is asked of them. None if the general way
        has to find it."""
        request, rows = self._request, self._rows
        session: FetchSession | None = self._sessions.get(request[_SESSION_ID])
        if session is None or session.epoch != request[_SESSION_EPOCH] or session.principal != connection.principal:
            return None
        if not session.partitions:  # it ends with this request
            return None
        is_by_id = self._version >= _IDS_FROM
        if session.is_follower != is_follower or session.by_id != is_by_id or len(session.partitions) > _SESSION_MAX:
            return None
        number, row = 0, 0
        topic: str | bytes = ""
        while number < count:
            if not number or rows[row + _TOPIC_AT] != rows[row - _ROW_FIELDS + _TOPIC_AT]:
                start, end = rows[row + _TOPIC_AT], rows[row + _TOPIC_END]
                topic = bytes_at(octets, start, end) if is_by_id else text_at(octets, start, end)
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

    # -- the answer

    def _write_of_session(self, session: FetchSession, changed: int, at: int) -> int:
        """Writes the answer with the partitions in `_asked`, and notes it in the session. Returns its end."""
        request, out, asked, found = self._request, self.out, self._asked, self._found
        topics, number = 0, 0
        while number < changed:
            if self._is_first_of_topic(number):
                topics += 1
            number += 1
        pos = begin_fetch_answer(request, session.id, topics, out, at)
        first = self._apart_bytes = 0
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
                        pos = self._put_partition(number, asked[number][2], pos)
                    number += 1
                pos = end_topic(request, out, pos)
            first += 1
        pos = self._end_answer(at, pos)
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
        topic, before = self._asked[number][0][0], 0
        while before < number:
            if self._asked[before][0][0] == topic:
                return False
            before += 1
        return True

    def _put_partition(self, number: int, range_: SegmentRange | None, pos: int) -> int:
        """Writes a partition with its records; returns the position behind it."""
        request, out, found, at = self._request, self.out, self._found, number * _FOUND_FIELDS
        size = found[at + _FOUND_SIZE]
        pos = put_partition(
            request, found[at + _FOUND_INDEX], found[at + _FOUND_HIGH], found[at + _FOUND_STABLE],
            found[at + _FOUND_START], size, out, pos,
        )  # fmt: skip
        if range_ is not None:
            written = self._put_records(number, range_, pos)
            self._apart_bytes += size - written
            pos += written
        return end_topic(request, out, pos)  # the tags of a partition

    def _put_records(self, number: int, range_: SegmentRange, pos: int) -> int:
        """Writes records to `out[pos:]` and returns their size; 0 if they are sent apart, from their file."""
        return self._put_apart(range_, pos)

    def _put_apart(self, chunk: bytes | SegmentRange, pos: int) -> int:
        self.cuts[len(self.files)] = pos
        self.files.append(chunk)
        return 0

    def _end_answer(self, at: int, pos: int) -> int:
        """Ends the answer from `at` to `pos`; returns its end."""
        pos = end_topic(self._request, self.out, pos)
        end_fetch_answer(pos - at - 4 + self._apart_bytes, self.out, at)
        return pos
