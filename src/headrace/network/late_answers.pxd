# The C types of late_answers.py's names; late_answers.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t

from headrace.network.answer_buffer cimport AnswerBuffer
from headrace.network.receive_pass cimport Receiver, Turn

cdef Py_ssize_t _FILLED_MAX, _NOTES_MAX
cdef int _START, _END, _MASK, _NOTE_FIELDS

cdef class LateReceiver(Receiver):
    cdef bint _is_closed
    cdef readonly str peer

    cpdef send_late(self, AnswerBuffer buffer, Py_ssize_t start, Py_ssize_t end)
    cpdef send_written(self, bytes answers)
    cpdef close(self, str reason)

cdef class LateAnswers(Turn)

cdef class LateWriter(AnswerBuffer):
    cdef public LateAnswers late
    cdef public int64_t mask

    cpdef bint has_room(self, Py_ssize_t size) except -1
    cpdef int64_t write_late(self) except -1
    cpdef bytes refused_late(self, Py_ssize_t start, Py_ssize_t end)
    cpdef wake_late(self)

cdef class LateAnswers(Turn):
    cdef LateWriter _writer
    cdef list _connections
    cdef LateReceiver _last
    cdef int64_t[::1] _notes
    cdef readonly Py_ssize_t filled
    cdef bint has_declined

    cpdef bint begin(self, LateWriter writer, Py_ssize_t size) except -1

    @cython.locals(notes=int64_t[::1], at=Py_ssize_t)
    cpdef note(self, LateReceiver connection, LateWriter writer, Py_ssize_t start, Py_ssize_t end)

    @cython.locals(
        writer=LateWriter, connections=list, notes=int64_t[::1], at=Py_ssize_t, failed=int64_t, start=Py_ssize_t,
        end=Py_ssize_t, mask=int64_t, connection=LateReceiver)
    cpdef flush(self)
