# The C types of plain_session.py's names; plain_session.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.broker.fetch.fetch_sessions cimport FetchSession, FetchSessionCache, SessionPartition
from headrace.broker.fetch.waiting_fetch cimport FetchShortcut, WaitingFetch
from headrace.network.connection cimport Connection
from headrace.network.outbound cimport file_part
from headrace.octets cimport Octets, bytes_at, text_at
from headrace.protocol.plain_fetch cimport (
    begin_fetch_answer, end_fetch_answer, end_topic, put_known_topic, put_partition)

cdef int _VERSION, _CORRELATION, _MAX_WAIT, _MIN_BYTES, _MAX_BYTES, _COMMITTED, _SESSION_ID, _SESSION_EPOCH
cdef int _TOPIC_AT, _TOPIC_END, _INDEX, _LEADER_EPOCH, _OFFSET, _LAST_EPOCH, _LOG_START, _PARTITION_MAX
cdef int _ROW_FIELDS, _SESSION_MAX
cdef int FOUND_INDEX, FOUND_HIGH, FOUND_STABLE, FOUND_START, FOUND_POSITION, FOUND_SIZE, FOUND_SO_FAR
cdef int FOUND_SOURCE, FOUND_FD, FOUND_FIELDS
cdef int _IDS_FROM, _RECENT_MAX

cdef class PlainSessionFetch(FetchShortcut):
    cdef FetchSessionCache _sessions
    cdef dict _partitions
    cdef list _asked, _read, _sources, _recent
    cdef int64_t[::1] _request, _rows, _place, _found
    cdef int64_t _remaining, _size, _apart_bytes, _bytes_max
    cdef int _version
    cdef bint _has_wall_clock

    cdef _begin_to_read(self, int version)

    @cython.locals(request=int64_t[::1], waiting=WaitingFetch)
    cdef WaitingFetch _kept(
        self, connection, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, FetchSession session, keys)

    @cython.locals(request=int64_t[::1])
    cdef _go_on_with(self, WaitingFetch waiting)

    @cython.locals(now_ms=int64_t)
    cdef int64_t _clock_ms(self) except? -1

    @cython.locals(
        request=int64_t[::1], rows=int64_t[::1], number=int, row=int, start=Py_ssize_t, end=Py_ssize_t, is_by_id=bint,
        session=FetchSession, named=list, each=SessionPartition, own=Connection, principal=str)
    cdef FetchSession _session_of(self, connection, const uint8_t[::1] octets, int count, bint is_follower)

    @cython.locals(session=FetchSession, found=FetchSession)
    cdef FetchSession _session_with(self, int64_t session_id)

    @cython.locals(
        request=int64_t[::1], out=uint8_t[::1], asked=list, found=int64_t[::1], topics=int, number=int, pos=Py_ssize_t,
        first=int, of_topic=int, name=bytes, row=int)
    cdef Py_ssize_t _write_of_session(self, FetchSession session, int changed, Py_ssize_t at) except -1

    @cython.locals(before=int, name=bytes)
    cdef bint _is_first_of_topic(self, FetchSession session, int number) except -1

    @cython.locals(request=int64_t[::1], out=uint8_t[::1], found=int64_t[::1], at=int, size=int64_t, written=int64_t)
    cdef Py_ssize_t _put_partition(self, int number, Py_ssize_t pos) except -1

    cdef int64_t _put_records(
        self, file, int fd, int64_t position, int64_t size, int64_t so_far, Py_ssize_t pos) except -1
    cdef int64_t _put_apart(self, file, int fd, int64_t position, int64_t size, Py_ssize_t pos) except -1
    cdef Py_ssize_t _end_answer(self, Py_ssize_t at, Py_ssize_t pos) except -1

@cython.locals(name=bytes, known=Octets, at=Py_ssize_t)
cdef bint _is_named(
    SessionPartition partition, int64_t index, Octets octets, Py_ssize_t start, Py_ssize_t end) except -1
