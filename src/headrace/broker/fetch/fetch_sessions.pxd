# The C types of fetch_sessions.py's names; fetch_sessions.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t

from headrace.broker.partitions.local_replica cimport LocalReplica
from headrace.replication.replica_offsets cimport Follower

cdef int64_t _EPOCH_MAX, _FIRST_EPOCH

cpdef int64_t next_epoch(int64_t epoch)

cdef class SessionPartition:
    cdef public object key
    cdef public bytes topic_id, name
    cdef public tuple place
    cdef public int64_t index, fetch_offset, max_bytes, leader_epoch, last_epoch, start_offset
    cdef public int64_t high_watermark, log_start_offset
    cdef public LocalReplica replica
    cdef public Follower follower
    cdef public object producers
    cdef public list open_transactions, closed_transactions
    cdef public int64_t follower_id, changes
    cdef public int64_t position, size, size_so_far, source
    cdef public bint is_at_the_end, is_in_active

cdef class FetchSession:
    cdef public int64_t id, epoch, created_ms, last_used_ms, last_use, size
    cdef public bint by_id, is_follower, is_over
    cdef public dict partitions
    cdef public list named
    cdef public object watched, waiting
    cdef public str principal

    cpdef note(
        self, SessionPartition partition, int64_t high_watermark, int64_t log_start_offset, bint has_records)
    cpdef bytes name_of(self, SessionPartition partition)

cdef class FetchSessionCache:
    cdef int64_t _slots, _eviction_ms, _partitions_left, _uses
    cdef object _new_id, _old, _consumers
    cdef list _by_use
    cdef readonly dict _sessions

    cpdef FetchSession get(self, session_id)
    cpdef proceed(self, FetchSession session, int64_t now_ms)

    @cython.locals(was_old=bint, old_size=int64_t)
    cdef _touch(self, FetchSession session, int64_t now_ms)

    cdef bint _is_old(self, FetchSession session)
