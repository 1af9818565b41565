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
cdef int _IDS_FROM, _ID_BYTES, _NAME_BYTES_MAX

cdef class SingleProduces(Shortcut):
    cdef object _services, _admission, _throttling, _now_ms, _times, _touch
    cdef dict _partitions, _watched
    cdef list _by_version
    cdef int64_t[::1] _request, _batch
    cdef uint8_t[::1] _out
    cdef public int64_t taken

    cpdef timed(self, Connection connection)

    @cython.locals(
        topic_at=Py_ssize_t, topic_end=Py_ssize_t, version=int, state=ReplicaOffsets, log=LogEnd, now_ms=int64_t,
        at=Py_ssize_t, to=Py_ssize_t, count=int64_t, base_offset=int64_t, checks_records=bint, traffic=Traffic, out=uint8_t[::1])
    cpdef bytes answer(self, Connection connection, uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end)

cdef inline bytes _bytes(const uint8_t[::1] buf, Py_ssize_t size)

cdef inline str _text(const uint8_t[::1] buf, Py_ssize_t start, Py_ssize_t end)
