# The C types of outbound.py's names; outbound.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

cdef int _MORE
cdef Py_ssize_t _JOIN_BYTES_MAX, _READ_BYTES, _CHUNK_BYTES, _FILE_BYTES

cdef class FilePart:
    cdef readonly object file
    cdef readonly int fd
    cdef readonly Py_ssize_t position, size

@cython.locals(part=FilePart)
cpdef FilePart file_part(file, int fd, Py_ssize_t position, Py_ssize_t size)

cdef class Outbound:
    cdef object _queue
    cdef Py_ssize_t _offset
    cdef Py_ssize_t _warm_until
    cdef readonly Py_ssize_t queued_bytes, memory_bytes

    @cython.locals(size=Py_ssize_t)
    cpdef add(self, chunk)

    @cython.locals(
        budget=Py_ssize_t, sent=Py_ssize_t, size=Py_ssize_t, can_send_file=bint, fd=int, position=Py_ssize_t)
    cpdef send(self, transport)

    @cython.locals(fd=int, sent=Py_ssize_t)
    cdef Py_ssize_t _send_bytes(self, transport, data, int flags) except -1

    @cython.locals(to=int, sent=Py_ssize_t)
    cdef Py_ssize_t _send_file(self, transport, int fd, Py_ssize_t position, Py_ssize_t size) except -1

    @cython.locals(size=Py_ssize_t, sent=Py_ssize_t)
    cpdef skip(self, Py_ssize_t count)

    @cython.locals(size=Py_ssize_t)
    cpdef warm(self)

    cpdef clear(self)

    @cython.locals(parts=list, size=Py_ssize_t)
    cdef _joined_bytes(self, bytes first)

    cdef bint _file_follows(self)

    @cython.locals(size=Py_ssize_t)
    cdef _advance(self, Py_ssize_t sent)

    @cython.locals(left=Py_ssize_t, warm=Py_ssize_t)
    cdef Py_ssize_t _cached(self, int fd, Py_ssize_t position, Py_ssize_t size, Py_ssize_t most) except -1

@cython.locals(
    pos=Py_ssize_t, sent=Py_ssize_t, number=Py_ssize_t, fd=int, position=Py_ssize_t, left=Py_ssize_t, cut=Py_ssize_t,
    part=FilePart, flags=int, count=Py_ssize_t, most=Py_ssize_t, piece=Py_ssize_t)
cdef Py_ssize_t send_at_once(
    int to, uint8_t[::1] out, Py_ssize_t size, int64_t[::1] cuts, list files) except -1

@cython.locals(done=Py_ssize_t, end=Py_ssize_t)
cdef Py_ssize_t _cached_from(int fd, Py_ssize_t position, Py_ssize_t size) except -1

cdef bint _is_cached(int fd, Py_ssize_t position) except -1
