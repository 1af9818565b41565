# The C types of plain_session.py's names; plain_session.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.broker.fetch.waiting_fetch cimport FetchShortcut
from headrace.octets cimport bytes_at, text_at
from headrace.protocol.plain_fetch cimport begin_fetch_answer, end_fetch_answer, end_topic, put_partition, put_topic

cdef int _MIN_BYTES, _MAX_BYTES, _SESSION_ID, _SESSION_EPOCH
cdef int _TOPIC_AT, _TOPIC_END, _INDEX, _LEADER_EPOCH, _OFFSET, _LAST_EPOCH, _LOG_START, _PARTITION_MAX
cdef int _ROW_FIELDS, _SESSION_MAX
cdef int _FOUND_FIELDS, _FOUND_INDEX, _FOUND_HIGH, _FOUND_STABLE, _FOUND_START, _FOUND_SIZE
cdef int _IDS_FROM

cdef class PlainSessionFetch(FetchShortcut):
    cdef object _sessions
    cdef dict _partitions
    cdef list _asked, _read
    cdef int64_t[::1] _request, _rows, _place, _found
    cdef int64_t _remaining, _size, _apart_bytes
    cdef int _version

    cdef _begin_to_read(self, int version)

    @cython.locals(
        request=int64_t[::1], rows=int64_t[::1], number=int, row=int, start=Py_ssize_t, end=Py_ssize_t, is_by_id=bint)
    cdef _session_of(self, connection, const uint8_t[::1] octets, int count, bint is_follower)

    @cython.locals(
        request=int64_t[::1], out=uint8_t[::1], asked=list, found=int64_t[::1], topics=int, number=int, pos=Py_ssize_t,
        first=int, of_topic=int, name=bytes, asked_of=tuple, row=int)
    cdef Py_ssize_t _write_of_session(self, session, int changed, Py_ssize_t at) except -1

    @cython.locals(before=int)
    cdef bint _is_first_of_topic(self, int number) except -1

    @cython.locals(request=int64_t[::1], out=uint8_t[::1], found=int64_t[::1], at=int, size=int64_t, written=int64_t)
    cdef Py_ssize_t _put_partition(self, int number, range_, Py_ssize_t pos) except -1

    cdef int64_t _put_records(self, int number, range_, Py_ssize_t pos) except -1
    cdef int64_t _put_apart(self, chunk, Py_ssize_t pos) except -1
    cdef Py_ssize_t _end_answer(self, Py_ssize_t at, Py_ssize_t pos) except -1
