# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""The shortest way of a follower: the next fetches of its session, and their answers, without message objects.

    ask    names what has changed since the last fetch, as `ReplicaFetcher` does
    take   appends the records where they were received, and takes over the leader's offsets

It fetches over a lent connection (`network.peers.loan`) as long as there is nothing to decide:

    the leader's Fetch has version 15 or later, and gave a session
    no partition is backed off, or has to be compared with the leader's log
    a changed partition is followed in the leader epoch of the session, its log accepts appends,
      and does not have to be flushed before the next fetch (`flush.messages`)
    an answer without errors and diverging epochs, of at most `ANSWER_BYTES_MAX`
    no records of a partition that the replication quota may throttle

In any other case nothing is done, the loan ends, and `ReplicaFetcher` goes on from there. Batches with which anything
is special, such as those of transactions, are appended by `follower_log`, as there. A test has followers take the same
answers all ways, and compares the requests, byte for byte, and the logs. Compiled; it also runs uncompiled.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from headrace.broker.replication import follower_log
from headrace.clocks import wall_clock_ms
from headrace.errors import KafkaError
from headrace.limits import INT32_MAX, INT64_MAX
from headrace.metadata.broker_epoch import BrokerEpoch
from headrace.network.peers.loan import Asker
from headrace.protocol.follower_fetch import (
    END_BYTES,
    HEAD_BYTES,
    PARTITION_BYTES,
    PARTITIONS_MAX,
    ROW_FIELDS,
    TOPIC_BYTES,
    VERSION_MAX,
    VERSION_MIN,
    Buffer,
    begin_request,
    end_request,
    end_topic,
    put_partition,
    put_topic,
    read_answer,
)
from headrace.types import NO_EPOCH

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if cython.compiled:
    from cython.cimports.headrace.clock_calls import wall_ms
else:
    from headrace.octets import bytes_at

if TYPE_CHECKING:
    from headrace.broker.replication.followed import Followed, Following
    from headrace.broker.replication.following import FetcherServices

ANSWER_BYTES_MAX = 1 << 20
"""Of an answer that is appended in one turn of the event loop: a batch of a producer with `batch.size=262144` and a few
more. The checksums and the writes take half a millisecond."""

_CLIENT_ID_MAX = 256
_TOPIC_AT, _INDEX, _HIGH, _LOG_START, _RECORDS_AT, _RECORDS_END, _ROW_FIELDS = 0, 1, 2, 3, 4, 5, ROW_FIELDS
_ROWS_MAX, _VERSION_MIN, _VERSION_MAX, _ANSWER_MAX = PARTITIONS_MAX, VERSION_MIN, VERSION_MAX, ANSWER_BYTES_MAX
_BATCH_HEADER_BYTES, _LOG_OVERHEAD, _INT32_MAX, _UNLIMITED, _NO_EPOCH = 61, 12, INT32_MAX, INT64_MAX, NO_EPOCH


