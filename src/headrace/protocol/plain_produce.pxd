# The C types of plain_produce.py's names; plain_produce.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.octets cimport Octets, int16_at, int32_at, is_ascii, length_at

cdef int _LOG_START_FROM, _MESSAGES_FROM, _FLEXIBLE_FROM, _IDS_FROM
cdef int _CLIENT_AT, _REQUEST_BYTES_MIN, _UUID_BYTES, _PARTITIONS_MAX

cdef class PlainBatch:
    cdef readonly object topic
    cdef readonly int index
    cdef readonly object records

cdef class PlainProduce:
    cdef object _frame
    cdef Py_ssize_t _client_end
    cdef readonly int api_version
    cdef readonly int correlation_id
    cdef readonly int acks, timeout_ms
    cdef readonly list batches
    cdef readonly list counts

    @cython.locals(each=PlainBatch)
    cpdef bint is_all_of(self, set topics) except -1

@cython.locals(end=Py_ssize_t)
cpdef read_plain_produce(frame)

@cython.locals(
    buf=Octets, version=int, is_flexible=bint, client_end=Py_ssize_t, string_width=int, array_width=int,
    length=int64_t, pos=Py_ssize_t, start=Py_ssize_t, acks=int, timeout_ms=int, topics=int64_t, partitions=int64_t,
    index=int, batches=list, counts=list)
cdef _read(const uint8_t[::1] octets, frame, Py_ssize_t end)

@cython.locals(value=int64_t, out=bytearray)
cdef bytes _uvarint(int64_t value)

@cython.locals(
    version=int, is_flexible=bint, counts=list, batches=list, pieces=list, number=Py_ssize_t, partitions=Py_ssize_t,
    _=Py_ssize_t)
cpdef bytes write_plain_answer(PlainProduce request, placed)
