# The C types of receive_pass.py's names; receive_pass.py itself stays plain Python.
cimport cython

cdef int _PER_TURN_MAX

cdef class Receiver:
    cpdef on_readable(self)

cdef class Turn:
    cdef public bint is_open
    cpdef flush(self)

cdef class Alone:
    cdef Receiver _receiver
    cdef Turn _after

    @cython.locals(after=Turn)
    cpdef take_turn(self)

cdef class ReceivePass:
    cdef readonly Turn turn
    cdef Turn _after
    cdef object _loop, _poll
    cdef list _receivers
    cdef int _left_to_loop, _of_the_loop, _poll_fd
    cdef int[::1] _ready

    cpdef add(self, int fd, Receiver receiver)
    cpdef remove(self, int fd)

    @cython.locals(turn=Turn, after=Turn)
    cpdef take_turn(self)

    @cython.locals(number=int, count=int)
    cdef _call_all(self)

    @cython.locals(receiver=Receiver)
    cdef _call(self, int fd)