class PlainFetches(Asker):
    """The fetches of one fetcher that take the shortest way."""

    __slots__ = (
        "_asked", "_broker_epoch", "_broker_id", "_following", "_has_wall_clock", "_incoming", "_max_bytes",
        "_min_bytes", "_response_max_bytes", "_rows", "_services", "_told", "_turn", "_wait_max_ms", "_was_taken",
        "_watched", "taken",
    )  # fmt: skip

    def __init__(self, following: Following, services: FetcherServices) -> None:
        super().__init__(HEAD_BYTES + _CLIENT_ID_MAX + _ROWS_MAX * (TOPIC_BYTES + PARTITION_BYTES) + END_BYTES)
        self._following, self._services, self._watched = following, services, services.watched
        self._incoming = services.incoming
        self._broker_id, self._has_wall_clock = services.broker_id, services.now_ms is wall_clock_ms
        epoch: Any = services.broker_epoch
        self._broker_epoch: BrokerEpoch | None = epoch if isinstance(epoch, BrokerEpoch) else None
        settings = services.settings
        self._wait_max_ms, self._min_bytes = settings.wait_max_ms, settings.min_bytes
        self._max_bytes, self._response_max_bytes = settings.max_bytes, settings.response_max_bytes
        self._rows = memoryview(array("q", bytes(8 * ROW_FIELDS * PARTITIONS_MAX)))
        self._told: list[Followed] = []  # of an answer
        self._asked: list[Followed] = []  # of the next fetch; those of the last answer, if it was taken
        self._was_taken = False
        self._turn = 0  # the number of answers
        self.taken = 0
        """How many answers were taken in."""

    def ask(self, correlation_id: int, version: int, client_id: bytes) -> int:
        """See `Asker`."""
        following, asked = self._following, self._asked
        if not self._was_taken:
            asked.clear()
        self._was_taken = False
        if not self._may_ask(version, client_id):
            self._note_changed()
            return 0
        out, conversation, count = self.out, following.conversation, len(asked)
        topics = number = 0
        while number < count:
            if _is_first(asked, number):
                topics += 1
            number += 1
        pos = begin_request(
            version, correlation_id, client_id, self._wait_max_ms, self._min_bytes, self._response_max_bytes,
            conversation.id, conversation.epoch, topics, out,
        )  # fmt: skip
        first = 0
        while first < count:
            if _is_first(asked, first):
                pos = self._put_topic(first, pos)
            first += 1
        if following.changed:
            following.changed.clear()
        asked.clear()
        epoch = self._services.broker_epoch() if self._broker_epoch is None else self._broker_epoch.value
        return end_request(self._broker_id, epoch, out, pos)

    def _may_ask(self, version: int, client_id: bytes) -> bool:
        """Whether there is nothing to decide about the next fetch. Fills `_asked`."""
        following, asked = self._following, self._asked
        if version < _VERSION_MIN or version > _VERSION_MAX or len(client_id) > _CLIENT_ID_MAX:
            return False
        if following.delayed or following.uncut or not following.by_id or not following.conversation.epoch:
            return False
        if following.changed:
            self._note_changed()
            if len(following.changed) > _ROWS_MAX:
                return False
            for key in following.changed:
                found = following.partitions.get(key)
                if found is None or not following.is_told(found):
                    asked.clear()
                    return False
                asked.append(found)
        number, count = 0, len(asked)
        while number < count:
            if not _is_plain(asked[number]):
                return False
            number += 1
        return True

    def _note_changed(self) -> None:
        """Has the fetcher tell of `_asked`, instead of the next fetch from here."""
        for each in self._asked:
            self._following.changed[each.key] = None
        self._asked.clear()

    def _put_topic(self, first: int, pos: int) -> int:
        """Writes the topic of `_asked[first]`, with all its partitions there."""
        asked, out, count = self._asked, self.out, len(self._asked)
        each: Followed = asked[first]
        topic_id, of_topic, number = each.topic_id, 0, first
        while number < count:
            each = asked[number]
            if each.topic_id == topic_id:
                of_topic += 1
            number += 1
        pos = put_topic(topic_id, of_topic, out, pos)
        number = first
        while number < count:
            each = asked[number]
            if each.topic_id == topic_id:
                log = each.partition.log
                last_epoch = log.leader_epochs.latest if each.has_epochs else _NO_EPOCH
                pos = put_partition(
                    each.index, each.leader_epoch, log.log_end_offset, last_epoch, log.log_start_offset,
                    self._max_bytes, out, pos,
                )  # fmt: skip
            number += 1
        return end_topic(out, pos)

    def take(self, octets: memoryview, start: int, end: int) -> bool:
        """See `Asker`."""
        conversation, rows, told = self._following.conversation, self._rows, self._told
        if self._asked:
            self._asked.clear()
        self._turn += 1
        if end - start > _ANSWER_MAX:
            return False
        session_id = conversation.id
        count = read_answer(octets, start, end, session_id, rows)
        if count < 0 or not self._may_take(octets, count):
            told.clear()
            return False
        conversation.answered(0, session_id)
        now_ms = wall_ms() if cython.compiled and self._has_wall_clock else self._services.now_ms()
        number = row = 0
        while number < count:
            self._append(told[number], octets, row, now_ms)
            number += 1
            row += _ROW_FIELDS
        told.clear()
        self.taken += 1
        self._was_taken = True
        return True

    def _may_take(self, octets: Buffer, count: int) -> bool:
        """Whether there is nothing to decide about an answer. Fills `_told`."""
        following, rows, told = self._following, self._rows, self._told
        at: Any = cython.address(octets[0]) if cython.compiled else octets
        if told:
            told.clear()
        number = row = 0
        while number < count:
            each = following.find(at, rows[row + _TOPIC_AT], rows[row + _INDEX])
            if each is None or each.compared is not None or each.turn == self._turn:  # or it is there twice
                return False
            each.turn = self._turn
            if rows[row + _RECORDS_END] > rows[row + _RECORDS_AT] and self._is_throttled(each):
                return False
            told.append(each)
            number += 1
            row += _ROW_FIELDS
        return True

    def _is_throttled(self, each: Followed) -> bool:
        return each.partition.log.may_be_throttled and self._services.quota.is_throttled(each.key)

    def _append(self, each: Followed, octets: memoryview, row: int, now_ms: int) -> None:
        """See `ReplicaFetcher._append`."""
        rows, partition = self._rows, each.partition
        state, log = partition.state, partition.log
        at, end, high_watermark = rows[row + _RECORDS_AT], rows[row + _RECORDS_END], rows[row + _HIGH]
        size, before, start = end - at, state.high_watermark, log.log_start_offset
        each.refusals = 0
        first = at
        if size:
            at = log.append_run(octets, at, end, size, now_ms)
        is_left = size > 0 and not _is_cut(octets, at, end)
        if at > first or not is_left:
            state.log_end_offset = log.log_end_offset
            if high_watermark > before:
                state.high_watermark = max(before, min(high_watermark, log.log_end_offset))
        if is_left or rows[row + _LOG_START] > start:
            offsets = follower_log.LeaderOffsets(high_watermark, rows[row + _LOG_START])
            left: Any = bytes_at(octets, at, end)
            try:
                follower_log.append_all(partition, offsets, memoryview(left), now_ms)
            except (KafkaError, OSError) as error:
                self._following.failed(each.key, each, error)
                return
        each.lag = max(0, high_watermark - log.log_end_offset)
        if size or log.log_start_offset != start:
            self._asked.append(each)
            self._incoming.bytes_in += size  # no quota counts them, or it would not be taken here
        if state.high_watermark != before and self._watched and each.key in self._watched:
            self._services.advanced(partition)


def _is_plain(each: Followed) -> bool:
    """Whether nothing has to be done before the next fetch of a partition."""
    log = each.partition.log
    is_plain: bool = (
        each.compared is None
        and log.failure is None
        and not log.is_truncating
        and each.partition.state.flush_count == _UNLIMITED
    )
    return is_plain


def _is_first(asked: list[Followed], number: int) -> bool:
    """Whether none before has the same topic id."""
    each, before = asked[number], 0
    while before < number:
        other = asked[before]
        if other.topic_id == each.topic_id:
            return False
        before += 1
    return True


def _is_cut(octets: Buffer, at: int, end: int) -> bool:
    """Whether `octets[at:end]` is nothing, or the beginning of a batch that the leader has cut."""
    if end - at < _BATCH_HEADER_BYTES:
        return end == at
    size = octets[at + 8] << 24 | octets[at + 9] << 16 | octets[at + 10] << 8 | octets[at + 11]
    return size <= _INT32_MAX and size + _LOG_OVERHEAD > end - at
