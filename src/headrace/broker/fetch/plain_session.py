# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""What the shortest ways of consumers' and followers' fetches have in common: the request in arrays of integers, the
session that it goes on with, and the answer.

    _request, _rows   the request's fields, and those of its partitions     `protocol.plain_fetch`
    _found            a row for each partition to answer with               `found_fields`
    _asked            the same ones: partitions of the session, or replicas
    _read, _sources   what was read: partitions of the session, or replicas; and the files

Compiled; it also runs uncompiled.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
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
from headrace.broker.fetch.waiting_fetch import FetchShortcut
from headrace.clocks import wall_clock_ms
from headrace.log.plain_read import PLACE_FIELDS
from headrace.network.connection import Connection
from headrace.network.outbound import file_part
from headrace.protocol.plain_fetch import (
    PARTITIONS_MAX,
    REQUEST_FIELDS,
    ROW_FIELDS,
    begin_fetch_answer,
    end_fetch_answer,
    end_topic,
    put_known_topic,
    put_partition,
)

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if cython.compiled:
    from cython.cimports.headrace.clock_calls import wall_ms
else:
    from headrace.octets import bytes_at, text_at

if TYPE_CHECKING:
    from headrace.broker.fetch.fetch_sessions import FetchSession, SessionPartition
    from headrace.broker.fetch.waiting_fetch import WaitingFetch
    from headrace.broker.services import Services
    from headrace.network.request_times import RequestTimes
    from headrace.octets import Buffer

SESSION_PARTITIONS_MAX = 1_000
"""A session of more partitions is read by the general way, which lets other requests have their turn."""

_VERSION, _CORRELATION, _MAX_WAIT, _MIN_BYTES, _MAX_BYTES, _COMMITTED, _SESSION_ID, _SESSION_EPOCH = range(8)
_TOPIC_AT, _TOPIC_END, _INDEX, _LEADER_EPOCH, _OFFSET, _LAST_EPOCH, _LOG_START, _PARTITION_MAX = range(8)
_ROW_FIELDS, _SESSION_MAX = ROW_FIELDS, SESSION_PARTITIONS_MAX
_IDS_FROM, _RECENT_MAX = 13, 16


