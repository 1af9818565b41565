# The C types of fetch_session_client.py's names; fetch_session_client.py itself stays plain Python.
from libc.stdint cimport int64_t

cdef int64_t _NO_SESSION, _INITIAL_EPOCH, _EPOCH_MAX

cdef class FetchSessionClient:
    cdef public int64_t id, epoch

    cpdef bint answered(self, int64_t error_code, int64_t session_id) except -1
    cpdef handle_error(self)
