# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""The shortest way of a Produce: one plain batch for one partition, from its frame to its answer without an object.

It does the work of `plain_produce` for the request that leaves nothing to decide:

    no rules of access, no quota                           `admission`, `throttling`
    one partition, led here, committed at once             `protocol.single_produce`, `ReplicaOffsets.commits_at_once`
    one batch without attributes that may be stored so     `records.format2.plain_batch`
    an append that is arithmetic and one write             `log.append_state`

In any other case it returns None with nothing done, and the dispatcher takes the frame. So the rules of refusals are
not repeated here; a test sends the same requests all ways. Compiled; it also runs uncompiled.
"""

from __future__ import annotations

from array import array
from time import monotonic_ns
from typing import TYPE_CHECKING

from headrace.network.connection import Connection, Shortcut
from headrace.network.request_times import AnsweredAtOnce, RequestTimes, Timed
from headrace.protocol.single_produce import (
    ANSWER_BYTES,
    REQUEST_FIELDS,
    read_single_produce,
    write_single_answer,
)
from headrace.records.format2.plain_batch import BATCH_FIELDS, is_plain
from headrace.topics import INTERNAL_TOPICS

try:
    import cython
except ImportError:
    from headrace.records import uncompiled as cython

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
    from cython.cimports.cpython.unicode import PyUnicode_DecodeASCII

if TYPE_CHECKING:
    from headrace.broker.services import Services

_VERSION, _ACKS, _TOPIC_AT, _TOPIC_END, _INDEX, _RECORDS_AT, _RECORDS_END = 0, 2, 3, 4, 5, 6, 7
_COUNT, _MAX_TIMESTAMP, _PRODUCER_ID, _PRODUCER_EPOCH, _BASE_SEQUENCE = 0, 1, 2, 3, 4
_IDS_FROM, _ID_BYTES, _NAME_BYTES_MAX = 13, 16, 249


class SingleProduces(Shortcut):
    """The plain produces of one partition that come to a dispatcher."""

    __slots__ = (
        "_admission", "_batch", "_by_version", "_now_ms", "_out", "_partitions", "_request", "_services", "_throttling",
        "_times", "_touch", "_watched", "taken",
    )  # fmt: skip

    def __init__(self, services: Services, times: RequestTimes) -> None:
        """`times`: of all produces."""
        self._services, self._times, self._by_version = services, times, times.by_version
        self._admission, self._throttling, self._now_ms = services.admission, services.throttling, services.now_ms
        self._partitions = services.replicas.partitions
        self._watched, self._touch = services.purgatory.watched, services.purgatory.touch
        self._request = memoryview(array("q", bytes(8 * REQUEST_FIELDS)))
        self._batch = memoryview(array("q", bytes(8 * BATCH_FIELDS)))
        self._out = memoryview(bytearray(ANSWER_BYTES + _NAME_BYTES_MAX))
        self.taken = 0

    def timed(self, connection: Connection) -> Timed:
        """See `Shortcut`."""
        now_ns = monotonic_ns()
        made = AnsweredAtOnce(self._times, connection.received_ns, connection.looked_ns, now_ns)
        connection.looked_ns = now_ns
        return made

    def answer(self, connection: Connection, octets: memoryview, start: int, end: int) -> bytes | None:
        """See `Shortcut`."""
        if self._admission.has_rules or self._throttling.is_active:
            return None
        request, batch = self._request, self._batch
        if not read_single_produce(octets, start, end, request):
            return None
        topic_at, topic_end, version = request[_TOPIC_AT], request[_TOPIC_END], request[_VERSION]
        topic: str | None
        if version >= _IDS_FROM:
            topic = self._services.metadata.snapshot.names_by_id.get(bytes(octets[topic_at:topic_end]))
        elif topic_end - topic_at > _NAME_BYTES_MAX:
            return None
        else:
            topic = _text(octets, topic_at, topic_end)
        if topic is None or topic in INTERNAL_TOPICS:
            return None
        partition = self._partitions.get((topic, request[_INDEX]))
        if partition is None:
            return None
        state, log = partition.state, partition.log
        if not state.commits_at_once or not state.is_leader:
            return None
        now_ms = self._now_ms()
        if not log.stores_what_is_sent or now_ms > log.before_max_ms:
            return None
        at, to = request[_RECORDS_AT], request[_RECORDS_END]
        checks_records = self._services.config.records_check
        if not is_plain(octets, at, to, log.batch_bytes_max, log.keys_required, checks_records, batch):
            return None
        if batch[_MAX_TIMESTAMP] - now_ms > log.after_max_ms:
            return None
        count = batch[_COUNT]
        base_offset = log.append_plain(
            octets, at, to, state.leader_epoch, now_ms, count, batch[_MAX_TIMESTAMP],
            batch[_PRODUCER_ID], batch[_PRODUCER_EPOCH], batch[_BASE_SEQUENCE],
        )  # fmt: skip
        if base_offset < 0:
            return None
        state.committed_to(base_offset + count)
        traffic = partition.traffic
        traffic.appended(count, to - at)
        if self._watched:
            partition.touch_appended(self._touch)
        self._by_version[version] += 1
        self.taken += 1
        out = self._out
        return _bytes(out, write_single_answer(octets, request, base_offset, log.log_start_offset, out))


def _bytes(buf: memoryview, size: int) -> bytes:
    """The first bytes of a buffer."""
    if cython.compiled:
        made: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, cython.address(buf[0])), size)
        return made
    return bytes(buf[:size])


def _text(buf: memoryview, start: int, end: int) -> str:
    """ASCII as text."""
    if cython.compiled:
        text: str = PyUnicode_DecodeASCII(
            cython.cast(cython.p_char, cython.address(buf[start])), end - start, cython.NULL
        )
        return text
    return str(buf[start:end], "ascii")
