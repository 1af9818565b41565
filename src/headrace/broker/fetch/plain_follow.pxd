# The C types of plain_follow.py's names; plain_follow.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.log.append_state cimport LogEnd
from headrace.log.plain_read cimport read_plain
from headrace.network.connection cimport Connection, Shortcut, Slot
from headrace.protocol.plain_fetch cimport (
    begin_fetch_answer, end_fetch_answer, end_topic, put_partition, put_topic, read_follower_fetch)
from headrace.replication.replica_offsets cimport ReplicaOffsets

cdef int _VERSION, _MAX_WAIT, _MIN_BYTES, _MAX_BYTES, _COMMITTED, _SESSION_ID, _SESSION_EPOCH
cdef int _REPLICA_ID, _REPLICA_EPOCH
cdef int _TOPIC_AT, _INDEX, _LEADER_EPOCH, _OFFSET, _LAST_EPOCH, _LOG_START, _PARTITION_MAX
cdef int _ROW_FIELDS, _ROWS_MAX, _SESSION_MAX
cdef int _FOUND_FIELDS, _FOUND_INDEX, _FOUND_HIGH, _FOUND_STABLE, _FOUND_START, _FOUND_SIZE
cdef int _ID_BYTES, _ROW_BYTES, _ANSWER_BYTES, _READ_MAX, _WAITS, _POSITION, _SIZE

cdef class PlainFollows(Shortcut)

cdef class WaitingFollow:
    cdef PlainFollows _follows
    cdef object _connection, _general, _keys
    cdef Slot _slot
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

cdef class PlainFollows(Shortcut):
    cdef object _services, _admission, _throttling, _sessions, _follower
    cdef dict _partitions
    cdef tuple _listeners
    cdef list _by_version, _looked, _asked, _read
    cdef int64_t[::1] _request, _rows, _place, _found
    cdef int64_t _remaining, _size, _now_ms, _broker_epoch
    cdef int _version
    cdef bint _is_alive
    cdef readonly object times
    cdef public int64_t taken, waited

    cpdef timed(self, Connection connection)

    @cython.locals(answer_end=Py_ssize_t)
    cpdef Py_ssize_t answer(
        self, Connection connection, uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, Py_ssize_t at) except -1

    @cython.locals(answer_end=Py_ssize_t)
    cpdef Py_ssize_t offer(self, connection, const uint8_t[::1] frame) except -1

    @cython.locals(request=int64_t[::1], count=int, changed=int)
    cdef Py_ssize_t _answer(
        self, connection, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, Py_ssize_t at) except -1

    cdef bint _may_follow(self, connection) except -1

    @cython.locals(request=int64_t[::1], count=int)
    cdef int _begin(self, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end) except -2

    cdef _forget(self)

    @cython.locals(request=int64_t[::1], rows=int64_t[::1], number=int, row=int, topic_id=bytes)
    cdef _session_of(self, connection, const uint8_t[::1] octets, int count)

    @cython.locals(
        changed=int, found=int64_t[::1], each_looked=tuple, state=ReplicaOffsets, end=LogEnd, is_same_start=bint,
        is_at_the_end=bint, stable=int64_t, high_watermark=int64_t, at=int)
    cdef int _read_session(self, session, bint counts) except -2

    @cython.locals(
        records=int, state=ReplicaOffsets, end=LogEnd, offset=int64_t, epoch=int64_t, latest=int64_t)
    cdef bint _look_at_all(self, session) except -1

    cdef bint _is_throttled(self, partition) except -1
    cdef bint _is_at_the_end(self, partition) except -1
    cdef bint _count(self, partition, wanted) except -1

    @cython.locals(end=LogEnd, place=int64_t[::1], most=int64_t, size=int64_t)
    cdef bint _find(self, partition, int64_t offset, int64_t max_bytes) except -1

    cdef _count_sent(self)
    cdef bint _is_enough(self) except -1
    cdef _wait(self, connection, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, session)

    @cython.locals(frame=bytes, changed=int, size=Py_ssize_t, is_answered=bint, is_plain=bint)
    cpdef bint look_again(self, WaitingFollow waiting, bint is_over) except -1

    @cython.locals(
        request=int64_t[::1], out=uint8_t[::1], asked=list, found=int64_t[::1], topics=int, number=int, pos=Py_ssize_t,
        first=int, file_bytes=int64_t, of_topic=int, topic_id=bytes, row=int, size=int64_t, read=int64_t)
    cdef Py_ssize_t _write(self, session, int changed, Py_ssize_t at) except -1

    @cython.locals(before=int)
    cdef bint _is_first_of_topic(self, int number) except -1

    @cython.locals(size=int64_t, position=int64_t)
    cdef int64_t _put_records(self, range_, int64_t size_so_far, Py_ssize_t pos) except -1

@cython.locals(got=int64_t)
cdef int64_t _read_cached(int fd, uint8_t[::1] out, Py_ssize_t pos, int64_t size, int64_t position) except -2

@cython.locals(found=bytes)
cdef inline bytes _bytes(const uint8_t[::1] buf, Py_ssize_t start, Py_ssize_t end)
