# The C types of plain_fetch.py's names; plain_fetch.py itself stays plain Python.
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
from headrace.octets cimport bytes_at, text_at
from headrace.protocol.plain_fetch cimport begin_fetch_answer, end_topic, put_topic, read_plain_fetch
from headrace.replication.replica_offsets cimport ReplicaOffsets

cdef int _VERSION, _MAX_WAIT, _COMMITTED, _SESSION_ID, _SESSION_EPOCH
cdef int _TOPIC_AT, _TOPIC_END, _INDEX, _LEADER_EPOCH, _OFFSET, _LAST_EPOCH, _PARTITION_MAX
cdef int _ROW_FIELDS, _ROWS_MAX
cdef int FOUND_INDEX, FOUND_HIGH, FOUND_STABLE, FOUND_START, FOUND_POSITION, FOUND_SIZE
cdef int FOUND_SOURCE, FOUND_FIELDS
cdef int _ANSWER_MAX, _ROW_ANSWER_MAX, _PLAIN_END, _WAITS, _ZSTD_FROM, _IDS_FROM, _POSITION, _SIZE

cdef class PlainFetches(PlainSessionFetch):
    cdef bint _is_committed

    @cython.locals(answer_end=Py_ssize_t)
    cpdef Py_ssize_t answer(
        self, Connection connection, uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, Py_ssize_t at) except -1

    @cython.locals(request=int64_t[::1], count=int, is_answered=bint)
    cdef Py_ssize_t _answer(
        self, Connection connection, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end,
        Py_ssize_t at) except -1

    @cython.locals(count=int)
    cdef int _begin(self, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end) except -2

    cdef Py_ssize_t _write_waiting(self, WaitingFetch waiting, int count) except -1

    cdef Py_ssize_t _write(
        self, const uint8_t[::1] octets, int count, FetchSession session, Py_ssize_t at) except -1

    @cython.locals(replica=LocalReplica, each=SessionPartition)
    cdef _wait_for_news(
        self, Connection connection, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, FetchSession session)

    @cython.locals(session=FetchSession)
    cdef int _find_again(self, WaitingFetch waiting) except -2

    @cython.locals(rows=int64_t[::1], number=int, row=int)
    cdef int _read_alone(self, const uint8_t[::1] octets, int count) except -2

    cdef _name_of(self, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end)

    @cython.locals(
        request=int64_t[::1], rows=int64_t[::1], out=uint8_t[::1], topics=int, number=int, row=int, pos=Py_ssize_t,
        of_topic=int, name_at=int64_t)
    cdef Py_ssize_t _write_alone(self, const uint8_t[::1] octets, int count, Py_ssize_t at) except -1

    @cython.locals(
        changed=int, each=SessionPartition, partition=LocalReplica, state=ReplicaOffsets, log=LogEnd, offset=int64_t,
        leader_epoch=int64_t, high_watermark=int64_t, at=int)
    cdef int _read_session(self, FetchSession session) except -2

    @cython.locals(
        state=ReplicaOffsets, log=LogEnd, place=int64_t[::1], at=int, high_watermark=int64_t, stable=int64_t,
        size=int64_t, most=int64_t, end_offset=int64_t, found=int64_t[::1])
    cdef bint _read_partition(
        self, LocalReplica partition, int number, int64_t index, int64_t offset, int64_t leader_epoch, int64_t last_epoch,
        int64_t max_bytes) except -1

    @cython.locals(number=int, row=int, replica=LocalReplica, traffic=Traffic)
    cdef _count_traffic(self, bint is_answered, int count)

cdef bint _is_same_id(topic_id, const uint8_t[::1] buf, Py_ssize_t start) except -1
