# Fields of a fixed size at their places in a buffer, as inline C, for octets.py: a call into another compiled module goes
# through a pointer, and takes longer than the field. A compiler makes one load or store of each, with its bytes turned.
from libc.stdint cimport int64_t, uint8_t

cdef extern from *:
    """
    #ifndef HEADRACE_OCTET_FIELDS
    #define HEADRACE_OCTET_FIELDS
    #include <stddef.h>
    #include <stdint.h>

    static inline int64_t headrace_int16_at(const uint8_t *buf, ptrdiff_t pos) {
        return (int16_t)(uint16_t)(buf[pos] << 8 | buf[pos + 1]);
    }

    static inline int64_t headrace_uint32_at(const uint8_t *buf, ptrdiff_t pos) {
        return (int64_t)((uint32_t)buf[pos] << 24 | (uint32_t)buf[pos + 1] << 16 | (uint32_t)buf[pos + 2] << 8
            | (uint32_t)buf[pos + 3]);
    }

    static inline int64_t headrace_int32_at(const uint8_t *buf, ptrdiff_t pos) {
        return (int32_t)(uint32_t)headrace_uint32_at(buf, pos);
    }

    static inline int64_t headrace_int64_at(const uint8_t *buf, ptrdiff_t pos) {
        return (int64_t)((uint64_t)headrace_uint32_at(buf, pos) << 32 | (uint64_t)headrace_uint32_at(buf, pos + 4));
    }

    static inline ptrdiff_t headrace_put16(uint8_t *out, ptrdiff_t pos, int64_t value) {
        out[pos] = (uint8_t)(value >> 8);
        out[pos + 1] = (uint8_t)value;
        return pos + 2;
    }

    static inline ptrdiff_t headrace_put32(uint8_t *out, ptrdiff_t pos, int64_t value) {
        out[pos] = (uint8_t)(value >> 24);
        out[pos + 1] = (uint8_t)(value >> 16);
        out[pos + 2] = (uint8_t)(value >> 8);
        out[pos + 3] = (uint8_t)value;
        return pos + 4;
    }

    static inline ptrdiff_t headrace_put64(uint8_t *out, ptrdiff_t pos, int64_t value) {
        return headrace_put32(out, headrace_put32(out, pos, value >> 32), value);
    }
    #endif
    """
    int64_t int16_at "headrace_int16_at"(const uint8_t *buf, Py_ssize_t pos) noexcept nogil
    int64_t uint32_at "headrace_uint32_at"(const uint8_t *buf, Py_ssize_t pos) noexcept nogil
    int64_t int32_at "headrace_int32_at"(const uint8_t *buf, Py_ssize_t pos) noexcept nogil
    int64_t int64_at "headrace_int64_at"(const uint8_t *buf, Py_ssize_t pos) noexcept nogil
    Py_ssize_t put16 "headrace_put16"(uint8_t *out, Py_ssize_t pos, int64_t value) noexcept nogil
    Py_ssize_t put32 "headrace_put32"(uint8_t *out, Py_ssize_t pos, int64_t value) noexcept nogil
    Py_ssize_t put64 "headrace_put64"(uint8_t *out, Py_ssize_t pos, int64_t value) noexcept nogil
