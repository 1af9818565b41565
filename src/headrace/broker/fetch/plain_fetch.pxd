# The C types of plain_fetch.py's names; plain_fetch.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.broker.metrics.traffic cimport Traffic
from headrace.log.append_state cimport LogEnd
from headrace.log.plain_read cimport read_plain
from headrace.network.connection cimport Connection, Shortcut, Slot
from headrace.protocol.plain_fetch cimport (
    begin_fetch_answer, end_fetch_answer, end_topic, put_partition, put_topic, read_plain_fetch)
from headrace.replication.replica_offsets cimport ReplicaOffsets

cdef int _VERSION, _MAX_WAIT, _MIN_BYTES, _MAX_BYTES, _COMMITTED, _SESSION_ID, _SESSION_EPOCH
cdef int _TOPIC_AT, _TOPIC_END, _INDEX, _LEADER_EPOCH, _OFFSET, _LAST_EPOCH, _LOG_START, _PARTITION_MAX
cdef int _ROW_FIELDS, _ROWS_MAX, _SESSION_MAX
cdef int _FOUND_FIELDS, _FOUND_INDEX, _FOUND_HIGH, _FOUND_STABLE, _FOUND_START, _FOUND_SIZE
cdef int _ANSWER_MAX, _ROW_ANSWER_MAX, _PLAIN_END, _WAITS, _ZSTD_FROM, _IDS_FROM, _POSITION, _SIZE

cdef class PlainFetches(Shortcut)

cdef class WaitingFetch:
    cdef PlainFetches _fetches
    cdef Connection _connection
    cdef Slot _slot
    cdef object _general
    cdef tuple _keys
    cdef readonly bytes frame
    cdef readonly object session, times, api_key
    cdef readonly int64_t epoch, received_ns, started_ns, handed_over_ns, answered_ns

    cpdef bint try_complete(self) except -1
    cpdef expire(self)
    cdef bint _look_again(self, bint is_over) except -1

    @cython.locals(slot=Slot)
    cpdef bint go_the_general_way(self, services, bint is_over) except -1

    cdef bint _ask_general(self, fetch, bint is_over) except -1

    @cython.locals(slot=Slot)
    cpdef answer(self, list chunks)

cdef class PlainFetches(Shortcut):
    cdef object _services, _admission, _throttling, _sessions
    cdef dict _partitions
    cdef list _by_version, _asked, _read
    cdef int64_t[::1] _request, _rows, _place, _found
    cdef int64_t _remaining, _size
    cdef int _version
    cdef bint _is_committed
    cdef readonly object times
    cdef public int64_t taken, waited

    cpdef timed(self, Connection connection)

    @cython.locals(answer_end=Py_ssize_t)
    cpdef Py_ssize_t answer(
        self, Connection connection, uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, Py_ssize_t at) except -1

    @cython.locals(request=int64_t[::1], count=int, is_answered=bint)
    cdef Py_ssize_t _answer(
        self, Connection connection, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end,
        Py_ssize_t at) except -1

    cdef _forget(self)

    @cython.locals(count=int)
    cdef int _begin(self, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end) except -2

    cdef Py_ssize_t _write(self, const uint8_t[::1] octets, int count, session, Py_ssize_t at) except -1

    @cython.locals(slot=Slot)
    cdef _wait(self, Connection connection, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, session)

    @cython.locals(frame=bytes, count=int, size=Py_ssize_t, is_answered=bint)
    cpdef bint look_again(self, WaitingFetch waiting, bint is_over) except -1

    @cython.locals(rows=int64_t[::1], number=int, row=int)
    cdef int _read_alone(self, const uint8_t[::1] octets, int count) except -2

    cdef _name_of(self, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end)

    @cython.locals(
        request=int64_t[::1], rows=int64_t[::1], out=uint8_t[::1], topics=int, number=int, row=int, pos=Py_ssize_t,
        file_bytes=int64_t, of_topic=int, name_at=int64_t)
    cdef Py_ssize_t _write_alone(self, const uint8_t[::1] octets, int count, Py_ssize_t at) except -1

    @cython.locals(
        request=int64_t[::1], rows=int64_t[::1], number=int, row=int, start=Py_ssize_t, end=Py_ssize_t, is_by_id=bint)
    cdef _session_of(self, Connection connection, const uint8_t[::1] octets, int count)

    @cython.locals(
        changed=int, state=ReplicaOffsets, log=LogEnd, offset=int64_t, leader_epoch=int64_t, high_watermark=int64_t,
        at=int)
    cdef int _read_session(self, session) except -2

    @cython.locals(
        request=int64_t[::1], out=uint8_t[::1], asked=list, found=int64_t[::1], topics=int, number=int, pos=Py_ssize_t,
        first=int, file_bytes=int64_t, of_topic=int, name=bytes, row=int)
    cdef Py_ssize_t _write_of_session(self, session, int changed, Py_ssize_t at) except -1

    @cython.locals(before=int)
    cdef bint _is_first_of_topic(self, int number) except -1

    @cython.locals(
        state=ReplicaOffsets, log=LogEnd, place=int64_t[::1], at=int, high_watermark=int64_t, stable=int64_t,
        size=int64_t, most=int64_t, end_offset=int64_t, found=int64_t[::1])
    cdef bint _read_partition(
        self, partition, int number, int64_t index, int64_t offset, int64_t leader_epoch, int64_t last_epoch,
        int64_t max_bytes) except -1

    cdef bint _is_enough(self) except -1

    @cython.locals(traffic=Traffic)
    cdef _count_traffic(self, bint is_answered)

    @cython.locals(request=int64_t[::1], out=uint8_t[::1], found=int64_t[::1], at=int)
    cdef Py_ssize_t _put_partition(self, int number, range_, Py_ssize_t pos) except -1

cdef bint _is_same_id(topic_id, const uint8_t[::1] buf, Py_ssize_t start) except -1

@cython.locals(found=bytes)
cdef inline bytes _bytes(const uint8_t[::1] buf, Py_ssize_t start, Py_ssize_t end)

cdef inline str _text(const uint8_t[::1] buf, Py_ssize_t start, Py_ssize_t end)
