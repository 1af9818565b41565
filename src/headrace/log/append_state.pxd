# The C types of append_state.py's names; append_state.py itself stays plain Python. See kernel.pxd on `inline`.
cimport cython
from cpython.array cimport array
from libc.stdint cimport int64_t, uint8_t, uint32_t

from headrace.log.segment.index_columns cimport IndexColumns
from headrace.log.segment.tail_cache cimport TailCache
from headrace.octets cimport Octets, Out, int16_at, int32_at, int64_at, put32, put64, uint32_at

cdef int64_t _ONE, _INT32_MAX
cdef int _HEADER_BYTES, _LOG_OVERHEAD, _CHECKED_FROM, _MAGIC, _SPECIAL_BITS
cdef bint _BY_INSTRUCTION
cdef Py_ssize_t _LATE_BYTES_MAX, _LATE_BATCHES_MAX, _LATE_LOGS_MAX, _ROOM_BYTES
cdef int _NOT_APPENDED, _BATCHES_KEPT, _HELD_BYTES_MAX, _REMEMBERED_MAX

cdef class FileEnd:
    cdef public int64_t size, room_end
    cdef public int plain_fd
    cdef public bint has_room
    cdef public object _file

cdef class IndexSteps:
    cdef public int64_t unindexed_bytes, _interval_bytes
    cdef public bint is_full, _knows_largest
    cdef public int64_t _largest_ms, _offset_of_largest
    cdef public tuple _loaded

    @cython.locals(loaded=tuple, offsets=IndexColumns, times=IndexColumns, is_due=bint)
    cdef put_entries(self, int64_t last_offset, int64_t position)

cdef class SegmentEnd:
    cdef public int64_t base_offset, bytes_max, created_ms, roll_after_ms
    cdef public object _first_timestamp_ms
    cdef public FileEnd records
    cdef public IndexSteps indexes

cdef class SegmentsEnd:
    cdef public TailCache recent

cdef class EpochsEnd:
    cdef public int64_t latest

cdef class ProducerEnd:
    cdef public int64_t epoch, seen_ms, open_since
    cdef public list batches

cdef class ProducersEnd:
    cdef public int64_t end_offset
    cdef public dict entries
    cdef public object transactions

cdef class LateWrites
cdef class _Before

cdef class LogEnd:
    cdef public int64_t log_start_offset, log_end_offset
    cdef public object failure
    cdef public bint is_truncating, writes_at_once
    cdef public SegmentEnd active
    cdef public ProducersEnd producers
    cdef public EpochsEnd leader_epochs
    cdef public SegmentsEnd segments
    cdef public bint stamps, stores_what_is_sent, keys_required, may_be_throttled
    cdef public int64_t batch_bytes_max, before_max_ms, after_max_ms

    cpdef set_rules(self, config)

    @cython.locals(
        active=SegmentEnd, records=FileEnd, indexes=IndexSteps, base_offset=int64_t, size=int64_t, position=int64_t,
        last_offset=int64_t, first_ms=int64_t, waited_ms=int64_t, producers=ProducersEnd, entry=ProducerEnd, batch=Out)
    cpdef int64_t append_plain(
        self, uint8_t[::1] buf, Py_ssize_t start, Py_ssize_t end, int64_t leader_epoch, int64_t now_ms,
        int64_t record_count, int64_t max_timestamp_ms, int64_t producer_id, int64_t producer_epoch,
        int64_t base_sequence, LateWrites late=*) except -2

    @cython.locals(
        active=SegmentEnd, records=FileEnd, indexes=IndexSteps, file_end=int64_t, first_ms=int64_t, offset=int64_t,
        latest=int64_t, producers=dict, left=int64_t, taken=int64_t, expected=dict,
        last_id=int64_t, last_epoch=int64_t, next_sequence=int64_t, epoch=int64_t, pos=Py_ssize_t,
        size=int64_t, count=int64_t, max_timestamp_ms=int64_t, waited_ms=int64_t, producer_id=int64_t, sequence=int64_t, at=Py_ssize_t,
        base_offset=int64_t, last_offset=int64_t, run=Octets, first_batch=Octets)
    cpdef Py_ssize_t append_run(
        self, const uint8_t[::1] buf, Py_ssize_t start, Py_ssize_t end, Py_ssize_t bytes_max, int64_t now_ms) except -2

    @cython.locals(active=SegmentEnd)
    cdef _take_back(self, _Before before)

    @cython.locals(indexes=IndexSteps, last_offset=int64_t)
    cdef _note(self, int64_t base_offset, int64_t count, int64_t position, int64_t size, int64_t max_timestamp_ms)

