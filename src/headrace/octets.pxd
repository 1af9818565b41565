# The C types of octets.py's names; octets.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

ctypedef const uint8_t *Octets
ctypedef uint8_t *Out

cdef int _VARINT_BITS_MAX

@cython.locals(value=int64_t)
cdef int64_t int16_at(Octets buf, Py_ssize_t pos) noexcept

@cython.locals(first=int64_t)
cdef int64_t uint32_at(Octets buf, Py_ssize_t pos) noexcept

@cython.locals(value=int64_t)
cdef int64_t int32_at(Octets buf, Py_ssize_t pos) noexcept

cdef int64_t int64_at(Octets buf, Py_ssize_t pos) noexcept

@cython.locals(value=int64_t, shift=int, byte=int64_t)
cdef (int64_t, Py_ssize_t) length_at(Octets buf, Py_ssize_t pos, Py_ssize_t end, int width) noexcept

cdef bint is_ascii(Octets buf, Py_ssize_t pos, Py_ssize_t end) noexcept

@cython.locals(found=bytes)
cdef bytes bytes_at(const uint8_t[::1] buf, Py_ssize_t start, Py_ssize_t end)

@cython.locals(text=str)
cdef str text_at(const uint8_t[::1] buf, Py_ssize_t start, Py_ssize_t end)

cdef Py_ssize_t put16(Out out, Py_ssize_t pos, int64_t value) noexcept

cdef Py_ssize_t put32(Out out, Py_ssize_t pos, int64_t value) noexcept

cdef Py_ssize_t put64(Out out, Py_ssize_t pos, int64_t value) noexcept

cdef Py_ssize_t put_varint(Out out, Py_ssize_t pos, int64_t value) noexcept

cdef Py_ssize_t put_length(Out out, Py_ssize_t pos, int64_t value, int width) noexcept
