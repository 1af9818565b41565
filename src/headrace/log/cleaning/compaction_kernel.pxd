# The C types of compaction_kernel.py's names; see records/format2/kernel.pxd.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef uint64_t _MASK
cdef int64_t _INT64_MIN, _INT64_MAX

@cython.locals(folded=uint64_t, byte=uint64_t, shift=int)
cdef inline (int64_t, Py_ssize_t) _number(const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end) noexcept

@cython.locals(folded=uint64_t, size=int64_t)
cdef inline int64_t _number_size(int64_t value) noexcept

@cython.locals(folded=uint64_t)
cdef inline Py_ssize_t _put_number(uint8_t[::1] out, Py_ssize_t pos, int64_t value) noexcept

@cython.locals(
    length=int64_t, attributes=Py_ssize_t, timestamp=int64_t, behind=Py_ssize_t, offset=int64_t, key=Py_ssize_t,
    key_length=int64_t, value_length=int64_t)
cdef inline (Py_ssize_t, Py_ssize_t, int64_t, Py_ssize_t, int64_t, Py_ssize_t, int64_t, int64_t) _record(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end) noexcept

cdef inline uint64_t _rotated(uint64_t word, int bits) noexcept

cdef inline (uint64_t, uint64_t, uint64_t, uint64_t) _mixed(
    uint64_t v0, uint64_t v1, uint64_t v2, uint64_t v3) noexcept

@cython.locals(
    v0=uint64_t, v1=uint64_t, v2=uint64_t, v3=uint64_t, word=uint64_t, byte=uint64_t, low=uint64_t, pos=Py_ssize_t,
    at=int, _=Py_ssize_t)
cdef inline (uint64_t, uint64_t) _hash(
    const uint8_t[::1] buf, Py_ssize_t start, Py_ssize_t length, uint64_t key0, uint64_t key1) noexcept

cpdef (uint64_t, uint64_t) siphash(const uint8_t[::1] data, uint64_t key0, uint64_t key1) noexcept

@cython.locals(at=Py_ssize_t)
cdef inline Py_ssize_t _slot(const uint64_t[::1] table, uint64_t slots, uint64_t low, uint64_t high) noexcept

@cython.locals(low=uint64_t, high=uint64_t, at=Py_ssize_t, known=bint)
cpdef int put(
    uint64_t[::1] table, uint64_t slots, const uint8_t[::1] key, int64_t offset, bint is_full, uint64_t key0,
    uint64_t key1) noexcept

@cython.locals(low=uint64_t, high=uint64_t, found=int64_t)
cpdef int64_t get(
    const uint64_t[::1] table, uint64_t slots, const uint8_t[::1] key, uint64_t key0, uint64_t key1) noexcept

@cython.locals(
    delta=int64_t, key=Py_ssize_t, key_length=int64_t, _attributes=Py_ssize_t, _time=int64_t, _behind=Py_ssize_t,
    _value=int64_t, low=uint64_t, high=uint64_t, at=Py_ssize_t, _=int64_t)
cpdef (int64_t, int64_t) index(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t count, int64_t base_offset, int64_t from_offset,
    uint64_t[::1] table, int64_t slots, int64_t entries, int64_t entries_max, uint64_t key0, uint64_t key1) noexcept

@cython.locals(
    kept=int64_t, tombstones=int64_t, keyless=int64_t, latest=int64_t, row=int64_t, delta=int64_t, key=Py_ssize_t,
    key_length=int64_t, value_length=int64_t, timestamp=int64_t, _attributes=Py_ssize_t, _behind=Py_ssize_t,
    low=uint64_t, high=uint64_t, newest=int64_t, stays=bint)
cpdef (int64_t, int64_t, int64_t, int64_t) mark(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t count, int64_t base_offset, int64_t latest_offset,
    bint drop_tombstones, const uint64_t[::1] table, int64_t slots, uint64_t key0, uint64_t key1,
    uint8_t[::1] keep) noexcept

cdef inline void _copy_bytes(
    uint8_t[::1] out, Py_ssize_t at, const uint8_t[::1] buf, Py_ssize_t start, Py_ssize_t size) noexcept

@cython.locals(
    row=int64_t, start=Py_ssize_t, attributes=Py_ssize_t, timestamp=int64_t, behind=Py_ssize_t, _delta=int64_t,
    _key=Py_ssize_t, _key_length=int64_t, _value=int64_t)
cpdef Py_ssize_t copy(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t count, const uint8_t[::1] keep, int64_t shift,
    uint8_t[::1] out, Py_ssize_t at) noexcept
