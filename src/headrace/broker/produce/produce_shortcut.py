# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""The shortest way of a Produce: plain batches, from their frame to the answer without an object.

It does the work of `plain_produce` for the request that leaves nothing to decide:

    no rules of access, no quota                           `admission`, `throttling`
    partitions that are led here, without flushes to       `protocol.produce_places`, `ReplicaOffsets`
      wait for, and with the replicas that acks=all needs
    one batch for each, without attributes, stored so      `records.format2.plain_batch`
    appends that are arithmetic and one write              `log.append_state`

In any other case it returns 0 with nothing done, and the dispatcher takes the frame. All batches are checked before
the first one is appended. The first append itself declines with nothing done (a new producer, a repetition, a roll); if
a later one does, the dispatcher appends the rest of the request. So the rules of refusals are not repeated here; a test
sends the same requests all ways. Within one turn of `network.receive_pass`, batches of many requests are written
together, and answered then; `refused_writes` has what follows if the disk refuses them. With acks=all and followers the
answer waits in the queues of the partitions (`commit_queue`); if a batch fails then, the dispatcher makes another one.
Compiled; it also runs uncompiled.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from headrace.broker.produce.commit_queue import CommitQueues, Place, Refuse, place_of
from headrace.broker.produce.refused_writes import RefusedWrites
from headrace.broker.produce.waiting_answer import WaitingAnswer, waiting_answer
from headrace.clocks import wall_clock_ms
from headrace.log.append_state import LateWrites
from headrace.network.connection import WAITS, Connection, Shortcut
from headrace.network.request_times import AnsweredAtOnce, RequestTimes, Timed
from headrace.protocol.produce_places import PLACES, ROWS_MAX, read_produce_places, write_placed_answer
from headrace.records.format2.plain_batch import BATCH_FIELDS, is_plain
from headrace.topics import INTERNAL_TOPICS

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if cython.compiled:
    from cython.cimports.headrace.clock_calls import wall_ms
    from cython.cimports.headrace.protocol.produce_places import read_places, write_answer
else:
    from headrace.octets import bytes_at, text_at

if TYPE_CHECKING:
    from headrace.broker.partitions.partition import Partition
    from headrace.broker.services import Services
    from headrace.errors import KafkaError

_VERSION, _ANSWER_BYTES, _ACKS, _TIMEOUT, _HEADER_END, _HEAD_FIELDS = 0, 3, 4, 5, 6, 7
_ACKS_ALL = -1
_TOPIC_AT, _TOPIC_END, _OF_TOPIC, _INDEX, _RECORDS_AT, _RECORDS_END, _BASE_OFFSET, _LOG_START = 0, 1, 2, 3, 4, 5, 6, 7
_ROW_FIELDS = 8
_COUNT, _MAX_TIMESTAMP, _PRODUCER_ID, _PRODUCER_EPOCH, _BASE_SEQUENCE, _BATCH_FIELDS = 0, 1, 2, 3, 4, BATCH_FIELDS
_ONE, _LATE_ROWS_MAX = 1, 16  # as C integers
_PLACE_BITS = 5  # an answer has more than 32 bytes: no two begin at the same place of 32
_IDS_FROM, _NAME_BYTES_MAX, _WAITS = 13, 249, WAITS
_KEYS_MAX = 64  # so many partitions' keys of the last topic are kept

AppendRest = Callable[
    [Connection, memoryview, "list[Partition]", "list[tuple[int, int, int]]", "dict[int, KafkaError]", int], None
]
"""Appends the batches of a frame behind those that are appended already, or refused, and sees to the answer."""


