# The C types of followed.py's names; followed.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.broker.partitions.local_replica cimport LocalReplica
from headrace.octets cimport Octets
from headrace.protocol.conversation.fetch_session_client cimport FetchSessionClient

cdef int _ID_BYTES, _SLOTS

cdef class Followed:
    cdef readonly LocalReplica partition
    cdef readonly object key
    cdef readonly bytes topic_id
    cdef readonly int64_t index, leader_epoch
    cdef public int64_t lag, refusals, turn
    cdef public double retry_at
    cdef public bint has_epochs, is_checked
    cdef public object compared

cdef class Following:
    cdef readonly FetchSessionClient conversation
    cdef readonly object failed
    cdef readonly dict partitions, by_id, changed, uncut, delayed, ids
    cdef list _found

    @cython.locals(slot=int, each=Followed)
    cdef Followed find(self, Octets octets, Py_ssize_t topic_at, int64_t index)

    @cython.locals(each=Followed)
    cdef Followed _look_up(self, bytes topic_id, int64_t index, int slot)

    cpdef bint is_told(self, Followed each) except -1
    cpdef forget(self)

@cython.locals(is_same=bint)
cdef bint _is_at(bytes topic_id, Octets octets, Py_ssize_t at) noexcept

@cython.locals(found=bytes)
cdef bytes _id_at(Octets octets, Py_ssize_t at)
