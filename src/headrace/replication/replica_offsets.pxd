# The C types of replica_offsets.py's names; replica_offsets.py itself stays plain Python.
from libc.stdint cimport int64_t

cdef class ReplicaOffsets:
    cdef public bint is_leader, commits_at_once, commits_by_fetches
    cdef public int64_t leader_epoch, leading_since, log_end_offset, high_watermark

    cpdef committed_to(self, int64_t log_end_offset)

cdef class Follower:
    cdef public int64_t log_end_offset, log_start_offset, broker_epoch, last_caught_up_ms, last_fetch_ms
    cdef public int64_t last_fetch_leader_end, ineligible_until_ms
    cdef public bint is_eligible

    cpdef make_ineligible(self, int64_t now_ms)
    cpdef fetched(self, int64_t offset, int64_t leader_end, int64_t now_ms)
    cpdef bint is_caught_up(self, int64_t leader_end, int64_t now_ms, int64_t lag_max_ms)