class ProduceShortcut(Shortcut):
    """The plain produces that come to a dispatcher."""

    __slots__ = (
        "_admission", "_append_rest", "_batches", "_by_version", "_checks_records", "_clock", "_found",
        "_has_followers", "_has_wall_clock", "_keys", "_late_partitions", "_late_places", "_late_writes", "_name",
        "_name_bytes", "_named", "_named_by", "_now_ms", "_partitions", "_purgatory", "_queues", "_refuse",
        "_refused", "_request", "_services", "_throttling", "_times", "_turn_s", "_versions", "_watched", "taken",
        "waited",
    )  # fmt: skip

    def __init__(
        self,
        services: Services,
        times: RequestTimes,
        append_rest: AppendRest,
        queues: CommitQueues,
        refuse: Refuse,
    ) -> None:
        """`times`: of all produces. `queues`: of the requests that wait. `refuse`: answers such a request, which is a
        `WaitingAnswer`, if it fails."""
        super().__init__()
        self._queues, self._refuse, self._clock = queues, refuse, services.loop.time
        self._services, self._times, self._by_version = services, times, times.by_version
        self._append_rest = append_rest
        self._admission, self._throttling, self._now_ms = services.admission, services.throttling, services.now_ms
        self._partitions = services.replicas.partitions
        self._purgatory, self._watched = services.purgatory, services.purgatory.watched
        self._request = memoryview(array("q", bytes(8 * PLACES)))
        self._batches = memoryview(array("q", bytes(8 * BATCH_FIELDS * ROWS_MAX)))
        self._found: list[Any] = [None] * ROWS_MAX  # the partition of each row, while it is handled
        self._checks_records = services.config.records_check
        self._has_wall_clock = services.now_ms is wall_clock_ms
        self._name, self._name_bytes = memoryview(bytearray(_NAME_BYTES_MAX)), 0  # the last name or id, as it was sent
        self._named = ""  # the topic of this name
        self._named_by: Any = None  # the names by ids that have this id
        self._keys: list[Any] = [None] * _KEYS_MAX  # of this topic's partitions
        self._has_followers = False  # whether a partition of the last request has
        self.taken = self.waited = 0
        """How many were appended, and how many of these had to wait."""
        self._late_writes = LateWrites()
        self._late_partitions: list[Partition] = []  # of each log that it has; its place is the log's slot
        self._late_places: list[Place] = []  # what requests wait for when it is written
        self._turn_s = -1.0  # the loop's time in this turn, if somebody waits
        self._refused = RefusedWrites()
        self._versions = memoryview(bytearray((len(self.out) >> _PLACE_BITS) + 1))  # of answers, by their places

    def has_room(self, size: int) -> bool:
        """See `Shortcut`."""
        return self._late_writes.has_room(size, _LATE_ROWS_MAX)

    def write_late(self) -> int:
        """See `Shortcut`."""
        failed = self._late_writes.write()
        if failed:
            self._refused.begin()
            for slot, refused in self._late_writes.refused.items():
                self._refused.add(self._late_partitions[slot], refused)
        now_ms = 0
        slot = -1
        for partition in self._late_partitions:
            slot += 1
            state = partition.state
            if not (state.commits_at_once or failed >> slot & 1):
                if not now_ms:
                    now_ms = wall_ms() if cython.compiled and self._has_wall_clock else self._now_ms()
                state.on_leader_append(partition.log.log_end_offset, now_ms)
        return failed

    def refused_late(self, start: int, end: int) -> bytes:
        """See `Shortcut`."""
        out, answers = memoryview(self.out), []
        while start < end:
            size = 4 + int.from_bytes(out[start : start + 4], "big")
            answers.append(self._refused.answer(out[start : start + size], self._versions[start >> _PLACE_BITS]))
            start += size
        return b"".join(answers)

    def wake_late(self) -> None:
        """See `Shortcut`."""
        self._turn_s = -1.0
        if self._late_places:
            self._settle_late()
        partitions, self._late_partitions = self._late_partitions, []
        if self._watched:
            for partition in partitions:
                partition.touch_appended(self._purgatory)

    def timed(self, connection: Connection) -> Timed:
        """See `Shortcut`."""
        now_ns = monotonic_ns()
        made = AnsweredAtOnce(self._times, connection.received_ns, connection.looked_ns, now_ns)
        connection.looked_ns = now_ns
        return made

    def answer(self, connection: Connection, octets: memoryview, start: int, end: int, at: int) -> int:
        """See `Shortcut`."""
        return self._answer(connection, octets, start, end, at)

    def offer(self, connection: Any, frame: memoryview) -> int:
        """As `answer`, for the whole `frame` of a connection of another kind, to the beginning of `out`."""
        return self._answer(connection, frame, 0, len(frame), 0)

    def _answer(self, connection: Any, octets: memoryview, start: int, end: int, at: int) -> int:
        self.mask = 0
        if self._admission.has_rules or self._throttling.is_active:
            return 0
        if cython.compiled:
            request = cython.address(self._request[0])
            count = read_places(cython.address(octets[0]), start, end, request)
        else:
            request = self._request
            count = read_produce_places(octets, start, end, request)
        if not count or at + request[_ANSWER_BYTES] > len(self.out):
            return 0
        if count > _LATE_ROWS_MAX and self.late is not None:
            self.late.flush()
            self.late = None
            if connection.is_closed:
                return 0
        now_ms = wall_ms() if cython.compiled and self._has_wall_clock else self._now_ms()
        appended = self._append(octets, count, now_ms) if self._check(octets, count, now_ms) else 0
        if appended == count:
            self.taken += 1
            self._versions[at >> _PLACE_BITS] = request[_VERSION]
            if cython.compiled:
                answer_end = write_answer(cython.address(octets[0]), request, count, cython.address(self.out[0]), at)
            else:
                answer_end = write_placed_answer(octets, request, count, self.out, at)
            if self._must_wait(connection) and self._wait(connection, octets, start, count, at, answer_end):
                at = _WAITS
            else:
                at = answer_end
        elif appended:
            self._leave_rest(connection, octets, start, end, count, appended, now_ms)
            at = _WAITS
        else:
            at = 0
        if at:
            self._by_version[request[_VERSION]] += 1
        while count:  # a deleted partition has files
            count -= 1
            self._found[count] = None
        return at

    def _check(self, octets: memoryview, count: int, now_ms: int) -> bool:
        """Whether so many batches may be appended here, as they are. Fills the rows of `_found` and `_batches`."""
        if cython.compiled:
            request, batches = cython.address(self._request[0]), cython.address(self._batches[0])
        else:
            request, batches = self._request, self._batches
        row, batch, number, topic = _HEAD_FIELDS, 0, 0, ""
        self._has_followers = False
        while number < count:
            if request[row + _OF_TOPIC]:
                named = self._topic_of(octets, request[row + _TOPIC_AT], request[row + _TOPIC_END])
                if named is None:
                    return False
                topic = named
            index = request[row + _INDEX]
            partition = self._partitions.get(self._key_of(topic, index))
            if partition is None:
                return False
            if 0 <= index < _KEYS_MAX and topic is self._named:
                self._keys[index] = partition.key  # found by its identity the next time
            state, log = partition.state, partition.log
            if not state.commits_at_once or not state.is_leader:
                if not state.commits_by_fetches or (request[_ACKS] == _ACKS_ALL and not state.takes_acks_all()):
                    return False
                self._has_followers = True
            if not log.stores_what_is_sent or now_ms > log.before_max_ms:
                return False
            if not is_plain(
                octets, request[row + _RECORDS_AT], request[row + _RECORDS_END], log.batch_bytes_max, log.keys_required,
                self._checks_records, self._batches, batch,
            ):  # fmt: skip
                return False
            if batches[batch + _MAX_TIMESTAMP] - now_ms > log.after_max_ms:
                return False
            self._found[number] = partition
            row += _ROW_FIELDS
            batch += _BATCH_FIELDS
            number += 1
        return True

    def _append(self, octets: memoryview, count: int, now_ms: int) -> int:
        """Appends so many checked batches. Returns how many are appended: up to the first one that is not plain to the
        log."""
        if cython.compiled:
            request, batches = cython.address(self._request[0]), cython.address(self._batches[0])
        else:
            request, batches = self._request, self._batches
        row, batch, number = _HEAD_FIELDS, 0, 0
        while number < count:
            partition = self._found[number]
            state, log, traffic = partition.state, partition.log, partition.traffic
            from_, to, records = request[row + _RECORDS_AT], request[row + _RECORDS_END], batches[batch + _COUNT]
            late = None if self.late is None or log.writes_at_once else self._late_writes
            base_offset = log.append_plain(
                octets, from_, to, state.leader_epoch, now_ms, records, batches[batch + _MAX_TIMESTAMP],
                batches[batch + _PRODUCER_ID], batches[batch + _PRODUCER_EPOCH], batches[batch + _BASE_SEQUENCE], late,
            )  # fmt: skip
            if base_offset < 0:
                break
            if late is not None:
                slot = late.last_slot
                self.mask |= _ONE << slot
                if slot == len(self._late_partitions):
                    self._late_partitions.append(partition)
            if state.commits_at_once:
                state.committed_to(base_offset + records)
            elif late is None:
                state.on_leader_append(base_offset + records, now_ms)
            traffic.appended(records, to - from_)
            if late is None and self._watched:
                partition.touch_appended(self._purgatory)
            request[row + _BASE_OFFSET], request[row + _LOG_START] = base_offset, log.log_start_offset
            row += _ROW_FIELDS
            batch += _BATCH_FIELDS
            number += 1
        return number

    def _must_wait(self, connection: Any) -> bool:
        """Whether the answer may have to wait: for replicas, or for its time until all is written."""
        if self._has_followers and self._request[_ACKS] == _ACKS_ALL:
            return True
        if not self.mask:
            return False
        if cython.compiled and isinstance(connection, Connection):
            own = connection
            return own._answers.order.count > 0
        return bool(connection.has_waiting)

    def _wait(
        self, connection: Any, octets: memoryview, start: int, count: int, answer_start: int, answer_end: int
    ) -> bool:
        """Lets the answer wait, if replicas do not have all batches, or until all is written. Whether it does."""
        if cython.compiled:
            request, batches = cython.address(self._request[0]), cython.address(self._batches[0])
        else:
            request, batches = self._request, self._batches
        row, batch, number = _HEAD_FIELDS, 0, 0
        all_replicas = request[_ACKS] == _ACKS_ALL
        waiting: WaitingAnswer | None = None
        while number < count:
            partition = self._found[number]
            state = partition.state
            commit_to = request[row + _BASE_OFFSET] + batches[batch + _COUNT]
            if self.mask or (not state.commits_at_once and commit_to > state.high_watermark):
                if waiting is None:
                    waiting = self._waiting(connection, octets, start, count, answer_start, answer_end)
                place = place_of(
                    waiting, number, partition, request[row + _BASE_OFFSET], commit_to if all_replicas else 0,
                    state.leading_since,
                )  # fmt: skip
                if self.mask:
                    self._late_places.append(place)
                else:
                    waiting.wait(self._queues.of(partition), place)
            row += _ROW_FIELDS
            batch += _BATCH_FIELDS
            number += 1
        if waiting is None:
            return False
        self.waited += 1
        return True

    def _settle_late(self) -> None:
        """Lets the requests whose writes were put off wait for replicas, or answers them."""
        settling, self._late_places = self._late_places, []
        has_refused = len(self._late_writes.refused) > 0
        last: WaitingAnswer | None = None
        for each in settling:
            place = each
            waiting: Any = place.request
            if last is not None and waiting is not last:
                last.settle()
            last = waiting
            if waiting.is_over:
                continue
            partition = place.partition
            refused = self._refused.error_of(partition.key, place.base_offset) if has_refused else None
            if refused is not None:
                waiting.refuse(place.number, refused)
            elif place.commit_to > partition.state.high_watermark:
                waiting.wait(self._queues.of(partition), place)
        if last is not None:
            last.settle()

    def _waiting(
        self, connection: Any, octets: memoryview, start: int, count: int, answer_start: int, answer_end: int
    ) -> WaitingAnswer:
        """What waits for an answer, with a place in the order of its connection's."""
        header = bytes_at(octets, start, self._request[_HEADER_END])
        frame = bytes_at(self.out, answer_start, answer_end)
        partition = self._found[0]
        keys = [each.key for each in self._found[:count]] if count > 1 else None
        now_s: float = self._turn_s
        if now_s < 0:
            now_s = self._clock()
            if self.mask:  # the turn ends with `wake_late`
                self._turn_s = now_s
        timeout_ms: int = self._request[_TIMEOUT]
        deadline = now_s + max(0, timeout_ms) / 1000.0  # of C integers, which 1000 would divide as such
        return waiting_answer(
            connection, self._times, header, frame, partition.key, count, keys, self._refuse, deadline
        )

    def _leave_rest(
        self, connection: Any, octets: memoryview, start: int, end: int, count: int, appended: int, now_ms: int
    ) -> None:
        """Lets the dispatcher append the batches behind the first `appended` ones."""
        request, row, has_refused = self._request, _HEAD_FIELDS, False
        if self.late is not None:
            self.late.flush()
            has_refused = self.mask != 0 and bool(self._late_writes.refused)
        placed: list[tuple[int, int, int]] = []
        refused: dict[int, KafkaError] = {}
        while len(placed) < appended:
            base_offset = request[row + _BASE_OFFSET]
            error = self._refused.error_of(self._found[len(placed)].key, base_offset) if has_refused else None
            if error is not None:
                refused[len(placed)] = error
                placed.append((-1, -1, -1))
            else:
                placed.append((base_offset, -1, request[row + _LOG_START]))
            row += _ROW_FIELDS
        self._append_rest(connection, memoryview(octets)[start:end], self._found[:count], placed, refused, now_ms)

    def _topic_of(self, octets: memoryview, at: int, end: int) -> str | None:
        """The name of the topic in `octets[at:end]`. None if it is unknown, or clients may not write to it. A client
        names the same topic again and again, so that the last name often is the next one."""
        size, names = end - at, None
        if self._request[_VERSION] >= _IDS_FROM:
            names = self._services.metadata.snapshot.names_by_id
        if size == self._name_bytes and names is self._named_by and _is_same(self._name, octets, at, size):
            return self._named
        if size > _NAME_BYTES_MAX:
            return None
        if names is None:
            named: str | None = text_at(octets, at, end)
        else:
            named = names.get(bytes_at(octets, at, end))
        if named is None or named in INTERNAL_TOPICS:
            return None
        self._name[:size], self._name_bytes, self._named_by = octets[at:end], size, names
        if named != self._named:
            self._named, self._keys = named, [None] * _KEYS_MAX
        return self._named

    def _key_of(self, topic: str, index: int) -> tuple[str, int]:
        """The key of a partition; its own, if its topic is that of the last batch and it was found before."""
        if 0 <= index < _KEYS_MAX and topic is self._named and self._keys[index] is not None:
            key: tuple[str, int] = self._keys[index]
            return key
        return topic, index


def _is_same(name: memoryview, buf: memoryview, start: int, size: int) -> bool:
    """Whether `size` bytes from `start` are those of `name`."""
    pos = 0
    while pos < size:
        if name[pos] != buf[start + pos]:
            return False
        pos += 1
    return True
