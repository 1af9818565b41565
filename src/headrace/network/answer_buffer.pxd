# The C types of answer_buffer.py's names; answer_buffer.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.octets cimport bytes_at

cdef class AnswerBuffer:
    cdef readonly uint8_t[::1] out
    cdef readonly list files
    cdef readonly int64_t[::1] cuts

    cpdef share(self, AnswerBuffer other)

    @cython.locals(files=list, chunks=list, pos=Py_ssize_t, number=Py_ssize_t, cut=Py_ssize_t)
    cpdef list take(self, Py_ssize_t size)
