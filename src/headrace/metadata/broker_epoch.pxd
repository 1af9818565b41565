# The C types of broker_epoch.py's names; broker_epoch.py itself stays plain Python.
from libc.stdint cimport int64_t

cdef class BrokerEpoch:
    cdef public int64_t value
