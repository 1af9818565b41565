# The C types of waiting_fetch.py's names; waiting_fetch.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.network.answer_order cimport Slot
from headrace.network.connection cimport Connection, Shortcut

cdef class WaitingFetch

cdef class FetchShortcut(Shortcut):
    cdef object _services, _admission, _throttling
    cdef list _by_version
    cdef readonly object times
    cdef public int64_t taken, waited

    cpdef timed(self, Connection connection)

    cdef _wait(self, connection, bytes frame, session, keys, watched, int64_t max_wait_ms)

    @cython.locals(count=int, size=Py_ssize_t, is_answered=bint)
    cpdef bint look_again(self, WaitingFetch waiting, bint is_over) except -1

    cdef int _find_again(self, WaitingFetch waiting) except -2
    cdef bint _is_enough(self) except -1
    cdef _count_traffic(self, bint is_answered)
    cdef Py_ssize_t _write(self, const uint8_t[::1] octets, int count, session, Py_ssize_t at) except -1
    cdef _forget(self)

cdef class WaitingFetch:
    cdef FetchShortcut _fetches
    cdef Slot _slot
    cdef object _general, _keys
    cdef readonly bytes frame
    cdef readonly object connection, session, times, api_key
    cdef readonly int64_t epoch, received_ns, started_ns, handed_over_ns, answered_ns

    cpdef bint try_complete(self) except -1
    cpdef expire(self)
    cdef bint _look_again(self, bint is_over) except -1

    @cython.locals(slot=Slot)
    cpdef bint go_the_general_way(self, services, bint is_over) except -1

    cdef bint _ask_general(self, fetch, bint is_over) except -1

    @cython.locals(slot=Slot)
    cpdef answer(self, list chunks)
