# The C types of tail_cache.py's names; tail_cache.py itself stays plain Python.
from cpython.array cimport array

cdef class TailCache:
    cdef public array offsets, positions
