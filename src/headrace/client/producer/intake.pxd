# The C types of intake.py's names; intake.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t

from headrace.client.producer.accumulator cimport Accumulator, PartitionQueue, record_bytes
from headrace.client.producer.delivery cimport Batch, Delivery, delivery_of
from headrace.records.format2.kernel cimport murmur2

cdef int64_t _EARLIEST_PLAUSIBLE_MS, _LATEST_PLAUSIBLE_MS

cdef class Destination:
    cdef public object view
    cdef public list partitions, queues
    cdef public PartitionQueue sticky

cdef class RecordIntake:
    cdef public object _cluster, _lock, _serializing, _interceptors, _transactions
    cdef public Accumulator _accumulator
    cdef public dict _known
    cdef public Py_ssize_t _buffer_bytes
    cdef public bint _closed

    @cython.locals(
        time_ms=int64_t, known=Destination, index=Py_ssize_t, size=Py_ssize_t, news=int, queue=PartitionQueue, batch=Batch,
        delivery=Delivery)
    cpdef send(
        self, object topic, object value, object key=*, object partition=*, object timestamp_ms=*, object headers=*,
        object on_delivery=*)

    cdef PartitionQueue _queue(self, Destination known, Py_ssize_t index)

cdef inline int64_t _now_ms() noexcept

@cython.locals(time_ms=int64_t)
cdef inline int64_t _checked_ms(object given) except? -1
