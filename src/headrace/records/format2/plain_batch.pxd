# The C types of plain_batch.py's names; plain_batch.py itself stays plain Python. See kernel.pxd on `inline`.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t
from headrace.octets cimport Octets, int16_at, int32_at, int64_at, uint32_at
from headrace.records.format2.kernel cimport walk

cdef int _COUNT, _MAX_TIMESTAMP, _PRODUCER_ID, _PRODUCER_EPOCH, _BASE_SEQUENCE
cdef int _HEADER_BYTES, _LOG_OVERHEAD, _CHECKED_FROM, _MAGIC
cdef bint _BY_INSTRUCTION

@cython.locals(crc=uint32_t)
cdef inline uint32_t _crc(Octets buf, Py_ssize_t size) noexcept

@cython.locals(
    batch=Octets, checked=Octets, size=int64_t, count=int64_t, producer_id=int64_t, base_sequence=int64_t, max_timestamp=int64_t, problem=int64_t,
    _=int64_t, largest=int64_t)
cpdef bint is_plain(
    const uint8_t[::1] buf, Py_ssize_t start, Py_ssize_t end, int64_t size_max, bint keys_required, bint checks_records,
    int64_t[::1] found, Py_ssize_t at=*) noexcept
