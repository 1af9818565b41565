# The C types of loan.py's names; loan.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.octets cimport Octets, int32_at
from headrace.protocol.conversation.frames cimport FrameReader

cdef Py_ssize_t _SIZE_BYTES, _ID_BYTES, _SCRATCH_BYTES, _GROWTH
cdef int64_t _ID_MASK

cdef class Asker:
    cdef readonly uint8_t[::1] out
    cpdef Py_ssize_t ask(self, int64_t correlation_id, int version, bytes client_id) except -1
    cpdef bint take(self, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end) except -1

cdef class Loan:
    cdef object _connection, _transport, _receive_into, _loop, _late, _buffer, _is_answered
    cdef uint8_t[::1] _octets
    cdef FrameReader _reader
    cdef Asker _asker
    cdef bytes _client_id
    cdef int _version, _direct_fd
    cdef int64_t _id, _bytes_max
    cdef double _asked_at, _timeout_s
    cdef uint8_t *_received
    cdef uint8_t *_out
    cdef Py_ssize_t _room, _filled
    cdef readonly object answered

    cdef _use(self, buffer)

    @cython.locals(size=Py_ssize_t)
    cpdef bint begin(self) except -1

    @cython.locals(octets=Octets, count=Py_ssize_t, filled=Py_ssize_t, end=Py_ssize_t, size=int64_t)
    cpdef on_readable(self)

    @cython.locals(filled=Py_ssize_t, room=Py_ssize_t)
    cdef _receive_more(self, Py_ssize_t end)

    @cython.locals(count=Py_ssize_t)
    cdef Py_ssize_t _receive(self) except -1

    @cython.locals(octets=Octets, size=Py_ssize_t)
    cdef _take(self, Py_ssize_t start, Py_ssize_t end)

    @cython.locals(sent=Py_ssize_t)
    cdef _send(self, Py_ssize_t size)

    cdef _end(self, frame)
    cpdef _note_done(self, answered)
    cpdef _look_at_the_time(self)

@cython.locals(now_s=double)
cdef double _now_s() noexcept
