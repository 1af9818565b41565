# The C types of purgatory.py's names; purgatory.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t

from headrace.network.answer_order cimport Waiter
from headrace.network.receive_pass cimport Turn

cdef int _STALE_SHARE_MAX, _STALE_MIN

cdef class DelayedRequest(Waiter):
    cpdef bint try_complete(self) except -1
    cpdef expire(self)

cdef class WaitingOperation:
    cdef readonly object operation
    cdef DelayedRequest request
    cdef readonly tuple keys
    cdef double deadline, due
    cdef int64_t look
    cdef readonly bint is_done, is_paused

cdef class Purgatory(Turn):
    cdef object _loop, _time, _call_soon, _look_at_touched, _timer
    cdef readonly dict _watched
    cdef readonly object watched
    cdef dict _touched
    cdef readonly list _deadlines
    cdef int64_t _order, _looks
    cdef double _timer_due
    cdef Py_ssize_t _waiting

    @cython.locals(deadline=double, entry=WaitingOperation)
    cpdef WaitingOperation wait(self, operation, keys, timeout_ms)

    cpdef cancel(self, WaitingOperation entry)
    cpdef pause(self, WaitingOperation entry)
    cpdef bint resume(self, WaitingOperation entry) except -1

    @cython.locals(deadline=double)
    cpdef bint wait_again(self, WaitingOperation entry, int64_t timeout_ms) except -1

    cpdef touch(self, key)

    @cython.locals(found=list, entry=WaitingOperation, request=DelayedRequest, is_over=bint)
    cpdef _look(self)

    cdef _find(self, WaitingOperation entry, list found)

    cdef _watch(self, WaitingOperation entry)
    cdef _unwatch(self, WaitingOperation entry)
    cdef _end(self, WaitingOperation entry)
    cdef _put(self, WaitingOperation entry)

    @cython.locals(left=list, entry=WaitingOperation)
    cdef _drop_stale(self)

    cdef _set_timer(self, double deadline)

    @cython.locals(now=double, entry=WaitingOperation)
    cpdef _expire(self)
