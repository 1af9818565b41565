# The C types of plain_follow.py's names; plain_follow.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.broker.fetch.fetch_sessions cimport FetchSession, SessionPartition
from headrace.broker.fetch.plain_session cimport PlainSessionFetch
from headrace.broker.fetch.waiting_fetch cimport WaitingFetch
from headrace.broker.metrics.traffic cimport Traffic
from headrace.broker.partitions.local_replica cimport LocalReplica
from headrace.log.append_state cimport LogEnd
from headrace.log.plain_read cimport read_plain
from headrace.network.connection cimport Connection
from headrace.protocol.plain_fetch cimport read_follower_fetch
from headrace.replication.replica_offsets cimport Follower, ReplicaOffsets

cdef int _VERSION, _MAX_WAIT, _COMMITTED, _SESSION_EPOCH, _REPLICA_ID, _REPLICA_EPOCH
cdef int _ROWS_MAX
cdef int FOUND_INDEX, FOUND_HIGH, FOUND_STABLE, FOUND_START, FOUND_POSITION, FOUND_SIZE, FOUND_SO_FAR
cdef int FOUND_SOURCE, FOUND_FD, FOUND_FIELDS
cdef int _ROW_BYTES, _ANSWER_BYTES, _AT_MAX, _READ_MAX, _WAITS, _POSITION, _SIZE

cdef class PlainFollows(PlainSessionFetch):
    cdef Traffic _outgoing
    cdef tuple _listeners
    cdef object _brokers
    cdef int64_t _follower, _now_ms, _broker_epoch
    cdef bint _is_alive, _is_alone

    @cython.locals(answer_end=Py_ssize_t)
    cpdef Py_ssize_t answer(
        self, Connection connection, uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, Py_ssize_t at) except -1

    @cython.locals(answer_end=Py_ssize_t)
    cpdef Py_ssize_t offer(self, connection, const uint8_t[::1] frame) except -1

    @cython.locals(request=int64_t[::1], count=int, changed=int, session=FetchSession)
    cdef Py_ssize_t _answer(
        self, connection, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, Py_ssize_t at) except -1

    cpdef _metadata_changed(self, delta)

    @cython.locals(own=Connection, listener=str)
    cdef bint _may_follow(self, connection) except -1

    @cython.locals(request=int64_t[::1], count=int)
    cdef int _begin(self, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end) except -2

    @cython.locals(
        changed=int, found=int64_t[::1], each=SessionPartition, replica=LocalReplica, state=ReplicaOffsets, end=LogEnd,
        stable=int64_t, high_watermark=int64_t, at=int, progress=Follower, is_known=bint)
    cdef int _read_session(self, FetchSession session, bint counts) except -2

    @cython.locals(
        each=SessionPartition, replica=LocalReplica, state=ReplicaOffsets, end=LogEnd, progress=Follower, offset=int64_t,
        epoch=int64_t, latest=int64_t)
    cdef bint _look_at_all(self, FetchSession session) except -1

    @cython.locals(replica=LocalReplica)
    cdef bint _is_found(self, SessionPartition each) except -1

    cdef bint _find(self, SessionPartition each) except -1
    cdef bint _is_throttled(self, LocalReplica replica) except -1

    @cython.locals(moved=int)
    cdef bint _count(self, SessionPartition each, LocalReplica replica) except -1

    cdef bint _count_another(self, SessionPartition each, LocalReplica replica) except -1

    @cython.locals(place=int64_t[::1], most=int64_t, size=int64_t)
    cdef bint _find_records(self, SessionPartition each, LogEnd end) except -1

    @cython.locals(each=SessionPartition)
    cdef _count_traffic(self, bint is_answered, int count)

    @cython.locals(waiting=WaitingFetch, each=SessionPartition)
    cdef _wait_for_records(
        self, connection, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, FetchSession session)

    @cython.locals(session=FetchSession)
    cdef int _find_again(self, WaitingFetch waiting) except -2

    cdef Py_ssize_t _write_waiting(self, WaitingFetch waiting, int count) except -1

    cdef int64_t _put_records(
        self, file, int fd, int64_t position, int64_t size, int64_t so_far, Py_ssize_t pos) except -1

cdef _find_transactions(SessionPartition each, LogEnd end)

@cython.locals(got=int64_t)
cdef int64_t _read_cached(int fd, uint8_t[::1] out, Py_ssize_t pos, int64_t size, int64_t position) except -2
