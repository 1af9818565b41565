# The C types of commit_queue.py's names; commit_queue.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t

from headrace.broker.partitions.local_replica cimport LocalReplica
from headrace.broker.request.purgatory cimport DelayedRequest, Purgatory, WaitingOperation
from headrace.network.answer_order cimport Waiter
from headrace.replication.replica_offsets cimport ReplicaOffsets

cdef Py_ssize_t _OVER_MIN
cdef object _NONE, _TIMED_OUT
cdef double _NEVER, _NEXT_TURN_S

cdef class CommitQueue(DelayedRequest)
cdef class CommitQueues

cdef class WaitingRequest(Waiter):
    cdef public double deadline
    cdef public bint is_over

    cpdef bint ended(self, Py_ssize_t number, code) except -1
    cpdef answer(self)

@cython.freelist(64)
cdef class Place:
    cdef WaitingRequest request
    cdef Py_ssize_t number
    cdef LocalReplica partition
    cdef int64_t base_offset, commit_to, leading_since

@cython.locals(made=Place)
cpdef Place place_of(
    WaitingRequest request, Py_ssize_t number, LocalReplica partition, int64_t base_offset, int64_t commit_to,
    int64_t leading_since)

cpdef tuple _order_of(Place place)

cdef class WaitingProduce(WaitingRequest):
    cdef Py_ssize_t _batches, _number
    cdef list _codes
    cdef CommitQueue _queue
    cdef dict _queues

    cdef _begin(self, Py_ssize_t batches, double deadline)
    cpdef settle(self)
    cpdef refuse(self, Py_ssize_t number, code)
    cpdef wait(self, CommitQueue queue, Place place)
    cpdef bint ended(self, Py_ssize_t number, code) except -1
    cpdef answer(self)
    cpdef abandon(self)
    cdef bint _is_waiting(self) except -1

    @cython.locals(queue=CommitQueue)
    cdef _leave(self)

    cdef _reply(self)
    cdef _fail(self)

cdef class WaitingReply(WaitingProduce):
    cdef object _ctx, _refuse
    cdef bytes _frame

    cdef _reply(self)
    cdef _fail(self)

cdef class CommitQueue(DelayedRequest):
    cdef CommitQueues _owner
    cdef tuple _keys
    cdef readonly object api_key
    cdef readonly list _waiting
    cdef Py_ssize_t _head, _over
    cdef WaitingOperation _entry
    cdef double _due, _next_look

    @cython.locals(waiting=list, count=Py_ssize_t, look=double)
    cpdef add(self, Place place)

    @cython.locals(ended=list, number=Py_ssize_t, count=Py_ssize_t, most=Py_ssize_t, request=WaitingRequest)
    cpdef bint try_complete(self) except -1

    @cython.locals(
        ended=list, is_offline=int, is_short=int, state=ReplicaOffsets, place=Place, request=WaitingRequest)
    cdef list _take_ended(self, Py_ssize_t most)

    @cython.locals(waiting=list, free=Py_ssize_t)
    cdef _take_first(self)

    @cython.locals(now=double, left=Py_ssize_t, earliest=double, place=Place, request=WaitingRequest)
    cpdef expire(self)

    cpdef note_over(self)

    @cython.locals(left=list, place=Place)
    cdef _drop_over(self)

    cdef _wait_until(self, double deadline)
    cdef _rest(self)

cdef bint _is_before(Place place, Place last) noexcept

cdef _outcome(Place place, partition, bint is_offline)

cdef class CommitQueues:
    cdef readonly Purgatory purgatory
    cdef readonly object now, api_key
    cdef set _offline

    cpdef CommitQueue of(self, LocalReplica partition)
    cdef bint is_offline(self, LocalReplica partition) except -1