class PlainSessionFetch(FetchShortcut):
    """The shortest way of fetches in sessions."""

    __slots__ = (
        "_apart_bytes", "_asked", "_bytes_max", "_found", "_has_wall_clock", "_partitions", "_place", "_read",
        "_recent", "_remaining", "_request", "_rows", "_sessions", "_size", "_sources", "_version",
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
        self._sources: list[Any] = []
        self._read: list[Any] = []  # in the order in which they were read
        self._recent: list[Any] = []  # sessions that went on lately, in the order in which they are looked for
        self._bytes_max = services.config.fetch_max_bytes
        self._has_wall_clock = services.now_ms is wall_clock_ms
        self._remaining = self._size = self._version = self._apart_bytes = 0

    def _begin_to_read(self, version: int) -> None:
        """Nothing is read yet, and the request's limits allow all."""
        self._version = version
        self._forget()
        self._size = 0
        self._remaining = min(self._request[_MAX_BYTES], self._bytes_max)

    def _kept(
        self, connection: Any, octets: Buffer, start: int, end: int, session: FetchSession | None, keys: Sequence[Any]
    ) -> WaitingFetch:
        """The request, which waits in the connection from now on. `keys`: of its partitions, without a session."""
        request = self._request
        waiting = self._placed(connection, bytes_at(octets, start, end), session, keys)
        waiting.version, waiting.correlation_id = request[_VERSION], request[_CORRELATION]
        waiting.is_committed = request[_COMMITTED] != 0
        waiting.min_bytes, waiting.max_bytes = request[_MIN_BYTES], request[_MAX_BYTES]
        return waiting

    def _go_on_with(self, waiting: WaitingFetch) -> None:
        """As `_begin_to_read`, for the request of a session that waits."""
        request = self._request
        request[_VERSION], request[_CORRELATION], request[_COMMITTED] = (
            waiting.version,
            waiting.correlation_id,
            waiting.is_committed,
        )
        request[_MIN_BYTES], request[_MAX_BYTES] = waiting.min_bytes, waiting.max_bytes
        self._begin_to_read(waiting.version)

    def _forget(self) -> None:
        if self._asked:
            self._asked.clear()
        if self._read:
            self._read.clear()
            self._sources.clear()

    def _clock_ms(self) -> int:
        now_ms: int = wall_ms() if cython.compiled and self._has_wall_clock else self._services.now_ms()
        return now_ms

    def _is_enough(self) -> bool:
        """See `Fetch`."""
        return self._size >= self._request[_MIN_BYTES] or self._remaining <= 0

    # -- the session

    def _session_of(self, connection: Any, octets: Buffer, count: int, is_follower: bool) -> FetchSession | None:
        """The session of a request, which has its partitions and notes what is asked of them. None if the general way
        has to find it."""
        request, rows = self._request, self._rows
        session = self._session_with(request[_SESSION_ID])
        if session is None or session.epoch != request[_SESSION_EPOCH]:
            return None
        if isinstance(connection, Connection):
            own = connection
            principal = own.principal
        else:
            principal = connection.principal
        if session.principal != principal:
            return None
        is_by_id = self._version >= _IDS_FROM
        if session.is_follower != is_follower or session.by_id != is_by_id:
            return None
        if not session.partitions or len(session.partitions) > _SESSION_MAX:  # it ends with this request, or is large
            return None
        named, number, row = session.named, 0, 0
        start = end = 0
        while number < count:
            start, end = rows[row + _TOPIC_AT], rows[row + _TOPIC_END]
            if number == len(named) or not _is_named(
                named[number], rows[row + _INDEX], cython.address(octets[0]) if cython.compiled else octets, start, end
            ):
                topic: str | bytes = bytes_at(octets, start, end) if is_by_id else text_at(octets, start, end)
                each = session.partitions.get((topic, rows[row + _INDEX]))
                if each is None:
                    return None
                session.name_of(each)
                if number == len(named):
                    named.append(each)
                else:
                    named[number] = each
            number += 1
            row += _ROW_FIELDS
        number = row = 0
        while number < count:
            each = named[number]
            each.fetch_offset, each.max_bytes = rows[row + _OFFSET], rows[row + _PARTITION_MAX]
            each.leader_epoch, each.last_epoch = rows[row + _LEADER_EPOCH], rows[row + _LAST_EPOCH]
            each.start_offset = rows[row + _LOG_START]
            number += 1
            row += _ROW_FIELDS
        return session

    def _session_with(self, session_id: int) -> FetchSession | None:
        """The session with this id. Those of followers, which are few, are at hand."""
        session: FetchSession
        for session in self._recent:
            if session.id == session_id and not session.is_over:
                return session
        found: FetchSession | None = self._sessions.get(session_id)
        if found is not None and found.is_follower:
            self._recent = [each for each in self._recent[:_RECENT_MAX] if not each.is_over]
            self._recent.insert(0, found)
        return found

    # -- the answer

    def _write_of_session(self, session: FetchSession, changed: int, at: int) -> int:
        """Writes the answer with the partitions in `_asked`, and notes it in the session. Returns its end."""
        request, out, asked, found = self._request, self.out, self._asked, self._found
        topics, number = 0, 0
        while number < changed:
            if self._is_first_of_topic(session, number):
                topics += 1
            number += 1
        pos = begin_fetch_answer(request, session.id, topics, out, at)
        first = self._apart_bytes = 0
        while first < changed:
            if self._is_first_of_topic(session, first):
                name = session.name_of(asked[first])
                of_topic, number = 0, first
                while number < changed:
                    if session.name_of(asked[number]) == name:
                        of_topic += 1
                    number += 1
                pos = put_known_topic(request, name, of_topic, out, pos)
                number = first
                while number < changed:
                    if session.name_of(asked[number]) == name:
                        pos = self._put_partition(number, pos)
                    number += 1
                pos = end_topic(request, out, pos)
            first += 1
        pos = self._end_answer(at, pos)
        number = row = 0
        while number < changed:
            session.note(asked[number], found[row + FOUND_HIGH], found[row + FOUND_START], found[row + FOUND_SIZE] > 0)
            number += 1
            row += FOUND_FIELDS
        return pos

    def _is_first_of_topic(self, session: FetchSession, number: int) -> bool:
        """Whether no changed partition before this one has the same topic."""
        before = 0
        if number:
            name = session.name_of(self._asked[number])
            while before < number:
                if session.name_of(self._asked[before]) == name:
                    return False
                before += 1
        return True

    def _put_partition(self, number: int, pos: int) -> int:
        """Writes a partition with its records; returns the position behind it."""
        request, out, found, at = self._request, self.out, self._found, number * FOUND_FIELDS
        size = found[at + FOUND_SIZE]
        pos = put_partition(
            request, found[at + FOUND_INDEX], found[at + FOUND_HIGH], found[at + FOUND_STABLE],
            found[at + FOUND_START], size, out, pos,
        )  # fmt: skip
        if size:
            written = self._put_records(
                self._sources[found[at + FOUND_SOURCE]],
                found[at + FOUND_FD],
                found[at + FOUND_POSITION],
                size,
                found[at + FOUND_SO_FAR],
                pos,
            )
            self._apart_bytes += size - written
            pos += written
        return end_topic(request, out, pos)  # the tags of a partition

    def _put_records(self, file: Any, fd: int, position: int, size: int, so_far: int, pos: int) -> int:
        """Writes records to `out[pos:]` and returns their size; 0 if they are sent apart, from their file.

        `so_far`: the size of all up to these."""
        return self._put_apart(file, fd, position, size, pos)

    def _put_apart(self, file: Any, fd: int, position: int, size: int, pos: int) -> int:
        self.cuts[len(self.files)] = pos
        self.files.append(file_part(file, fd, position, size))
        return 0

    def _end_answer(self, at: int, pos: int) -> int:
        """Ends the answer from `at` to `pos`; returns its end."""
        pos = end_topic(self._request, self.out, pos)
        end_fetch_answer(pos - at - 4 + self._apart_bytes, self.out, at)
        return pos


def _is_named(partition: SessionPartition, index: int, octets: Buffer, start: int, end: int) -> bool:
    """Whether `octets[start:end]` and `index` name this partition of a session."""
    name: Any = partition.name
    known, at = name, 0
    if partition.index != index or len(name) != end - start:
        return False
    while start < end:
        if octets[start] != known[at]:
            return False
        start += 1
        at += 1
    return True
