# The C types of offset_batch.py's names; offset_batch.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.octets cimport Octets, Out, put16, put32, put64, put_length, put_varint

cdef int _VERSION, _GROUP, _IDS_FROM
cdef int _TOPIC_AT, _OF_TOPIC, _INDEX, _OFFSET, _LEADER_EPOCH, _METADATA_AT, _METADATA_END, _ROW_FIELDS
cdef int _HEADER_BYTES, _CRC_AT, _CHECKED_FROM, _MAGIC, _LOG_OVERHEAD
cdef int _KEY_VERSION, _VALUE_VERSION, _VALUE_VERSION_WITH_ID, _UUID_BYTES
cdef bint _BY_INSTRUCTION

@cython.locals(
    to=Out, octets=Octets, has_ids=bint, group_at=Py_ssize_t, group_bytes=int64_t, pos=Py_ssize_t, room=Py_ssize_t, topic=bytes,
    topic_bytes=int64_t, topic_number=Py_ssize_t, row=Py_ssize_t, number=int64_t, metadata_at=Py_ssize_t,
    metadata_bytes=int64_t, key_bytes=int64_t, value_bytes=int64_t, size=int64_t)
cpdef Py_ssize_t write_offset_batch(
    const uint8_t[::1] buf, const int64_t[::1] found, const int64_t[::1] rows, int count, list topics, int64_t now_ms,
    uint8_t[::1] out) except -1

@cython.locals(pos=Py_ssize_t)
cdef void _put_header(Out to, Py_ssize_t size, int64_t count, int64_t now_ms) noexcept

cdef int64_t _varint_bytes(int64_t value) noexcept

cdef Py_ssize_t _put(Octets buf, Py_ssize_t start, int64_t size, Out out, Py_ssize_t pos) noexcept
