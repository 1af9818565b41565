# The C types of index_columns.py's names; index_columns.py itself stays plain Python.
cimport cython
from cpython.array cimport array
from libc.stdint cimport int64_t

from headrace.octets cimport Out, put32, put64

cdef Py_ssize_t _WRITE_BYTES, _VALUE_BYTES
cdef int64_t _INT32_MAX

cdef class IndexColumns:
    cdef public int64_t base_offset, entries_max
    cdef readonly object entry, key_type
    cdef public array keys, values
    cdef public bytearray unwritten
    cdef bint _has_wide_keys

    @cython.locals(keys=array, values=array, unwritten=bytearray, count=Py_ssize_t, size=Py_ssize_t, end=Py_ssize_t, out=Out,
        last=int64_t)
    cdef bint put_entry(self, int64_t key, int64_t value) except -1

    cpdef own(self)
