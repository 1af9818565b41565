# The C types of follower_fetch.py's names; follower_fetch.py itself stays plain Python. See kernel.pxd on `inline`.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.octets cimport Octets, Out, int32_at, int64_at, length_at, put32, put64, put_varint

cdef int _TOPIC_AT, _INDEX, _HIGH, _LOG_START, _RECORDS_AT, _RECORDS_END, _ROW_FIELDS, _ROWS_MAX, _NOT_PLAIN
cdef int _FETCH, _UUID_BYTES, _HEAD_BYTES, _FIXED_BYTES, _COMPACT, _REPLICA_TAG, _REPLICA_STATE_BYTES

@cython.locals(
    octets=Octets, topics=int64_t, count=int64_t, row=Py_ssize_t, topic_at=Py_ssize_t, partitions=int64_t,
    aborted=int64_t, size=int64_t)
cpdef int read_answer(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t session_id, int64_t[::1] rows) noexcept

@cython.locals(at=Py_ssize_t)
cdef inline Py_ssize_t _put_bytes(uint8_t[::1] out, Py_ssize_t pos, bytes octets) except -1

@cython.locals(to=Out, pos=Py_ssize_t)
cpdef Py_ssize_t begin_request(
    int version, int64_t correlation_id, bytes client_id, int64_t max_wait_ms, int64_t min_bytes, int64_t max_bytes,
    int64_t session_id, int64_t session_epoch, int64_t topics, uint8_t[::1] out) except -1

@cython.locals(to=Out)
cpdef Py_ssize_t put_topic(bytes topic_id, int64_t partitions, uint8_t[::1] out, Py_ssize_t pos) except -1

@cython.locals(to=Out)
cpdef Py_ssize_t put_partition(
    int64_t index, int64_t leader_epoch, int64_t fetch_offset, int64_t last_epoch, int64_t log_start, int64_t max_bytes,
    uint8_t[::1] out, Py_ssize_t pos) noexcept

cpdef Py_ssize_t end_topic(uint8_t[::1] out, Py_ssize_t pos) noexcept

@cython.locals(to=Out)
cpdef Py_ssize_t end_request(
    int64_t replica_id, int64_t replica_epoch, uint8_t[::1] out, Py_ssize_t pos) noexcept
