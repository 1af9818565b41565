# The C types of kernel.py's names; kernel.py itself stays plain Python.
#
# `inline` on a declaration makes Cython warn, and makes the whole three times faster: a buffer is a struct of 208 bytes,
# which every call that is not inlined copies.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef int _BAD_LENGTH, _BAD_FIELD, _BAD_OFFSET, _NO_KEY, _BAD_TIMESTAMP, _TRAILING_BYTES, _TOO_MANY
cdef int _HEADER_BYTES
cdef int64_t _INT32_MAX, _INT64_MAX, _UINT32_MAX
cdef uint64_t _MURMUR_SEED, _MURMUR_FACTOR

@cython.locals(folded=uint64_t, byte=uint64_t, shift=int)
cdef inline (int64_t, Py_ssize_t) _varint(const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end) noexcept

@cython.locals(folded=uint64_t, byte=uint64_t, shift=int)
cdef inline (int64_t, Py_ssize_t) _varlong(const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end) noexcept

@cython.locals(length=int64_t)
cdef inline (Py_ssize_t, int64_t, Py_ssize_t) _field(const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end) noexcept

@cython.locals(length=int64_t, _start=Py_ssize_t, _=int64_t)
cdef inline Py_ssize_t _skip_headers(const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t count) noexcept

@cython.locals(
    length=int64_t, timestamp_delta=int64_t, offset_delta=int64_t, key=Py_ssize_t, key_length=int64_t,
    value=Py_ssize_t, value_length=int64_t, headers=Py_ssize_t, header_count=int64_t)
cdef inline (Py_ssize_t, int64_t, int64_t, Py_ssize_t, int64_t, Py_ssize_t, int64_t, Py_ssize_t, int64_t) _record(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end) noexcept

cdef inline bint _overflows(int64_t base, int64_t delta) noexcept

cdef inline bint _difference_overflows(int64_t one, int64_t other) noexcept

@cython.locals(
    max_timestamp=int64_t, index=int64_t, timestamp=int64_t, offset=int64_t, _key=Py_ssize_t, key_length=int64_t,
    _value=Py_ssize_t, _length=int64_t, _headers=Py_ssize_t, _header_count=int64_t)
cpdef (int64_t, int64_t, int64_t) walk(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t count, int64_t base_timestamp,
    bint keys_required) noexcept

@cython.locals(
    capacity=Py_ssize_t, refused=Py_ssize_t, untimely=int64_t, index=int64_t, timestamp=int64_t, _offset=int64_t,
    _key=Py_ssize_t, key_length=int64_t, _value=Py_ssize_t, _length=int64_t, _headers=Py_ssize_t,
    _header_count=int64_t)
cpdef (int64_t, int64_t, int64_t) refused_records(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t count, int64_t base_timestamp, bint keys_required,
    int64_t earliest, int64_t latest, int64_t[::1] found) noexcept

@cython.locals(
    capacity=Py_ssize_t, key_bytes=int64_t, value_bytes=int64_t, null_keys=int64_t, null_values=int64_t,
    headers_found=int64_t, last_delta=int64_t, row=Py_ssize_t, index=int64_t, timestamp=int64_t, delta=int64_t,
    key=Py_ssize_t, key_length=int64_t, value=Py_ssize_t, value_length=int64_t, headers=Py_ssize_t,
    header_count=int64_t, span=Py_ssize_t)
cpdef (int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t) scan(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t count, int64_t base_offset,
    int64_t last_offset_delta, int64_t base_timestamp, bint is_append_time, int64_t from_offset, int64_t to_offset,
    int64_t[::1] offsets, int64_t[::1] timestamps, int32_t[::1] spans, Py_ssize_t at) noexcept

@cython.locals(
    index=int64_t, timestamp=int64_t, delta=int64_t, _key=Py_ssize_t, _key_length=int64_t, _value=Py_ssize_t,
    _length=int64_t, _headers=Py_ssize_t, _header_count=int64_t)
