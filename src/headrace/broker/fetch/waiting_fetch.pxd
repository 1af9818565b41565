# The C types of waiting_fetch.py's names; waiting_fetch.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.broker.fetch.fetch_sessions cimport FetchSession
from headrace.network.answer_order cimport Slot
from headrace.network.connection cimport Connection, Shortcut

cdef class WaitingFetch

cdef class FetchShortcut(Shortcut):
    cdef object _services, _admission, _throttling
    cdef list _by_version
    cdef readonly object times
    cdef public int64_t taken, waited

    cpdef timed(self, Connection connection)

    @cython.locals(waiting=WaitingFetch)
    cdef WaitingFetch _placed(self, connection, bytes frame, FetchSession session, keys)

    cdef _wait(self, WaitingFetch waiting, watched, int64_t max_wait_ms)

    @cython.locals(count=int, size=Py_ssize_t, is_answered=bint)
    cpdef bint look_again(self, WaitingFetch waiting, bint is_over) except -1

    cdef int _find_again(self, WaitingFetch waiting) except -2
    cdef bint _is_enough(self) except -1
    cdef _count_traffic(self, bint is_answered, int count)
    cdef Py_ssize_t _write_waiting(self, WaitingFetch waiting, int count) except -1
    cdef _forget(self)

cdef class WaitingFetch:
    cdef FetchShortcut _fetches
    cdef Slot _slot
    cdef object _entry, _general, _keys, _purgatory
    cdef readonly bytes frame
    cdef readonly FetchSession session
    cdef readonly object connection, times, api_key
    cdef readonly int64_t epoch, received_ns, started_ns, handed_over_ns, answered_ns
    cdef public int64_t correlation_id, min_bytes, max_bytes, follower, broker_epoch
    cdef public int version
    cdef public bint is_committed

    cpdef begin(self, FetchShortcut fetches, connection, Slot slot, bytes frame, FetchSession session, keys)
    cpdef waits_in(self, purgatory, entry)
    cpdef bint try_complete(self) except -1
    cpdef expire(self)
    cdef bint _look_again(self, bint is_over) except -1

    @cython.locals(slot=Slot)
    cpdef bint go_the_general_way(self, services, bint is_over) except -1

    cdef bint _ask_general(self, fetch, bint is_over) except -1

    @cython.locals(slot=Slot)
    cpdef answer(self, list chunks)

@cython.locals(now_ns=int64_t)
cdef int64_t _now_ns() noexcept
