# The C types of plain_fetch.py's names; plain_fetch.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.octets cimport (
    Octets, Out, int16_at, int32_at, int64_at, is_ascii, length_at, put16, put32, put64, put_length)

cdef int _VERSION, _CORRELATION, _MAX_WAIT, _MIN_BYTES, _MAX_BYTES, _COMMITTED, _SESSION_ID, _SESSION_EPOCH
cdef int _TOPIC_AT, _TOPIC_END, _INDEX, _LEADER_EPOCH, _OFFSET, _LAST_EPOCH, _LOG_START, _PARTITION_MAX
cdef int _ROW_FIELDS, _ROWS_MAX, _MIN, _MAX, _NOT_PLAIN
cdef int _LOG_START_FROM, _SESSIONS_FROM, _LEADER_EPOCHS_FROM, _RACK_FROM, _FLEXIBLE_FROM, _IDS_FROM, _NO_REPLICA_FROM
cdef int _REQUEST_BYTES_MIN, _UUID_BYTES, _FETCH, _REPLICA_ID, _REPLICA_EPOCH
cdef int _REPLICA_BYTES, _REPLICA_TAG, _REPLICA_STATE_BYTES

cpdef int read_plain_fetch(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t[::1] found, int64_t[::1] rows) noexcept

@cython.locals(at=Py_ssize_t)
cpdef bint is_of_follower(const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end) noexcept

@cython.locals(at=Py_ssize_t, octets=Octets)
cpdef int read_follower_fetch(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t[::1] found, int64_t[::1] rows) noexcept

@cython.locals(version=int, length=int64_t, fixed=int, isolation=int)
cdef Py_ssize_t _read_head(Octets buf, Py_ssize_t pos, Py_ssize_t end, int64_t[::1] found) noexcept

@cython.locals(
    version=int, is_flexible=bint, string_width=int, array_width=int, length=int64_t, start=Py_ssize_t, topics=int64_t,
    count=int64_t, row=Py_ssize_t, row_bytes=int64_t, topic_end=Py_ssize_t, partitions=int64_t)
cdef int _read_fetch(
    Octets buf, Py_ssize_t pos, Py_ssize_t end, bint is_follower, int64_t[::1] found,
    int64_t[::1] rows) noexcept

@cython.locals(version=int, to=Out, pos=Py_ssize_t)
cpdef Py_ssize_t begin_fetch_answer(
    const int64_t[::1] fields, int64_t session_id, int64_t topics, uint8_t[::1] out, Py_ssize_t start) noexcept

@cython.locals(version=int, to=Out)
cpdef Py_ssize_t put_topic(
    const int64_t[::1] fields, const uint8_t[::1] name, Py_ssize_t at, Py_ssize_t end, int64_t partitions,
    uint8_t[::1] out, Py_ssize_t pos) noexcept

@cython.locals(version=int, to=Out, octets=Octets, at=Py_ssize_t, size=Py_ssize_t)
cpdef Py_ssize_t put_known_topic(
    const int64_t[::1] fields, bytes name, int64_t partitions, uint8_t[::1] out, Py_ssize_t pos) except -1

cpdef Py_ssize_t end_topic(const int64_t[::1] fields, uint8_t[::1] out, Py_ssize_t pos) noexcept

@cython.locals(version=int, to=Out, array_width=int)
cpdef Py_ssize_t put_partition(
    const int64_t[::1] fields, int64_t index, int64_t high_watermark, int64_t stable, int64_t log_start, int64_t size,
    uint8_t[::1] out, Py_ssize_t pos) noexcept

cpdef void end_fetch_answer(int64_t size, uint8_t[::1] out, Py_ssize_t start) noexcept
