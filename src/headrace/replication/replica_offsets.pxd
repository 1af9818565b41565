# The C types of replica_offsets.py's names; replica_offsets.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t

cdef class Follower

cdef class ReplicaOffsets:
    cdef public bint is_leader, commits_at_once, commits_by_fetches
    cdef public int64_t leader_epoch, leading_since, log_end_offset, high_watermark, flush_count
    cdef public int64_t flushed_offset, min_insync_replicas
    cdef readonly int64_t changes
    cdef dict _followers
    cdef object _isr_state
    cdef list _progress
    cdef int64_t _isr_size, _maximal_size

    cpdef committed_to(self, int64_t log_end_offset)
    cpdef bint on_leader_append(self, int64_t log_end_offset, int64_t now_ms) except -1

    @cython.locals(each=Follower)
    cdef _note_members(self)

    cpdef int member_fetched(
        self, Follower progress, int64_t offset, int64_t now_ms, int64_t log_start_offset, int64_t broker_epoch,
        bint may_join) except -2

    cpdef bint member_is_at_the_end(self, Follower progress, int64_t broker_epoch, int64_t now_ms) except -1

    @cython.locals(lowest=int64_t, high_watermark=int64_t, follower=Follower)
    cpdef bint advance_high_watermark(self, int64_t now_ms) except -1

    cdef int64_t _min_isr(self) except -1
    cpdef bint takes_acks_all(self) except -1
    cpdef bint is_short(self) except -1

cdef class Follower:
    cdef public int64_t log_end_offset, log_start_offset, broker_epoch, last_caught_up_ms, last_fetch_ms
    cdef public int64_t last_fetch_leader_end, ineligible_until_ms
    cdef public bint is_eligible, is_in_sync, is_awaited

    cpdef make_ineligible(self, int64_t now_ms)
    cpdef fetched(self, int64_t offset, int64_t leader_end, int64_t now_ms)
    cpdef bint is_caught_up(self, int64_t leader_end, int64_t now_ms, int64_t lag_max_ms)
