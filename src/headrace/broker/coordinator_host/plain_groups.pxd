# The C types of plain_groups.py's names; plain_groups.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.broker.metrics.traffic cimport Traffic
from headrace.coordinators.groups.offset_batch cimport write_offset_batch
from headrace.log.append_state cimport LogEnd
from headrace.network.connection cimport Connection, Shortcut
from headrace.octets cimport bytes_at, text_at
from headrace.protocol.plain_groups cimport (
    commit_answer_bytes, consumer_heartbeat_answer_bytes, read_plain_commit, read_plain_consumer_heartbeat,
    read_plain_heartbeat, read_plain_share_heartbeat, write_commit_answer, write_consumer_heartbeat_answer,
    write_heartbeat_answer)
from headrace.replication.replica_offsets cimport ReplicaOffsets

cdef int _HEARTBEAT, _CONSUMER_HEARTBEAT, _SHARE_HEARTBEAT, _COMMIT, _SHARE_MEMBER_BYTES_MAX
cdef int _VERSION, _CLIENT, _GROUP, _EPOCH, _MEMBER, _INSTANCE
cdef int _TOPIC_AT, _TOPIC_END, _OF_TOPIC, _INDEX, _OFFSET, _LEADER_EPOCH, _METADATA_AT, _METADATA_END
cdef int _ROW_FIELDS, _IDS_FROM, _WAITS
cdef object _UNLIMITED

cdef class PlainGroups(Shortcut):
    cdef object _services, _admission, _throttling, _heartbeats, _consumer_heartbeats, _share_heartbeats, _commits
    cdef object _times, _coordinator, _runtime, _steady
    cdef readonly object queues
    cdef double _wait_s
    cdef int64_t _metadata_bytes_max
    cdef int64_t[::1] _request, _rows
    cdef uint8_t[::1] _batch
    cdef list _keys, _names
    cdef public int64_t taken, waited

    cpdef timed(self, Connection connection)

    cpdef Py_ssize_t answer(
        self, Connection connection, uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, Py_ssize_t at) except -1

    cpdef Py_ssize_t offer(self, connection, const uint8_t[::1] frame) except -1

    @cython.locals(key=int)
    cdef Py_ssize_t _answer(
        self, connection, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, Py_ssize_t at) except -1

    @cython.locals(request=int64_t[::1])
    cdef Py_ssize_t _heartbeat(
        self, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, Py_ssize_t at) except -1

    @cython.locals(request=int64_t[::1], interval_ms=int64_t)
    cdef Py_ssize_t _consumer_heartbeat(
        self, connection, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end,
        Py_ssize_t at) except -1

    @cython.locals(request=int64_t[::1], interval_ms=int64_t)
    cdef Py_ssize_t _share_heartbeat(
        self, connection, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end,
        Py_ssize_t at) except -1

    cdef object _nullable(self, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end)

    @cython.locals(count=int)
    cdef Py_ssize_t _commit(
        self, connection, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, Py_ssize_t at) except -1

    @cython.locals(rows=int64_t[::1], row=Py_ssize_t, number=int, name=bytes, index=object)
    cdef bint _find(self, const uint8_t[::1] octets, int count) except -1

    @cython.locals(
        request=int64_t[::1], state=ReplicaOffsets, log=LogEnd, traffic=Traffic, now_ms=int64_t, size=Py_ssize_t,
        base_offset=int64_t, answer_end=Py_ssize_t)
    cdef Py_ssize_t _commit_rows(
        self, connection, const uint8_t[::1] octets, int count, Py_ssize_t at) except -1

    cdef _wait(self, connection, partition, written, commit_to, bytes frame)

    @cython.locals(rows=int64_t[::1], row=Py_ssize_t, number=int, made=dict)
    cdef dict _offsets(self, const uint8_t[::1] octets, int count, int64_t now_ms, int64_t record_offset)

cdef bint _may_wait(state) except -1
