# The C types of accumulator.py's names; accumulator.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t

from headrace.client.producer.delivery cimport Batch, Delivery, delivery_of
from headrace.records.format2.rows cimport RowBuffer

cdef class PartitionQueue:
    cdef public object partition, retries, waiting
    cdef public list in_flight
    cdef public Batch open
    cdef public int64_t next_sequence
    cdef int64_t _known_from
    cdef public double retry_at_s
    cdef public bint is_known

@cython.locals(size=Py_ssize_t)
cpdef Py_ssize_t record_bytes(object key, object value, object headers) except -1

cdef class Accumulator:
    cdef public object limits
    cdef public dict queues
    cdef public Py_ssize_t bytes_held
    cdef Py_ssize_t _batch_bytes
    cdef bint _is_idempotent
    cdef object _numbers

    @cython.locals(batch=Batch, rows=RowBuffer)
    cpdef bint add(
        self, PartitionQueue queue, object key, object value, int64_t timestamp_ms, object headers, Py_ssize_t size
    ) except -1

    @cython.locals(batch=Batch, rows=RowBuffer)
    cpdef int add_to_new(
        self, PartitionQueue queue, object key, object value, int64_t timestamp_ms, object headers, Py_ssize_t size,
        double now_s
    ) except -1
