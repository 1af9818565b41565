# The C types of shortcut.py's names; shortcut.py itself stays plain Python.
from libc.stdint cimport uint8_t

cdef class Shortcut:
    cpdef bytes answer(self, object connection, uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end)
