# The C types of message_kernel.py's names; message_kernel.py itself stays plain Python. See kernel.pxd on `inline`: gcc
# would not inline all of these by itself, so message_kernel.py's first line makes it (half as fast again).
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef int _CUT_OFF, _BAD_FIELD, _BAD_MAGIC, _NESTED, _BAD_OFFSET, _NO_KEY, _BAD_CRC, _BAD_TIMESTAMP, _BAD_TYPE, _TOO_MANY
cdef int _TOO_LARGE, _AT_WRAPPER, _AT_OTHER_FORMAT, _AT_OFFSET, _AT_LIMIT
cdef int64_t _INT32_MAX, _INT64_MAX, _UINT32_MAX
cdef uint32_t _CRC_POLYNOMIAL
cdef uint64_t _UINT64_MAX
cdef uint32_t[4096] _TABLES
cdef bint _CAN_FOLD

@cython.locals(byte=int, crc=uint32_t, _=int, at=int)
cdef void _make_tables() noexcept

@cython.locals(word=uint32_t)
cdef inline uint32_t _word(const uint8_t[::1] buf, Py_ssize_t pos) noexcept

cdef inline uint32_t _after_sixteen(uint32_t one, uint32_t two, uint32_t three, uint32_t four) noexcept

@cython.locals(crc=uint32_t, one=uint32_t, two=uint32_t, low=uint64_t, high=uint64_t)
cdef inline uint32_t _crc32(const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, bint folding) noexcept

cpdef uint32_t crc32_of(const uint8_t[::1] buf, bint folding) noexcept

@cython.locals(word=uint32_t)
cdef inline uint32_t _uint32(const uint8_t[::1] buf, Py_ssize_t pos) noexcept

@cython.locals(value=int64_t)
cdef inline int64_t _int32(const uint8_t[::1] buf, Py_ssize_t pos) noexcept

@cython.locals(value=uint64_t, inverted=int64_t)
cdef inline int64_t _int64(const uint8_t[::1] buf, Py_ssize_t pos) noexcept

cdef inline void _put_int32(uint8_t[::1] out, Py_ssize_t pos, int64_t value) noexcept

cdef inline void _put_int64(uint8_t[::1] out, Py_ssize_t pos, int64_t value) noexcept

cdef inline void _copy(
    uint8_t[::1] out, Py_ssize_t at, const uint8_t[::1] buf, Py_ssize_t start, Py_ssize_t size) noexcept

@cython.locals(
    magic=int, size=int64_t, key=Py_ssize_t, key_length=int64_t, value=Py_ssize_t, value_length=int64_t)
cdef inline (Py_ssize_t, int, Py_ssize_t, int64_t, Py_ssize_t, int64_t) _message(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end) noexcept

@cython.locals(
    problem=int, rows=int64_t, key_bytes=int64_t, null_keys=int64_t, value_bytes=int64_t, null_values=int64_t,
    after=Py_ssize_t, found=int, _key=Py_ssize_t, key_length=int64_t, _value=Py_ssize_t, value_length=int64_t,
    offset=int64_t, size=int64_t)
cpdef (int, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t) survey(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int magic, int64_t base_offset, int64_t last_offset,
    int64_t from_offset, int64_t to_offset, int64_t max_rows, Py_ssize_t stop_pos, bint check_crcs) noexcept

@cython.locals(to=int64_t)
cdef inline bint _put_row(
    const uint8_t[::1] buf, Py_ssize_t start, int64_t length, Py_ssize_t row, int32_t[::1] offsets,
    uint8_t[::1] data, uint8_t[::1] validity) noexcept

cdef inline bint _is_short(const int32_t[::1] offsets, const uint8_t[::1] validity, Py_ssize_t rows) noexcept

@cython.locals(
    has_keys=bint, has_values=bint, after=Py_ssize_t, magic=int, key=Py_ssize_t, key_length=int64_t,
    value=Py_ssize_t, value_length=int64_t, offset=int64_t)
