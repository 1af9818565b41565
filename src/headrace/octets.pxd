# The C types of octets.py's names; octets.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.octet_fields cimport int16_at, int32_at, int64_at, put16, put32, put64, uint32_at

ctypedef const uint8_t *Octets
ctypedef uint8_t *Out

cdef int _VARINT_BITS_MAX

@cython.locals(value=int64_t, shift=int, byte=int64_t)
cdef (int64_t, Py_ssize_t) length_at(Octets buf, Py_ssize_t pos, Py_ssize_t end, int width) noexcept

cdef bint is_ascii(Octets buf, Py_ssize_t pos, Py_ssize_t end) noexcept

@cython.locals(found=bytes)
cdef bytes bytes_at(const uint8_t[::1] buf, Py_ssize_t start, Py_ssize_t end)

@cython.locals(text=str)
cdef str text_at(const uint8_t[::1] buf, Py_ssize_t start, Py_ssize_t end)

cdef Py_ssize_t put_varint(Out out, Py_ssize_t pos, int64_t value) noexcept

cdef Py_ssize_t put_length(Out out, Py_ssize_t pos, int64_t value, int width) noexcept
