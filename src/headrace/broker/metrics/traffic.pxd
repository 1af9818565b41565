# The C types of traffic.py's names; traffic.py itself stays plain Python.
from libc.stdint cimport int64_t

cdef class Traffic:
    cdef public int64_t bytes_in, bytes_out, failed_fetches, failed_produces, fetch_conversions, fetches, messages_in
    cdef public int64_t produce_conversions, produces

    cpdef appended(self, int64_t messages, int64_t size)
