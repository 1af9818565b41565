# The C types of delivery.py's names; delivery.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t

cdef class Batch:
    cdef public object partition, content, encoded, error, helper
    cdef public int64_t number, base_sequence, base_offset, log_append_time_ms
    cdef public double opened_s, expires_s
    cdef public Py_ssize_t count, size_bytes
    cdef public int attempts
    cdef public bint is_error_told
    cdef readonly bint is_done
    cdef list _callbacks, _waiters, _sleepers

    cpdef expect(self, object callback)

# No cycle lasts: a batch forgets its callbacks when it is done. So the garbage collector need not look at deliveries,
# of which a program may keep millions.
@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Delivery:
    cdef Batch _batch
    cdef Py_ssize_t _index

@cython.locals(delivery=Delivery)
cpdef Delivery delivery_of(Batch batch, Py_ssize_t index)
