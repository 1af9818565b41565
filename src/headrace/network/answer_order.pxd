# The C types of answer_order.py's names; answer_order.py itself stays plain Python.
cimport cython

cdef object _NO_SLOTS

cdef class Slot:
    cdef public list chunks
    cdef public object request
    cdef public Py_ssize_t size, memory
    cdef public object abandon

cdef class AnswerOrder:
    cdef readonly object slots
    cdef readonly Py_ssize_t waiting_bytes, waiting_memory

    @cython.locals(slot=Slot)
    cpdef Slot place(self)

    cpdef fill(self, Slot slot, list chunks, request)

    @cython.locals(slot=Slot)
    cpdef Slot take(self)

    @cython.locals(slot=Slot)
    cpdef abandon(self)
