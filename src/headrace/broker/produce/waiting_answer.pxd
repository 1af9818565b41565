# The C types of waiting_answer.py's names; waiting_answer.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t

from headrace.broker.produce.commit_queue cimport WaitingProduce
from headrace.network.answer_order cimport Slot
from headrace.network.connection cimport Connection

cdef class WaitingAnswer(WaitingProduce):
    cdef readonly object connection, times
    cdef Connection _own
    cdef object _refuse_it
    cdef readonly bytes header, frame
    cdef readonly Slot slot
    cdef object _key
    cdef list _keys
    cdef readonly int64_t received_ns, started_ns, handed_over_ns, answered_ns

    @cython.locals(own=Connection, slot=Slot)
    cdef _reply(self)

    cdef _fail(self)

@cython.locals(made=WaitingAnswer, own=Connection, slot=Slot, now_ns=int64_t)
cpdef WaitingAnswer waiting_answer(
    connection, times, bytes header, bytes frame, key, Py_ssize_t batches, list keys, refuse, double deadline)
