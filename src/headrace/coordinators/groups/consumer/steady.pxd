# The C types of steady.py's names; steady.py itself stays plain Python.
from libc.stdint cimport int64_t

cdef int64_t _JOINING
cdef object _STABLE, _SESSION

cdef class SteadyHeartbeats:
    cdef object _groups

    cpdef keep_alive(
        self, group, member_id, int64_t epoch, instance_id, client_id, client_host, int64_t now_ms)

cpdef steady_member(group, member_id, int64_t epoch, instance_id, client_id, client_host, int64_t now_ms)
cpdef interval_ms(groups, group, member, int64_t now_ms)
