# The C types of plain_groups.py's names; plain_groups.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.octets cimport (
    Octets, Out, int16_at, int32_at, int64_at, is_ascii, length_at, put16, put32, put_length)

cdef int _VERSION, _CORRELATION, _CLIENT, _GROUP, _EPOCH, _MEMBER, _INSTANCE
cdef int _TOPIC_AT, _TOPIC_END, _OF_TOPIC, _INDEX, _OFFSET, _LEADER_EPOCH, _METADATA_AT, _METADATA_END
cdef int _ROW_FIELDS, _ROWS_MAX, _NOT_PLAIN
cdef int _HEARTBEAT, _CONSUMER_HEARTBEAT, _SHARE_HEARTBEAT, _COMMIT, _HEADER_BYTES, _UUID_BYTES
cdef int _HEARTBEAT_FLEXIBLE_FROM, _HEARTBEAT_INSTANCES_FROM, _HEARTBEAT_MAX, _CONSUMER_REGEX_FROM, _CONSUMER_MAX
cdef int _SHARE_VERSION
cdef int _COMMIT_MIN, _COMMIT_MAX, _COMMIT_RETENTION_TO, _COMMIT_EPOCHS_FROM, _COMMIT_INSTANCES_FROM
cdef int _COMMIT_FLEXIBLE_FROM, _COMMIT_IDS_FROM, _COMMIT_THROTTLE_FROM

@cython.locals(length=int64_t)
cdef (int64_t, Py_ssize_t) _text_at(Octets buf, Py_ssize_t pos, Py_ssize_t end, int width) noexcept

@cython.locals(version=int, start=int64_t)
cdef Py_ssize_t _read_header(
    Octets buf, Py_ssize_t pos, Py_ssize_t end, int key, int flexible_from, int64_t[::1] found) noexcept

@cython.locals(width=int, start=int64_t)
cdef Py_ssize_t _read_member(
    Octets buf, Py_ssize_t pos, Py_ssize_t end, bint is_flexible, bint is_epoch_last, int64_t[::1] found) noexcept

cpdef bint read_plain_heartbeat(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t[::1] found) noexcept

@cython.locals(is_flexible=bint, start=int64_t)
cdef bint _read_heartbeat(Octets buf, Py_ssize_t pos, Py_ssize_t end, int64_t[::1] found) noexcept

cpdef bint read_plain_consumer_heartbeat(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t[::1] found) noexcept

@cython.locals(nulls=int, start=int64_t)
cdef bint _read_consumer_heartbeat(Octets buf, Py_ssize_t pos, Py_ssize_t end, int64_t[::1] found) noexcept

cdef bint _has_nothing_else(Octets buf, Py_ssize_t pos, Py_ssize_t end) noexcept

cpdef bint read_plain_share_heartbeat(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t[::1] found) noexcept

cdef bint _read_share_heartbeat(Octets buf, Py_ssize_t pos, Py_ssize_t end, int64_t[::1] found) noexcept

cpdef int read_plain_commit(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t[::1] found, int64_t[::1] rows) noexcept

@cython.locals(
    version=int, is_flexible=bint, text_width=int, array_width=int, start=int64_t, topics=int64_t, row_bytes=int,
    count=int, row=Py_ssize_t, topic_end=Py_ssize_t, partitions=int64_t, at=int64_t)
cdef int _read_commit(
    Octets buf, Py_ssize_t pos, Py_ssize_t end, int64_t[::1] found, int64_t[::1] rows) noexcept

@cython.locals(to=Out, version=int, is_flexible=bint, pos=Py_ssize_t)
cpdef Py_ssize_t write_heartbeat_answer(const int64_t[::1] found, uint8_t[::1] out, Py_ssize_t at) noexcept

cpdef Py_ssize_t consumer_heartbeat_answer_bytes(const int64_t[::1] found) noexcept

@cython.locals(to=Out, start=Py_ssize_t, end=Py_ssize_t, pos=Py_ssize_t)
cpdef Py_ssize_t write_consumer_heartbeat_answer(
    const int64_t[::1] found, int64_t interval_ms, const uint8_t[::1] buf, uint8_t[::1] out, Py_ssize_t at) noexcept

@cython.locals(size=Py_ssize_t, row=Py_ssize_t)
cpdef Py_ssize_t commit_answer_bytes(const int64_t[::1] rows, int count) noexcept

@cython.locals(
    to=Out, version=int, is_flexible=bint, topics=int64_t, row=Py_ssize_t, number=int, pos=Py_ssize_t, start=Py_ssize_t,
    end=Py_ssize_t, left=int64_t)
cpdef Py_ssize_t write_commit_answer(
    const int64_t[::1] found, const int64_t[::1] rows, int count, const uint8_t[::1] buf, uint8_t[::1] out,
    Py_ssize_t at) noexcept
