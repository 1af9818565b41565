# The C types of index_columns.py's names; index_columns.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t

cdef Py_ssize_t _WRITE_BYTES

cdef class IndexColumns:
    cdef public int64_t base_offset, entries_max
    cdef readonly object entry, key_type
    cdef public object keys, values, unwritten

    @cython.locals(count=Py_ssize_t)
    cpdef bint put(self, int64_t key, int64_t value) except -1

    cpdef own(self)