cpdef (int64_t, int64_t, int64_t, int64_t, int64_t) find_time(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t count, int64_t base_offset,
    int64_t base_timestamp, bint is_append_time, int64_t from_offset, int64_t from_timestamp) noexcept

@cython.locals(first=int64_t)
cdef inline int64_t _uint32_at(const uint8_t[::1] buf, Py_ssize_t pos) noexcept

@cython.locals(value=int64_t)
cdef inline int64_t _int32_at(const uint8_t[::1] buf, Py_ssize_t pos) noexcept

cdef inline int64_t _int64_at(const uint8_t[::1] buf, Py_ssize_t pos) noexcept

@cython.locals(
    found=Py_ssize_t, records=int64_t, size=int64_t, following=int64_t, length=int64_t, base_offset=int64_t,
    last_delta=int64_t, count=int64_t, held=int64_t)
cpdef (Py_ssize_t, int64_t, int64_t, int64_t) plain_run(
    const uint8_t[::1] buf, Py_ssize_t pos, Py_ssize_t end, int64_t from_offset, int64_t to_offset,
    int64_t records_max, int64_t bytes_max, Py_ssize_t least, int64_t[::1] run) noexcept

@cython.locals(
    key_bytes=int64_t, null_keys=int64_t, value_bytes=int64_t, null_values=int64_t, headers=int64_t, row=int64_t,
    index=Py_ssize_t, pos=Py_ssize_t, end=Py_ssize_t, is_append_time=bint, problem=int64_t, stop=int64_t,
    more_key_bytes=int64_t, more_null_keys=int64_t, more_value_bytes=int64_t, more_null_values=int64_t,
    more_headers=int64_t)
cpdef (int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, Py_ssize_t) scan_run(
    const uint8_t[::1] buf, const int64_t[::1] run, Py_ssize_t count, int64_t from_offset, int64_t to_offset,
    int64_t[::1] offsets, int64_t[::1] timestamps, uint8_t[::1] timestamp_types, int32_t[::1] spans,
    Py_ssize_t at) noexcept

@cython.locals(index=Py_ssize_t)
cpdef Py_ssize_t first_damaged(object buf, const int64_t[::1] run, Py_ssize_t count, object crc32c) except -1

@cython.locals(
    end=Py_ssize_t, capacity=Py_ssize_t, header=int64_t, row=Py_ssize_t, pos=Py_ssize_t, count=int64_t, _=int64_t,
    key=Py_ssize_t, key_length=int64_t, value=Py_ssize_t, value_length=int64_t)
cpdef bint scan_headers(
    const uint8_t[::1] buf, const int32_t[::1] spans, Py_ssize_t start, Py_ssize_t stop, int32_t[::1] list_offsets,
    int32_t[::1] header_spans) noexcept

cdef inline void _copy(
    uint8_t[::1] out, Py_ssize_t at, const uint8_t[::1] buf, Py_ssize_t start, Py_ssize_t size) noexcept

@cython.locals(
    has_validity=bint, to=int64_t, size=int64_t, end=int64_t, row=Py_ssize_t, at=int64_t, length=int64_t)
cpdef bint gather(
    const uint8_t[::1] buf, const int32_t[::1] spans, Py_ssize_t stride, Py_ssize_t field, Py_ssize_t start,
    Py_ssize_t stop, int32_t[::1] offsets, uint8_t[::1] data, uint8_t[::1] validity) noexcept

@cython.locals(folded=uint64_t, size=int64_t)
cdef inline int64_t _varint_size(int64_t value) noexcept

@cython.locals(folded=uint64_t)
cdef inline Py_ssize_t _put_varint(uint8_t[::1] out, Py_ssize_t pos, int64_t value) noexcept

@cython.locals(start=int64_t, length=int64_t)
cdef inline int64_t _length_at(
    const int32_t[::1] offsets, Py_ssize_t size, const uint8_t[::1] validity, Py_ssize_t row) noexcept

cdef inline bint _is_short(const int32_t[::1] offsets, const uint8_t[::1] validity, Py_ssize_t stop) noexcept

cdef inline int64_t _with_field(int64_t size, int64_t length) noexcept

