# The C types of local_replica.py's names; local_replica.py itself stays plain Python.
cimport cython

from headrace.broker.metrics.traffic cimport Traffic
from headrace.broker.request.purgatory cimport Purgatory
from headrace.log.append_state cimport LogEnd
from headrace.replication.replica_offsets cimport ReplicaOffsets

cdef class LocalReplica:
    cdef public object key, end_key
    cdef public LogEnd log
    cdef public ReplicaOffsets state
    cdef public Traffic traffic
    cdef public object commits
    cdef public bint is_dropped

    @cython.locals(state=ReplicaOffsets)
    cpdef touch_appended(self, Purgatory purgatory)
