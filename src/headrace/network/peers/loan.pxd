# The C types of loan.py's names; loan.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.protocol.conversation.frames cimport FrameReader

cdef Py_ssize_t _SIZE_BYTES, _ID_BYTES
cdef int64_t _ID_MASK

cdef class Asker:
    cdef readonly uint8_t[::1] out
    cpdef Py_ssize_t ask(self, int64_t correlation_id, int version, bytes client_id) except -1
    cpdef bint take(self, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end) except -1

cdef class Loan:
    cdef object _connection, _transport, _receive_into, _loop, _late
    cdef FrameReader _reader
    cdef Asker _asker
    cdef bytes _client_id
    cdef int _version, _direct_fd
    cdef int64_t _id
    cdef double _asked_at, _timeout_s
    cdef uint8_t *_received
    cdef uint8_t *_out
    cdef Py_ssize_t _room
    cdef readonly object answered

    @cython.locals(octets=uint8_t[::1], out=uint8_t[::1])
    cdef _use(self, FrameReader reader, Asker asker)

    @cython.locals(size=Py_ssize_t)
    cpdef bint begin(self) except -1

    @cython.locals(reader=FrameReader, count=Py_ssize_t, end=Py_ssize_t, frames=list)
    cpdef on_readable(self)

    @cython.locals(count=Py_ssize_t)
    cdef Py_ssize_t _receive(self) except -1

    @cython.locals(size=Py_ssize_t, is_own=bint)
    cdef _take(self, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, frame)

    @cython.locals(sent=Py_ssize_t)
    cdef _send(self, Py_ssize_t size)

    cdef _end(self, frame)
    cpdef _note_done(self, answered)
    cpdef _look_at_the_time(self)

@cython.locals(now_s=double)
cdef double _now_s() noexcept

@cython.locals(first=int64_t, value=int64_t)
cdef int64_t _int32(const uint8_t[::1] buf, Py_ssize_t pos) noexcept
