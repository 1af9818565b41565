# The C types of recovery_kernel.py's names; recovery_kernel.py itself stays plain Python. See kernel.pxd on `inline`.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef int _HEADER_BYTES, _LOG_OVERHEAD, _CHECKED_FROM, _MAGIC, _TRANSACTIONAL, _CONTROL, _BATCHES_KEPT
cdef uint64_t _SPREAD, _UINT64_MAX
cdef bint _BY_INSTRUCTION
cdef int _BASE_OFFSET, _NEXT_OFFSET, _OFFSET_MAX, _UNINDEXED_BYTES, _INTERVAL_BYTES, _LARGEST_MS, _OFFSET_OF_LARGEST
cdef int _INDEXED_MS, _LEADER_EPOCH

@cython.locals(crc=uint32_t)
cdef inline uint32_t _crc(const uint8_t[::1] buf, Py_ssize_t start, Py_ssize_t end, bint by_instruction) noexcept nogil

cpdef uint32_t crc32c_of(const uint8_t[::1] buf, bint by_instruction) noexcept

@cython.locals(bits=int)
cpdef int folding_bits() noexcept

cpdef bint folds_in(int bits) noexcept

@cython.locals(crc=uint32_t)
cpdef uint32_t crc32c_folded_in(const uint8_t[::1] buf, int bits) noexcept

@cython.locals(first=int64_t)
cdef inline int64_t _uint32(const uint8_t[::1] buf, Py_ssize_t pos) noexcept nogil

@cython.locals(value=int64_t)
cdef inline int64_t _int32(const uint8_t[::1] buf, Py_ssize_t pos) noexcept nogil

cdef inline int64_t _int64(const uint8_t[::1] buf, Py_ssize_t pos) noexcept nogil

@cython.locals(length=int64_t)
cdef inline int64_t _plain_size(const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end) noexcept nogil

cpdef (Py_ssize_t, Py_ssize_t) note(
    int64_t[::1] state, int64_t[::1] places, Py_ssize_t placed, int64_t[::1] times, Py_ssize_t timed, int64_t position,
    int64_t size, int64_t last_offset, int64_t max_timestamp) noexcept nogil

@cython.locals(
    placed=Py_ssize_t, timed=Py_ssize_t, changes=Py_ssize_t, found=Py_ssize_t, places_max=Py_ssize_t,
    epochs_max=Py_ssize_t, size=int64_t, base_offset=int64_t, last_delta=int64_t, latest=int64_t, epoch=int64_t)
cdef inline (Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t) _take(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t window, int64_t[::1] state, int64_t[::1] places,
    int64_t[::1] times, int64_t[::1] epochs, int64_t[::1] noted, bint by_instruction) noexcept nogil

@cython.locals(
    by_instruction=bint, stop=Py_ssize_t, placed=Py_ssize_t, timed=Py_ssize_t, changes=Py_ssize_t, found=Py_ssize_t)
cpdef (Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t) take(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t window, int64_t[::1] state, int64_t[::1] places,
    int64_t[::1] times, int64_t[::1] epochs, int64_t[::1] noted, int64_t[::1] table) noexcept

@cython.locals(found=Py_ssize_t, size=int64_t, base_offset=int64_t)
cpdef (Py_ssize_t, Py_ssize_t) find_producers(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t window, int64_t from_offset, int64_t to_offset,
    int64_t[::1] noted, int64_t[::1] table) noexcept

@cython.locals(spread=uint64_t, slot=int64_t)
cdef inline int64_t _slot(int64_t[::1] table, int64_t slots, int64_t producer_id) noexcept nogil

@cython.locals(
    slots=int64_t, index=Py_ssize_t, pos=int64_t, attributes=int, producer_id=int64_t, slot=int64_t, counts=bint,
    left=Py_ssize_t)
cdef inline Py_ssize_t _keep_what_counts(
    const uint8_t[::1] buf, int64_t window, int64_t[::1] noted, Py_ssize_t found, int64_t[::1] table) noexcept nogil
