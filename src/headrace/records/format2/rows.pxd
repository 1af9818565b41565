# The C types of rows.py's names; rows.py itself stays plain Python.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef int64_t _INT64_MAX, _RECORD_BYTES_MAX

cdef class RowBuffer:
    cdef public bytearray data
    cdef readonly Py_ssize_t end
    cdef readonly Py_ssize_t count
    cdef readonly list timestamps_ms
    cdef readonly int64_t max_timestamp
    cdef int64_t _base_timestamp, _last_ms
    cdef object _last

    @cython.locals(
        key_length=int64_t, value_length=int64_t, tail=bytes, size=int64_t, needed=Py_ssize_t, pos=Py_ssize_t)
    cpdef append(self, object key, object value, int64_t timestamp_ms, object headers)

cdef inline bytes _as_bytes(object given)

cdef inline bint _difference_overflows(int64_t one, int64_t other) noexcept

@cython.locals(folded=uint64_t, size=int64_t)
cdef inline int64_t _varint_size(int64_t value) noexcept

@cython.locals(folded=uint64_t)
cdef inline Py_ssize_t _put_varint(bytearray out, Py_ssize_t pos, int64_t value)

@cython.locals(target=cython.p_char, source=cython.p_char)
cdef inline Py_ssize_t _put_bytes(bytearray out, Py_ssize_t pos, bytes given, Py_ssize_t length)

@cython.locals(
    found=list, row=Py_ssize_t, count=int64_t, is_plain=bint, partition_number=object, offset=object,
    timestamp_ms=object, timestamp_type=object, key=object, value=object, headers=object, made=object)
cpdef list take(
    object kind, object topic, object partition, const uint8_t[::1] data, const int32_t[::1] spans,
    const int64_t[::1] offsets, const int64_t[::1] timestamps_ms, const uint8_t[::1] timestamp_types,
    Py_ssize_t start, Py_ssize_t stop, object headers_of)

cdef inline object _part(const uint8_t[::1] data, Py_ssize_t start, int64_t length)
