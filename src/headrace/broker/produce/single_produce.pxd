# The C types of single_produce.py's names; single_produce.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t
from headrace.broker.metrics.traffic cimport Traffic
from headrace.log.append_state cimport LogEnd
from headrace.network.connection cimport Connection, Shortcut
from headrace.protocol.single_produce cimport read_single_produce, write_single_answer
from headrace.records.format2.plain_batch cimport is_plain
from headrace.replication.replica_offsets cimport ReplicaOffsets

cdef int _VERSION, _ACKS, _TOPIC_AT, _TOPIC_END, _INDEX, _RECORDS_AT, _RECORDS_END
cdef int _COUNT, _MAX_TIMESTAMP, _PRODUCER_ID, _PRODUCER_EPOCH, _BASE_SEQUENCE
cdef int _IDS_FROM, _NAME_BYTES_MAX

cdef class SingleProduces(Shortcut):
    cdef object _services, _admission, _throttling, _now_ms, _times, _touch
    cdef bint _checks_records, _has_wall_clock
    cdef tuple _key
    cdef int64_t _index
    cdef Py_ssize_t _name_bytes
    cdef uint8_t[::1] _name
    cdef dict _partitions, _watched
    cdef list _by_version
    cdef int64_t[::1] _request, _batch
    cdef public int64_t taken

    cpdef timed(self, Connection connection)

    @cython.locals(
        key=tuple, state=ReplicaOffsets, log=LogEnd, now_ms=int64_t, from_=Py_ssize_t, to=Py_ssize_t, count=int64_t,
        base_offset=int64_t, traffic=Traffic)
    cpdef Py_ssize_t answer(
        self, Connection connection, uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, Py_ssize_t at) except -1

    @cython.locals(at=Py_ssize_t, end=Py_ssize_t, index=int64_t, size=Py_ssize_t)
    cdef tuple _key_of(self, uint8_t[::1] octets, int64_t[::1] request)

@cython.locals(pos=Py_ssize_t)
cdef inline bint _is_same(const uint8_t[::1] name, const uint8_t[::1] buf, Py_ssize_t start, Py_ssize_t size) noexcept

cdef inline str _text(const uint8_t[::1] buf, Py_ssize_t start, Py_ssize_t end)
