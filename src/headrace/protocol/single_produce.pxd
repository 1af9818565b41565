# The C types of single_produce.py's names; single_produce.py itself stays plain Python. See kernel.pxd on `inline`.
cimport cython
from libc.stdint cimport int64_t, uint8_t

cdef int _VERSION, _CORRELATION, _ACKS, _TOPIC_AT, _TOPIC_END, _INDEX, _RECORDS_AT, _RECORDS_END
cdef int _MIN, _MAX, _LOG_START_FROM, _MESSAGES_FROM, _FLEXIBLE_FROM, _IDS_FROM
cdef int _REQUEST_BYTES_MIN, _UUID_BYTES, _VARINT_BITS_MAX

@cython.locals(value=int64_t)
cdef inline int64_t _int16(const uint8_t[::1] buf, Py_ssize_t pos) noexcept

@cython.locals(first=int64_t, value=int64_t)
cdef inline int64_t _int32(const uint8_t[::1] buf, Py_ssize_t pos) noexcept

@cython.locals(value=int64_t, shift=int, byte=int64_t)
cdef inline (int64_t, Py_ssize_t) _length_at(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int width) noexcept

cdef inline bint _is_ascii(const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end) noexcept

@cython.locals(
    version=int, is_flexible=bint, string_width=int, array_width=int, length=int64_t, start=Py_ssize_t, acks=int,
    topics=int64_t, partitions=int64_t)
cpdef bint read_single_produce(const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t[::1] found) noexcept

cdef inline Py_ssize_t _put16(uint8_t[::1] out, Py_ssize_t pos, int64_t value) noexcept

cdef inline Py_ssize_t _put32(uint8_t[::1] out, Py_ssize_t pos, int64_t value) noexcept

cdef inline Py_ssize_t _put64(uint8_t[::1] out, Py_ssize_t pos, int64_t value) noexcept

@cython.locals(version=int, at=Py_ssize_t, topic_end=Py_ssize_t, length=Py_ssize_t, pos=Py_ssize_t)
cpdef Py_ssize_t write_single_answer(
    const uint8_t[::1] buf, const int64_t[::1] fields, int64_t base_offset, int64_t log_start_offset, uint8_t[::1] out,
    Py_ssize_t start=*) noexcept
