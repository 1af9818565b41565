# The C types of replica_offsets.py's names; replica_offsets.py itself stays plain Python.
from libc.stdint cimport int64_t

cdef class ReplicaOffsets:
    cdef public bint is_leader, commits_at_once, commits_by_fetches
    cdef public int64_t leader_epoch, log_end_offset, high_watermark

    cpdef committed_to(self, int64_t log_end_offset)
