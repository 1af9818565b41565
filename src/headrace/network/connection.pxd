# The C types of connection.py's names; connection.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.network.answer_buffer cimport AnswerBuffer
from headrace.network.answer_order cimport Slot
from headrace.network.answer_sender cimport AnswerSender
from headrace.network.late_answers cimport LateAnswers, LateReceiver, LateWriter
from headrace.network.receive_pass cimport ReceivePass, Turn
from headrace.octets cimport bytes_at
from headrace.protocol.conversation.frames cimport FrameReader

cdef int _THROTTLE, _FULL, _PER_TURN_MAX, _WAITS, _SLOTS_MAX
cdef Py_ssize_t _SIZE_BYTES, _SHORT_MAX, _OUT_BYTES, _LATE_FRAME_BYTES
cdef object _NO_FRAMES, _DONE, _COLD

cdef class Connection(LateReceiver)

cdef class Shortcut(LateWriter):
    cpdef Py_ssize_t answer(
        self, Connection connection, uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, Py_ssize_t at) except -1
    cpdef timed(self, Connection connection)

cdef Shortcut _shortcut_of(dispatch)

cdef class Connection(LateReceiver):
    cdef ReceivePass _receive_pass
    cdef Turn _turn
    cdef LateAnswers _late
    cdef object _transport, _loop, _owner, _dispatch, _receive_into, _frames, _throttle
    cdef FrameReader _inbound
    cdef AnswerSender _answers
    cdef Shortcut _shortcut
    cdef int _reasons, _fd, _direct_fd, _left
    cdef double _throttled_until_ms
    cdef bint _is_beginning, _is_buffering, _is_reading, _is_sending, _goes_on, _is_guarded, _is_postponed
    cdef readonly bint is_timed
    cdef readonly str host
    cdef public str software, principal, listener
    cdef public object admitted, session
    cdef public int64_t received_ns, looked_ns

    cdef _begin(self)
    cpdef _go_on_beginning(self)
    cdef _read_pending(self)
    cpdef _read_if_reading(self)

    @cython.locals(count=Py_ssize_t, frames=list, taken=Py_ssize_t, answered=Py_ssize_t, inbound=FrameReader)
    cpdef on_readable(self)

    @cython.locals(count=Py_ssize_t)
    cdef Py_ssize_t _receive(self) except -1

    cdef bint _is_quiet(self) except -1
    cdef bint _is_free(self) except -1

    @cython.locals(
        inbound=FrameReader, end=Py_ssize_t, left=int, filled=Py_ssize_t, answer_end=Py_ssize_t)
    cdef Py_ssize_t _answer_shortly(self, Shortcut shortcut, Py_ssize_t pos, Py_ssize_t count) except -1

    @cython.locals(shortcut=Shortcut, late=LateAnswers, answered=Py_ssize_t)
    cdef Py_ssize_t _answer_by_shortcut(self, Py_ssize_t count) except -1

    @cython.locals(end=Py_ssize_t)
    cdef bint _has_several(self, Py_ssize_t count) except -1

    @cython.locals(
        inbound=FrameReader, pos=Py_ssize_t, end=Py_ssize_t, left=int, answer_end=Py_ssize_t, at=Py_ssize_t)
    cdef Py_ssize_t _answer_late(self, Shortcut shortcut, LateAnswers late, Py_ssize_t count) except -1

    cdef _answer_behind(self, Shortcut shortcut, Py_ssize_t start, Py_ssize_t end)
    cpdef send_late(self, AnswerBuffer buffer, Py_ssize_t start, Py_ssize_t end)
    cpdef send_written(self, bytes answers)

    cdef _keep(self, list frames)
    cdef _own_frames(self)

    @cython.locals(taken=Py_ssize_t)
    cdef Py_ssize_t _take_up(self, list frames) except -1

    @cython.locals(frames=list, taken=Py_ssize_t)
    cpdef _go_on(self)

    cpdef place(self)

    cpdef answer(self, list chunks, request)
    cpdef answer_later(self, Slot slot, list chunks, request)

    cpdef answer_frame_later(self, Slot slot, bytes frame, request)
    cdef bint _is_only(self, Slot slot) except -1

    cdef _send_only(self, Slot slot, bytes frame)
    cdef _fill(self, Slot slot, list chunks, request)

    @cython.locals(answers=AnswerSender, is_plain=bint, is_sent=bint)
    cpdef answer_written_later(self, Slot slot, Shortcut shortcut, Py_ssize_t size, request)

    cdef _flush(self)
    cpdef _send(self)
    @cython.locals(outbound=object)
    cdef _warm_up(self)

    cpdef _warmed(self, warming)
    cdef _pace(self)
    cdef bint _is_held(self) except -1

    cdef _throttle_until(self, double until_ms)
    cdef _unthrottle(self)
    cdef _read_again(self)
    cdef _stop_reading(self)
    cpdef bint is_left_behind(self) except -1
    cpdef hand_over(self, dispatch, int64_t frame_bytes_max, int64_t frame_bytes_min=*, announced=*)
    cpdef finish(self, list chunks, str reason)
    cpdef close(self, str reason)
