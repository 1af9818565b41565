# The C types of plain_produce.py's names; plain_produce.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

cdef int _LOG_START_FROM, _MESSAGES_FROM, _FLEXIBLE_FROM, _IDS_FROM
cdef int _CLIENT_AT, _REQUEST_BYTES_MIN, _UUID_BYTES, _VARINT_BITS_MAX, _PARTITIONS_MAX

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

@cython.locals(value=int64_t)
cdef inline int64_t _int16(const uint8_t[::1] buf, Py_ssize_t pos) noexcept

@cython.locals(value=int64_t)
cdef inline int64_t _int32(const uint8_t[::1] buf, Py_ssize_t pos) noexcept

@cython.locals(value=int64_t, shift=int, byte=int64_t)
cdef inline (int64_t, Py_ssize_t) _compact(const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end) noexcept

cdef inline (int64_t, Py_ssize_t) _length_at(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int width) noexcept

cdef inline bint _is_ascii(const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end) noexcept

@cython.locals(end=Py_ssize_t)
cpdef read_plain_produce(frame)

@cython.locals(
    version=int, is_flexible=bint, client_end=Py_ssize_t, string_width=int, array_width=int, length=int64_t, pos=Py_ssize_t,
    start=Py_ssize_t, acks=int, timeout_ms=int, topics=int64_t, partitions=int64_t, index=int, batches=list, counts=list)
cdef _read(const uint8_t[::1] buf, frame, Py_ssize_t end)

@cython.locals(value=int64_t, out=bytearray)
cdef bytes _uvarint(int64_t value)

@cython.locals(
    version=int, is_flexible=bint, counts=list, batches=list, pieces=list, number=Py_ssize_t, partitions=Py_ssize_t,
    _=Py_ssize_t)
cpdef bytes write_plain_answer(PlainProduce request, placed)
