# The C types of plain_fetches.py's names; plain_fetches.py itself stays plain Python.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from headrace.broker.metrics.traffic cimport Traffic
from headrace.broker.partitions.local_replica cimport LocalReplica
from headrace.broker.replication.followed cimport Followed, Following
from headrace.log.append_state cimport LogEnd
from headrace.metadata.broker_epoch cimport BrokerEpoch
from headrace.network.peers.loan cimport Asker
from headrace.octets cimport Octets, bytes_at
from headrace.protocol.conversation.fetch_session_client cimport FetchSessionClient
from headrace.protocol.follower_fetch cimport (
    begin_request, end_request, end_topic, put_partition, put_topic, read_answer)
from headrace.replication.replica_offsets cimport ReplicaOffsets

cdef int _TOPIC_AT, _INDEX, _HIGH, _LOG_START, _RECORDS_AT, _RECORDS_END, _ROW_FIELDS
cdef int _ROWS_MAX, _VERSION_MIN, _VERSION_MAX, _BATCH_HEADER_BYTES, _LOG_OVERHEAD, _CLIENT_ID_MAX
cdef Py_ssize_t _ANSWER_MAX
cdef int64_t _INT32_MAX, _UNLIMITED, _NO_EPOCH

cdef class PlainFetches(Asker):
    cdef Following _following
    cdef object _services
    cdef dict _watched
    cdef BrokerEpoch _broker_epoch
    cdef Traffic _incoming
    cdef int64_t _broker_id, _wait_max_ms, _min_bytes, _max_bytes, _response_max_bytes, _turn
    cdef bint _has_wall_clock, _was_taken
    cdef int64_t[::1] _rows
    cdef list _asked, _told
    cdef public int64_t taken

    @cython.locals(
        following=Following, conversation=FetchSessionClient, asked=list, count=Py_ssize_t, out=uint8_t[::1],
        topics=int64_t, number=Py_ssize_t, pos=Py_ssize_t, first=Py_ssize_t, epoch=int64_t)
    cpdef Py_ssize_t ask(self, int64_t correlation_id, int version, bytes client_id) except -1

    @cython.locals(following=Following, asked=list, found=Followed, number=Py_ssize_t, count=Py_ssize_t)
    cdef bint _may_ask(self, int version, bytes client_id) except -1

    @cython.locals(each=Followed)
    cdef _note_changed(self)

    @cython.locals(
        asked=list, out=uint8_t[::1], count=Py_ssize_t, each=Followed, topic_id=bytes, of_topic=int64_t,
        number=Py_ssize_t, log=LogEnd, last_epoch=int64_t)
    cdef Py_ssize_t _put_topic(self, Py_ssize_t first, Py_ssize_t pos) except -1

    @cython.locals(
        conversation=FetchSessionClient, rows=int64_t[::1], told=list, session_id=int64_t, count=Py_ssize_t,
        number=Py_ssize_t, row=Py_ssize_t, now_ms=int64_t)
    cpdef bint take(self, const uint8_t[::1] octets, Py_ssize_t start, Py_ssize_t end) except -1

    @cython.locals(
        following=Following, rows=int64_t[::1], told=list, at=Octets, number=Py_ssize_t, row=Py_ssize_t, each=Followed)
    cdef bint _may_take(self, const uint8_t[::1] octets, Py_ssize_t count) except -1

    cdef bint _is_throttled(self, Followed each) except -1

    @cython.locals(
        rows=int64_t[::1], partition=LocalReplica, state=ReplicaOffsets, log=LogEnd, first=Py_ssize_t, is_left=bint,
        at=Py_ssize_t, end=Py_ssize_t, high_watermark=int64_t, size=Py_ssize_t, before=int64_t, start=int64_t)
    cdef _append(self, Followed each, const uint8_t[::1] octets, Py_ssize_t row, int64_t now_ms)

@cython.locals(log=LogEnd)
cdef bint _is_plain(Followed each) except -1

@cython.locals(each=Followed, other=Followed, before=Py_ssize_t)
cdef bint _is_first(list asked, Py_ssize_t number) except -1

@cython.locals(size=int64_t)
cdef bint _is_cut(const uint8_t[::1] octets, Py_ssize_t at, Py_ssize_t end) noexcept
