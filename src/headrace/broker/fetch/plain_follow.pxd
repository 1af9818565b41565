# The C types of plain_follow.py's names; plain_follow.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.broker.fetch.plain_session cimport PlainSessionFetch
from headrace.broker.fetch.waiting_fetch cimport WaitingFetch
from headrace.log.append_state cimport LogEnd
from headrace.log.plain_read cimport read_plain
from headrace.network.connection cimport Connection
from headrace.octets cimport bytes_at
from headrace.protocol.plain_fetch cimport read_follower_fetch
from headrace.replication.replica_offsets cimport ReplicaOffsets

cdef int _VERSION, _MAX_WAIT, _COMMITTED, _SESSION_EPOCH, _REPLICA_ID, _REPLICA_EPOCH
cdef int _ROWS_MAX
cdef int _FOUND_FIELDS, _FOUND_INDEX, _FOUND_HIGH, _FOUND_STABLE, _FOUND_START, _FOUND_SIZE
cdef int _ROW_BYTES, _ANSWER_BYTES, _READ_MAX, _WAITS, _POSITION, _SIZE

cdef class PlainFollows(PlainSessionFetch):
    cdef object _follower
    cdef tuple _listeners
    cdef list _looked
    cdef int64_t _now_ms, _broker_epoch
    cdef bint _is_alive

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

    cdef _wait_for_records(self, connection, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, session)

    @cython.locals(frame=bytes)
    cdef int _find_again(self, WaitingFetch waiting) except -2

    cdef Py_ssize_t _write(self, const uint8_t[::1] octets, int count, session, Py_ssize_t at) except -1

    @cython.locals(size_so_far=int64_t, size=int64_t, position=int64_t)
    cdef int64_t _put_records(self, int number, range_, Py_ssize_t pos) except -1

@cython.locals(got=int64_t)
cdef int64_t _read_cached(int fd, uint8_t[::1] out, Py_ssize_t pos, int64_t size, int64_t position) except -2
