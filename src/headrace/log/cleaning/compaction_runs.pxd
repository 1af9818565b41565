# The C types of compaction_runs.py's names; see records/format2/kernel.pxd.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef int _HEADER_BYTES, _LOG_OVERHEAD, _CHECKED_FROM, _MAGIC, _NOT_PLAIN
cdef bint _BY_INSTRUCTION

cdef inline uint32_t _crc(const uint8_t[::1] buf, Py_ssize_t start, Py_ssize_t end) noexcept

@cython.locals(first=int64_t)
cdef inline int64_t _uint32(const uint8_t[::1] buf, Py_ssize_t pos) noexcept

@cython.locals(value=int64_t)
cdef inline int64_t _int32(const uint8_t[::1] buf, Py_ssize_t pos) noexcept

cdef inline int64_t _int64(const uint8_t[::1] buf, Py_ssize_t pos) noexcept

@cython.locals(length=int64_t, base_offset=int64_t, last_delta=int64_t, size=int64_t)
cdef inline int64_t _plain_size(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t expected, int64_t next_base) noexcept

@cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
cdef inline bint _holds(const int64_t[::1] ascending, int64_t number) noexcept

@cython.locals(
    latest=int64_t, end=Py_ssize_t, size=int64_t, base_offset=int64_t, last_offset=int64_t, reached=int64_t)
cpdef (Py_ssize_t, int64_t, int64_t, int64_t) learn(
    const uint8_t[::1] buf, Py_ssize_t pos, int64_t expected, int64_t next_base, int64_t from_offset,
    uint64_t[::1] table, int64_t slots, int64_t entries, int64_t entries_max, uint64_t key0, uint64_t key1) noexcept

@cython.locals(
    read=int64_t, kept=int64_t, keyless=int64_t, end=Py_ssize_t, places_max=Py_ssize_t, size=int64_t,
    base_offset=int64_t, last_offset=int64_t, count=int64_t, stay=int64_t, tombstones=int64_t, _latest=int64_t,
    without_key=int64_t)
cpdef (Py_ssize_t, int64_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, int64_t, int64_t, int64_t) sift(
    const uint8_t[::1] buf, Py_ssize_t pos, int64_t expected, int64_t next_base, int64_t latest_offset,
    const uint64_t[::1] table, int64_t slots, uint64_t key0, uint64_t key1, uint8_t[::1] keep,
    const int64_t[::1] lasts, int64_t[::1] state, int64_t[::1] places, Py_ssize_t placed, int64_t[::1] times,
    Py_ssize_t timed, int64_t written, uint8_t[::1] out, Py_ssize_t at) noexcept
