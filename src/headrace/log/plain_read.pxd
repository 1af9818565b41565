# The C types of plain_read.py's names; plain_read.py itself stays plain Python. See kernel.pxd on `inline`.
cimport cython
from cpython.array cimport array
from libc.stdint cimport int64_t, uint8_t

from headrace.log.append_state cimport FileEnd, LogEnd, SegmentEnd
from headrace.log.segment.index_columns cimport IndexColumns
from headrace.log.segment.tail_cache cimport TailCache
from headrace.octets cimport Out, int32_at, int64_at

cdef int _POSITION, _SIZE, _HEADER_BYTES, _MAGIC_AT, _MAGIC, _LENGTH_AT, _DELTA_AT, _PREFIX_BYTES
cdef int64_t _CHUNK_BYTES, _INT32_MAX
cdef uint8_t[::1] _chunk

@cython.locals(
    log_end_offset=int64_t, segment=SegmentEnd, segment_end=int64_t, number=Py_ssize_t,
    position=int64_t, batch_bytes=int64_t, end=int64_t, size=int64_t)
cpdef read_plain(
    LogEnd log, int64_t offset, int64_t max_bytes, int64_t end_offset, bint at_least_one, int64_t[::1] place)

@cython.locals(
    recent=TailCache, offsets=array, positions=array, slot=Py_ssize_t, count=Py_ssize_t, position=int64_t,
    following=int64_t)
cdef inline bint _find(LogEnd log, SegmentEnd segment, int64_t offset, int64_t[::1] place) except -1

@cython.locals(
    records=FileEnd, index=IndexColumns, base=int64_t, fd=int, end=int64_t, keys=array, values=array, slot=Py_ssize_t,
    position=int64_t, ends_at=int64_t, chunk=Out, chunk_start=int64_t, filled=int64_t, at=int64_t, first=int64_t,
    length=int64_t, delta=int64_t, size=int64_t)
cdef bint _locate(SegmentEnd segment, int64_t offset, int64_t[::1] place) except -1

@cython.locals(got=int64_t)
cdef int64_t _read(int fd, Out chunk, int64_t size, int64_t position) except -2

@cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
cdef inline Py_ssize_t _bisected_int64(array column, int64_t value) except -1

@cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
cdef Py_ssize_t _bisected_int32(array column, int64_t value) except -1

@cython.locals(found=int64_t)
cdef inline int64_t _int64_in(array column, Py_ssize_t at) except? -1

@cython.locals(found=int64_t)
cdef int64_t _int32_in(array column, Py_ssize_t at) except? -1
