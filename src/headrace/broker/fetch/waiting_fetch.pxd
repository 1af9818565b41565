# The C types of waiting_fetch.py's names; waiting_fetch.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.broker.fetch.fetch_sessions cimport FetchSession
from headrace.broker.request.in_force cimport QuotasInForce, RulesInForce
from headrace.broker.request.purgatory cimport DelayedRequest, Purgatory, WaitingOperation
from headrace.network.answer_order cimport Slot
from headrace.network.connection cimport Connection, Shortcut

cdef class WaitingFetch

cdef class FetchShortcut(Shortcut):
    cdef object _services
    cdef RulesInForce _admission
    cdef QuotasInForce _throttling
    cdef Purgatory _purgatory
    cdef list _by_version
    cdef readonly object times
    cdef public int64_t taken, waited

    cpdef timed(self, Connection connection)

    @cython.locals(waiting=WaitingFetch, slot=Slot, own=Connection)
    cdef WaitingFetch _placed(self, connection, bytes frame, FetchSession session, keys)

    cdef _wait(self, WaitingFetch waiting, tuple watched, int64_t max_wait_ms)

    @cython.locals(count=int, size=Py_ssize_t, is_answered=bint)
    cpdef bint look_again(self, WaitingFetch waiting, bint is_over) except -1

    cdef int _find_again(self, WaitingFetch waiting) except -2
    cdef bint _is_enough(self) except -1
    cdef _count_traffic(self, bint is_answered, int count)
    cdef Py_ssize_t _write_waiting(self, WaitingFetch waiting, int count) except -1
    cdef _forget(self)

cdef class WaitingFetch(DelayedRequest):
    cdef FetchShortcut _fetches
    cdef Slot _slot
    cdef Purgatory _purgatory
    cdef WaitingOperation _entry
    cdef object _general, _keys
    cdef readonly bytes frame
    cdef readonly FetchSession session
    cdef readonly object connection, times, api_key
    cdef readonly int64_t epoch, received_ns, started_ns, handed_over_ns, answered_ns
    cdef public int64_t correlation_id, min_bytes, max_bytes, follower, broker_epoch
    cdef public int version
    cdef public bint is_committed, is_resting

    @cython.locals(own=Connection, now_ns=int64_t)
    cpdef begin(self, FetchShortcut fetches, connection, Slot slot, bytes frame, FetchSession session, keys)

    @cython.locals(entry=WaitingOperation, session=FetchSession, slot=Slot)
    cpdef wait_in(self, Purgatory purgatory, tuple watched, int64_t max_wait_ms)

    cpdef abandon(self)

    @cython.locals(session=FetchSession)
    cdef _end_rest(self)

    cpdef bint try_complete(self) except -1
    cpdef expire(self)

    @cython.locals(own=Connection, is_closed=bint)
    cdef bint _look_again(self, bint is_over) except -1

    @cython.locals(slot=Slot)
    cpdef bint go_the_general_way(self, services, bint is_over) except -1

    cdef bint _ask_general(self, fetch, bint is_over) except -1

    @cython.locals(slot=Slot, session=FetchSession, is_over=bint, is_timed=bint, own=Connection)
    cpdef bint answer(self, Py_ssize_t size) except -1

    cdef _rest(self)

@cython.locals(now_ns=int64_t)
cdef int64_t _now_ns() noexcept
