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

from headrace.clocks import wall_clock_ms
from headrace.limits import SHORT_ANSWER_BYTES_MAX
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
    from cython.cimports.cpython.unicode import PyUnicode_DecodeASCII
    from cython.cimports.headrace.clock_calls import wall_ms

if TYPE_CHECKING:
    from headrace.broker.services import Services

_VERSION, _ACKS, _TOPIC_AT, _TOPIC_END, _INDEX, _RECORDS_AT, _RECORDS_END = 0, 2, 3, 4, 5, 6, 7
_COUNT, _MAX_TIMESTAMP, _PRODUCER_ID, _PRODUCER_EPOCH, _BASE_SEQUENCE = 0, 1, 2, 3, 4
_IDS_FROM, _NAME_BYTES_MAX = 13, 249


class SingleProduces(Shortcut):
    """The plain produces of one partition that come to a dispatcher."""

    __slots__ = (
        "_admission", "_batch", "_by_version", "_checks_records", "_has_wall_clock", "_index", "_key", "_name",
        "_name_bytes", "_now_ms", "_partitions", "_request", "_services", "_throttling", "_times", "_touch", "_watched",
        "taken",
    )  # fmt: skip

    def __init__(self, services: Services, times: RequestTimes) -> None:
        """`times`: of all produces."""
        super().__init__()
        self._services, self._times, self._by_version = services, times, times.by_version
        self._admission, self._throttling, self._now_ms = services.admission, services.throttling, services.now_ms
        self._partitions = services.replicas.partitions
        self._watched, self._touch = services.purgatory.watched, services.purgatory.touch
        self._request = memoryview(array("q", bytes(8 * REQUEST_FIELDS)))
        self._batch = memoryview(array("q", bytes(8 * BATCH_FIELDS)))
        self._checks_records = services.config.records_check
        self._has_wall_clock = services.now_ms is wall_clock_ms
        self._key, self._index = ("", -1), -1  # of the last request that named its topic
        self._name, self._name_bytes = memoryview(bytearray(_NAME_BYTES_MAX)), 0  # the same topic, as it was sent
        self.taken = 0
        assert ANSWER_BYTES + _NAME_BYTES_MAX <= SHORT_ANSWER_BYTES_MAX

    def timed(self, connection: Connection) -> Timed:
        """See `Shortcut`."""
        now_ns = monotonic_ns()
        made = AnsweredAtOnce(self._times, connection.received_ns, connection.looked_ns, now_ns)
        connection.looked_ns = now_ns
        return made

    def answer(self, connection: Connection, octets: memoryview, start: int, end: int, at: int) -> int:
        """See `Shortcut`."""
        if self._admission.has_rules or self._throttling.is_active:
            return 0
        request, batch = self._request, self._batch
        if not read_single_produce(octets, start, end, request):
            return 0
        key = self._key_of(octets, request)
        if key is None:
            return 0
        partition = self._partitions.get(key)
        if partition is None:
            return 0
        state, log = partition.state, partition.log
        if not state.commits_at_once or not state.is_leader:
            return 0
        now_ms = wall_ms() if cython.compiled and self._has_wall_clock else self._now_ms()
        if not log.stores_what_is_sent or now_ms > log.before_max_ms:
            return 0
        from_, to = request[_RECORDS_AT], request[_RECORDS_END]
        if not is_plain(octets, from_, to, log.batch_bytes_max, log.keys_required, self._checks_records, batch):
            return 0
        if batch[_MAX_TIMESTAMP] - now_ms > log.after_max_ms:
            return 0
        count = batch[_COUNT]
        base_offset = log.append_plain(
            octets, from_, to, state.leader_epoch, now_ms, count, batch[_MAX_TIMESTAMP],
            batch[_PRODUCER_ID], batch[_PRODUCER_EPOCH], batch[_BASE_SEQUENCE],
        )  # fmt: skip
        if base_offset < 0:
            return 0
        state.committed_to(base_offset + count)
        traffic = partition.traffic
        traffic.appended(count, to - from_)
        if self._watched:
            partition.touch_appended(self._touch)
        self._by_version[request[_VERSION]] += 1
        self.taken += 1
        return write_single_answer(octets, request, base_offset, log.log_start_offset, self.out, at)

    def _key_of(self, octets: memoryview, request: memoryview) -> tuple[str, int] | None:
        """The key of the request's partition. None if it has no key that clients may write to. A client names the same
        topic again and again, so that the last key often is the next one."""
        at, end, index = request[_TOPIC_AT], request[_TOPIC_END], request[_INDEX]
        size = end - at
        if request[_VERSION] >= _IDS_FROM:
            named: str | None = self._services.metadata.snapshot.names_by_id.get(bytes(octets[at:end]))
            return None if named is None or named in INTERNAL_TOPICS else (named, index)
        if size == self._name_bytes and index == self._index and _is_same(self._name, octets, at, size):
            return self._key
        if size > _NAME_BYTES_MAX:
            return None
        topic = _text(octets, at, end)
        if topic in INTERNAL_TOPICS:
            return None
        self._key, self._index = (topic, index), index
        self._name[:size], self._name_bytes = octets[at:end], size
        return self._key


def _is_same(name: memoryview, buf: memoryview, start: int, size: int) -> bool:
    """Whether `size` bytes from `start` are those of `name`."""
    pos = 0
    while pos < size:
        if name[pos] != buf[start + pos]:
            return False
        pos += 1
    return True


def _text(buf: memoryview, start: int, end: int) -> str:
    """ASCII as text."""
    if cython.compiled:
        text: str = PyUnicode_DecodeASCII(
            cython.cast(cython.p_char, cython.address(buf[start])), end - start, cython.NULL
        )
        return text
    return str(buf[start:end], "ascii")