@cython.locals(size=int64_t, row=Py_ssize_t)
cdef inline int64_t _headers_size(
    const int32_t[::1] key_offsets, Py_ssize_t key_bytes, const uint8_t[::1] no_validity,
    const int32_t[::1] value_offsets, Py_ssize_t value_bytes, const uint8_t[::1] value_validity,
    Py_ssize_t start, Py_ssize_t stop) noexcept

@cython.locals(
    has_order=bint, rows=Py_ssize_t, has_headers=bint, total=int64_t, first=int64_t, place=Py_ssize_t, row=Py_ssize_t,
    size=int64_t, headers=int64_t, whole=int64_t)
cpdef (Py_ssize_t, int64_t) measure(
    const int32_t[::1] key_offsets, const uint8_t[::1] key_data, const uint8_t[::1] key_validity,
    const int32_t[::1] value_offsets, const uint8_t[::1] value_data, const uint8_t[::1] value_validity,
    const int32_t[::1] list_offsets,
    const int32_t[::1] header_key_offsets, const uint8_t[::1] header_key_data,
    const uint8_t[::1] header_key_validity,
    const int32_t[::1] header_value_offsets, const uint8_t[::1] header_value_data,
    const uint8_t[::1] header_value_validity,
    const int64_t[::1] timestamps, const int32_t[::1] order, Py_ssize_t start, Py_ssize_t stop, int64_t bytes_max,
    int32_t[::1] sizes) noexcept

@cython.locals(length=int64_t)
cdef inline Py_ssize_t _put_field(
    uint8_t[::1] out, Py_ssize_t pos, const int32_t[::1] offsets, const uint8_t[::1] data,
    const uint8_t[::1] validity, Py_ssize_t row) noexcept

@cython.locals(
    has_order=bint, max_timestamp=int64_t, base=int64_t, place=Py_ssize_t, row=Py_ssize_t, size=int64_t,
    end=Py_ssize_t, first=Py_ssize_t, last=Py_ssize_t, header=Py_ssize_t)
cpdef (Py_ssize_t, int64_t) build(
    const int32_t[::1] key_offsets, const uint8_t[::1] key_data, const uint8_t[::1] key_validity,
    const int32_t[::1] value_offsets, const uint8_t[::1] value_data, const uint8_t[::1] value_validity,
    const int32_t[::1] list_offsets,
    const int32_t[::1] header_key_offsets, const uint8_t[::1] header_key_data,
    const uint8_t[::1] header_key_validity,
    const int32_t[::1] header_value_offsets, const uint8_t[::1] header_value_data,
    const uint8_t[::1] header_value_validity,
    const int64_t[::1] timestamps, const int32_t[::1] order, Py_ssize_t start, Py_ssize_t stop,
    const int32_t[::1] sizes, uint8_t[::1] out, Py_ssize_t pos) noexcept

@cython.locals(mixed=uint64_t, word=uint64_t, pos=Py_ssize_t, _=Py_ssize_t, rest=Py_ssize_t)
cdef inline uint64_t _murmur2(const uint8_t[::1] data, Py_ssize_t start, Py_ssize_t length) noexcept

@cython.locals(mixed=int64_t)
cpdef int64_t murmur2(const uint8_t[::1] data) noexcept

@cython.locals(size=Py_ssize_t, row=Py_ssize_t, length=int64_t)
cpdef Py_ssize_t partitions_of(
    const int32_t[::1] offsets, const uint8_t[::1] data, const uint8_t[::1] validity, Py_ssize_t start,
    Py_ssize_t stop, int64_t partition_count, int32_t[::1] out) noexcept

@cython.locals(count=Py_ssize_t, index=Py_ssize_t, partition=Py_ssize_t, to=Py_ssize_t)
cpdef Py_ssize_t scatter(
    const int32_t[::1] partitions, Py_ssize_t first_row, Py_ssize_t keyless, int32_t[::1] order, int32_t[::1] starts) noexcept

cpdef bytearray room(Py_ssize_t size)
