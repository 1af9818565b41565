# The C types of answer_sender.py's names; answer_sender.py itself stays plain Python.
cimport cython

from headrace.network.answer_buffer cimport AnswerBuffer
from headrace.network.answer_order cimport AnswerOrder, Slot
from headrace.network.outbound cimport FilePart, Outbound
from headrace.octets cimport bytes_at

cdef object _DONE
cdef int _SLOTS_MAX
cdef Py_ssize_t _SHORT_MAX, _UNCOUNTED_BYTES, _TURN_BYTES, _QUEUED_MAX

cdef class AnswerSender:
    cdef object _transport, _memory
    cdef list _unsent
    cdef readonly AnswerOrder order
    cdef readonly Outbound outbound
    cdef readonly Py_ssize_t counted_bytes
    cdef int direct_fd
    cdef bint is_timed

    cpdef add(self, list chunks, request)
    cpdef fill(self, Slot slot, list chunks, request)
    cdef note(self, request)

    @cython.locals(slot=Slot)
    cdef put_out(self)

    cdef _put(self, list chunks, request)

    @cython.locals(sent=Py_ssize_t, size=Py_ssize_t)
    cdef bint send_written(self, AnswerBuffer buffer, Py_ssize_t start, Py_ssize_t end) except -1

    @cython.locals(sent=Py_ssize_t, octets=bytes)
    cdef bint send_frame(self, bytes frame) except -1

    @cython.locals(sent=Py_ssize_t, file_bytes=Py_ssize_t, part=FilePart)
    cdef bint send_with_files(self, AnswerBuffer buffer, Py_ssize_t size) except -1

    cdef send(self)
    cdef _note_sent(self)

    @cython.locals(queued=Py_ssize_t)
    cdef bint is_full(self) except -1

    cdef _count(self)
    cdef clear(self)
