# The C types of frames.py's names; frames.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

cdef Py_ssize_t _SIZE_BYTES, _OWN_BYTES_MIN, _OWN_GROWTH, _SPARES_MAX, _SPARE_WASTE

cdef class SpareBuffers:
    cdef list _buffers

cdef class FrameReader:
    cdef object _scratch, _refusal, _spares
    cdef uint8_t[::1] _octets
    cdef int64_t _frame_bytes_max, _frame_bytes_min
    cdef object _own, _announced
    cdef Py_ssize_t _filled
    cdef int64_t _size

    cpdef limit(self, int64_t frame_bytes_max, int64_t frame_bytes_min=*, announced=*)
    cpdef target(self)

    @cython.locals(size=int64_t)
    cpdef Py_ssize_t end_of_frame(self, Py_ssize_t pos, Py_ssize_t count) noexcept

    @cython.locals(frames=list, octets=uint8_t[::1], end=Py_ssize_t, size=int64_t)
    cpdef list received(self, Py_ssize_t count, Py_ssize_t pos=*)

    cdef list _received_own(self, own, Py_ssize_t count)
    cdef _keep(self, rest)
    cdef _allocate(self, begun)
    cdef int64_t _checked_size(self, field) except -1