cpdef (int, int64_t) fill(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t base_offset, int64_t from_offset,
    int64_t to_offset, bint is_wrapped, bint wrapper_is_append_time, int64_t wrapper_timestamp, Py_ssize_t row,
    Py_ssize_t stop, int64_t[::1] offsets, int64_t[::1] timestamps, uint8_t[::1] timestamp_types,
    int32_t[::1] key_offsets, uint8_t[::1] keys, uint8_t[::1] key_validity,
    int32_t[::1] value_offsets, uint8_t[::1] values, uint8_t[::1] value_validity) noexcept

@cython.locals(
    after=Py_ssize_t, found=int, _key=Py_ssize_t, _key_length=int64_t, _value=Py_ssize_t, _value_length=int64_t,
    offset=int64_t, timestamp=int64_t)
cpdef (int, Py_ssize_t, int64_t, int64_t, int64_t) find_time(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int magic, int64_t base_offset, int64_t last_offset,
    bint is_append_time, int64_t append_time, int64_t from_offset, int64_t from_timestamp,
    int64_t messages_max) noexcept

@cython.locals(
    count=int64_t, max_timestamp=int64_t, min_timestamp=int64_t, max_at=int64_t, last_offset=int64_t,
    consecutive=bint, after=Py_ssize_t, found=int, _key=Py_ssize_t, key_length=int64_t, _value=Py_ssize_t,
    _value_length=int64_t, attributes=int, timestamp=int64_t)
cpdef (int, int64_t, int64_t, int64_t, int64_t, int64_t, bint) check(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int magic, bint is_wrapped, bint keys_required,
    int64_t bytes_max) noexcept

@cython.locals(
    count=int64_t, after=Py_ssize_t, magic=int, _key=Py_ssize_t, _key_length=int64_t, _value=Py_ssize_t,
    _value_length=int64_t, changed=bint)
cpdef (int, int64_t) place(
    uint8_t[::1] out, Py_ssize_t pos, Py_ssize_t end, int64_t base_offset, int attributes, bint is_append_time,
    int64_t append_time) noexcept

@cython.locals(start=int64_t, length=int64_t)
cdef inline int64_t _length_at(
    const int32_t[::1] offsets, Py_ssize_t size, const uint8_t[::1] validity, Py_ssize_t row) noexcept

@cython.locals(total=int64_t, row=Py_ssize_t, key_length=int64_t, value_length=int64_t, size=int64_t)
cpdef (Py_ssize_t, int64_t) measure(
    const int32_t[::1] key_offsets, const uint8_t[::1] key_data, const uint8_t[::1] key_validity,
    const int32_t[::1] value_offsets, const uint8_t[::1] value_data, const uint8_t[::1] value_validity,
    Py_ssize_t start, Py_ssize_t stop, int64_t overhead, int64_t bytes_max) noexcept

cdef inline Py_ssize_t _put_field(
    uint8_t[::1] out, Py_ssize_t pos, int64_t length, const int32_t[::1] offsets, const uint8_t[::1] data,
    Py_ssize_t row) noexcept

@cython.locals(
    max_timestamp=int64_t, last_offset=int64_t, row=Py_ssize_t, key_length=int64_t, value_length=int64_t,
    size=int64_t, offset=int64_t, at=Py_ssize_t, timestamp=int64_t)
cpdef (int, int64_t, int64_t) build(
    const int32_t[::1] key_offsets, const uint8_t[::1] key_data, const uint8_t[::1] key_validity,
    const int32_t[::1] value_offsets, const uint8_t[::1] value_data, const uint8_t[::1] value_validity,
    const int64_t[::1] timestamps, const int64_t[::1] offsets, Py_ssize_t start, Py_ssize_t stop, int magic,
    int attributes, int64_t base_offset, bint is_append_time, int64_t append_time, uint8_t[::1] out,
    Py_ssize_t pos) noexcept
