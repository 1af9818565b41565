# The C types of answer_order.py's names; answer_order.py itself stays plain Python.
cimport cython

cdef class Waiter:
    cpdef abandon(self)

@cython.freelist(64)
cdef class Slot:
    cdef public list chunks
    cdef public object request
    cdef public Py_ssize_t size, memory
    cdef public object abandon
    cdef public Waiter waiter
    cdef Slot next

cdef class AnswerOrder:
    cdef readonly Slot first
    cdef Slot _last
    cdef readonly Py_ssize_t count, waiting_bytes, waiting_memory

    @cython.locals(slot=Slot)
    cpdef Slot place(self)

    @cython.locals(memory=Py_ssize_t, size=Py_ssize_t)
    cpdef fill(self, Slot slot, list chunks, request)

    @cython.locals(slot=Slot)
    cpdef Slot take(self)

    cpdef bint take_only(self, Slot slot) except -1

    @cython.locals(slot=Slot)
    cdef _take_first(self)

    @cython.locals(slot=Slot, following=Slot)
    cpdef abandon(self)
