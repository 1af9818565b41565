# The C types of produce_shortcut.py's names; produce_shortcut.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t
from headrace.broker.metrics.traffic cimport Traffic
from headrace.broker.partitions.local_replica cimport LocalReplica
from headrace.broker.produce.commit_queue cimport CommitQueues, Place, WaitingProduce, place_of
from headrace.broker.produce.waiting_answer cimport WaitingAnswer, waiting_answer
from headrace.broker.request.in_force cimport QuotasInForce, RulesInForce
from headrace.broker.request.purgatory cimport Purgatory
from headrace.log.append_state cimport LateWrites, LogEnd
from headrace.network.connection cimport Connection, Shortcut
from headrace.octets cimport bytes_at, text_at
from headrace.protocol.produce_places cimport ConstFields, Fields, read_produce_places, write_placed_answer
from headrace.records.format2.plain_batch cimport is_plain
from headrace.replication.replica_offsets cimport ReplicaOffsets

cdef int _VERSION, _ANSWER_BYTES, _ACKS, _TIMEOUT, _HEADER_END, _HEAD_FIELDS, _ACKS_ALL
cdef int _TOPIC_AT, _TOPIC_END, _OF_TOPIC, _INDEX, _RECORDS_AT, _RECORDS_END, _BASE_OFFSET, _LOG_START
cdef int _ROW_FIELDS
cdef int _COUNT, _MAX_TIMESTAMP, _PRODUCER_ID, _PRODUCER_EPOCH, _BASE_SEQUENCE, _BATCH_FIELDS
cdef int64_t _ONE
cdef int _LATE_ROWS_MAX, _PLACE_BITS, _IDS_FROM, _NAME_BYTES_MAX, _WAITS, _KEYS_MAX

cdef class ProduceShortcut(Shortcut):
    cdef RulesInForce _admission
    cdef QuotasInForce _throttling
    cdef object _services, _now_ms, _times, _append_rest, _named_by
    cdef object _refuse, _clock
    cdef CommitQueues _queues
    cdef Purgatory _purgatory
    cdef double _turn_s
    cdef bint _checks_records, _has_followers, _has_wall_clock
    cdef str _named
    cdef Py_ssize_t _name_bytes
    cdef uint8_t[::1] _name
    cdef dict _partitions, _watched
    cdef list _by_version, _found, _late_partitions, _late_places, _keys
    cdef LateWrites _late_writes
    cdef object _refused
    cdef uint8_t[::1] _versions
    cdef int64_t[::1] _request, _batches
    cdef public int64_t taken, waited

    cpdef timed(self, Connection connection)

    @cython.locals(failed=int64_t, now_ms=int64_t, slot=int, partition=LocalReplica, state=ReplicaOffsets)
    cpdef int64_t write_late(self) except -1

    @cython.locals(partitions=list, partition=LocalReplica)
    cpdef wake_late(self)

    @cython.locals(size=Py_ssize_t, answers=list)
    cpdef bytes refused_late(self, Py_ssize_t start, Py_ssize_t end)

    cpdef Py_ssize_t answer(
        self, Connection connection, uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, Py_ssize_t at) except -1

    cpdef Py_ssize_t offer(self, connection, uint8_t[::1] frame) except -1

    @cython.locals(
        request=Fields, count=int, now_ms=int64_t, appended=int, answer_end=Py_ssize_t)
    cdef Py_ssize_t _answer(
        self, connection, uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, Py_ssize_t at) except -1

    @cython.locals(
        request=ConstFields, batches=ConstFields, number=int, index=int64_t, topic=object, row=Py_ssize_t, batch=Py_ssize_t,
        partition=LocalReplica, state=ReplicaOffsets, log=LogEnd)
    cdef bint _check(self, uint8_t[::1] octets, int count, int64_t now_ms) except -1

    @cython.locals(
        request=Fields, batches=ConstFields, row=Py_ssize_t, batch=Py_ssize_t, number=int,
        partition=LocalReplica, state=ReplicaOffsets, log=LogEnd, traffic=Traffic, from_=Py_ssize_t, to=Py_ssize_t, records=int64_t,
        base_offset=int64_t, late=LateWrites, slot=int)
    cdef int _append(self, uint8_t[::1] octets, int count, int64_t now_ms) except -1

    @cython.locals(
        request=ConstFields, batches=ConstFields, row=Py_ssize_t, batch=Py_ssize_t, number=int,
        partition=LocalReplica, state=ReplicaOffsets, commit_to=int64_t, all_replicas=bint, waiting=WaitingAnswer,
        place=Place)
    cdef bint _wait(
        self, connection, uint8_t[::1] octets, Py_ssize_t start, int count, Py_ssize_t answer_start,
        Py_ssize_t answer_end) except -1

    @cython.locals(own=Connection)
    cdef bint _must_wait(self, connection) except -1

    @cython.locals(
        settling=list, has_refused=bint, place=Place, waiting=WaitingProduce, last=WaitingProduce,
        partition=LocalReplica)
    cdef _settle_late(self)

    @cython.locals(partition=LocalReplica, each=LocalReplica, now_s=double, timeout_ms=int64_t, deadline=double)
    cdef WaitingAnswer _waiting(
        self, connection, uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t count, Py_ssize_t answer_start,
        Py_ssize_t answer_end)

    @cython.locals(
        request=int64_t[::1], row=Py_ssize_t, placed=list, refused=dict, base_offset=int64_t, has_refused=bint)
    cdef _leave_rest(
        self, connection, uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end, int count, int appended,
        int64_t now_ms)

    @cython.locals(size=Py_ssize_t, named=str)
    cdef object _topic_of(self, uint8_t[::1] octets, Py_ssize_t at, Py_ssize_t end)

    cdef object _key_of(self, topic, int64_t index)

@cython.locals(pos=Py_ssize_t)
cdef inline bint _is_same(const uint8_t[::1] name, const uint8_t[::1] buf, Py_ssize_t start, Py_ssize_t size) noexcept