cdef class _Before:
    cdef LogEnd log
    cdef int64_t log_end_offset, size, unindexed_bytes, largest_ms, offset_of_largest

    @cython.locals(indexes=IndexSteps)
    cdef note(self, LogEnd log)

cdef class RefusedAppends:
    cdef readonly object error
    cdef readonly int64_t batches, end_offset, records, size

cdef class LateWrites:
    cdef uint8_t[::1] _arena
    cdef int64_t[::1] _starts, _ends, _slots
    cdef list _before, _kept
    cdef Py_ssize_t _filled, _count
    cdef int _logs
    cdef bint _has_arena
    cdef readonly int last_slot
    cdef readonly dict refused

    cpdef bint has_room(self, Py_ssize_t size, Py_ssize_t batches) noexcept

    @cython.locals(slot=int, filled=Py_ssize_t, count=Py_ssize_t)
    cdef put_off(self, LogEnd log, Octets batch, Py_ssize_t size, ProducerEnd entry)

    @cython.locals(slot=int, count=int, before=_Before)
    cdef int _slot_of(self, LogEnd log) except -1

    @cython.locals(failed=int64_t, slot=int, count=int, before=_Before)
    cpdef int64_t write(self) except -1

    @cython.locals(before=_Before, log=LogEnd, records=FileEnd, size=int64_t, zeros=int64_t, written=int64_t)
    cdef bint _write_one(self, int slot) except -1

    @cython.locals(before=_Before, log=LogEnd, records=FileEnd, size=int64_t, count=int64_t, mine=list)
    cdef bint _write_again(self, int slot) except -1

    @cython.locals(before=_Before, log=LogEnd)
    cdef _take_back(self, int slot)

@cython.locals(found=IndexColumns)
cdef inline IndexColumns _columns(tuple loaded, Py_ssize_t number)

@cython.locals(offsets=IndexColumns, times=IndexColumns, of_offsets=int64_t, of_times=int64_t)
cdef int64_t _entries_left(tuple loaded) except? -1

@cython.locals(batches=list, sequence=int64_t)
cdef _keep(
    ProducerEnd entry, int64_t base_sequence, int64_t record_count, int64_t last_offset, int64_t max_timestamp_ms, int64_t now_ms)

cdef bint _is_next(ProducerEnd entry, expected, int64_t epoch, int64_t base_sequence) except -1

@cython.locals(offsets=array, positions=array, count=Py_ssize_t)
cdef inline _remember(TailCache recent, int64_t base_offset, int64_t position)

@cython.locals(batches=list, last=int64_t)
cdef bint _follows(ProducerEnd entry, int64_t epoch, int64_t base_sequence) except -1

@cython.locals(crc=uint32_t)
cdef inline uint32_t _crc(Octets buf, Py_ssize_t start, Py_ssize_t end) noexcept

@cython.locals(zeros=int64_t)
cpdef int64_t zeros_behind(FileEnd records, int64_t end) except -1

@cython.locals(position=int64_t, zeros=int64_t, written=Py_ssize_t)
cdef Py_ssize_t _write_at_end(FileEnd records, Octets data, Py_ssize_t size) except -2

@cython.locals(written=Py_ssize_t)
cdef Py_ssize_t _write_with_zeros(int fd, Octets data, Py_ssize_t size, int64_t position, int64_t zeros) except -2

@cython.locals(written=Py_ssize_t)
cdef Py_ssize_t _write(int fd, Octets data, Py_ssize_t size, int64_t position) except -2
