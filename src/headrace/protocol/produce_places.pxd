# The C types of produce_places.py's names; produce_places.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.octets cimport Octets, Out, int16_at, int32_at, is_ascii, length_at, put16, put32, put64, put_length

ctypedef int64_t *Fields
ctypedef const int64_t *ConstFields

cdef int _VERSION, _CORRELATION, _TOPICS, _ANSWER_BYTES, _ACKS, _TIMEOUT, _HEADER_END, _HEAD_FIELDS
cdef int _TOPIC_AT, _TOPIC_END, _OF_TOPIC, _INDEX, _RECORDS_AT, _RECORDS_END, _BASE_OFFSET, _LOG_START
cdef int _ROW_FIELDS, _ROWS_MAX
cdef int _MIN, _MAX, _LOG_START_FROM, _MESSAGES_FROM, _FLEXIBLE_FROM, _IDS_FROM
cdef int _REQUEST_BYTES_MIN, _UUID_BYTES
cdef int _ANSWER_HEAD_BYTES, _ANSWER_TOPIC_BYTES, _ANSWER_ROW_BYTES

@cython.locals(version=int, is_flexible=bint, length=int64_t, acks=int)
cdef Py_ssize_t _read_head(Octets buf, Py_ssize_t pos, Py_ssize_t end, Fields found) noexcept

@cython.locals(
    version=int, is_flexible=bint, string_width=int, array_width=int, length=int64_t, start=Py_ssize_t, topics=int64_t,
    answer_bytes=int64_t, count=int64_t, row=Py_ssize_t, topic_at=Py_ssize_t, topic_end=Py_ssize_t,
    of_topic=int64_t, left=int64_t)
cdef int read_places(Octets buf, Py_ssize_t pos, Py_ssize_t end, Fields found) noexcept

cpdef int read_produce_places(const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t[::1] found) noexcept

@cython.locals(
    version=int, is_flexible=bint, string_width=int, array_width=int, row=Py_ssize_t, left=int64_t, at=Py_ssize_t,
    topic_end=Py_ssize_t, pos=Py_ssize_t)
cdef Py_ssize_t write_answer(Octets buf, ConstFields found, int count, Out out, Py_ssize_t start) noexcept

cpdef Py_ssize_t write_placed_answer(
    const uint8_t[::1] buf, const int64_t[::1] found, int count, uint8_t[::1] out, Py_ssize_t start=*) noexcept
