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
from headrace.errors import KafkaError
from headrace.limits import INT64_MAX
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
from headrace.types import NO_EPOCH, TopicPartition

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if not cython.compiled:
    from headrace.octets import bytes_at

if TYPE_CHECKING:
    from headrace.broker.replication.following import FetcherServices, Followed
    from headrace.protocol.conversation.fetch_session_client import FetchSessionClient

ANSWER_BYTES_MAX = 1 << 20
"""Of an answer that is appended in one turn of the event loop: a batch of a producer with `batch.size=262144` and a few
more. The checksums and the writes take half a millisecond."""

_CLIENT_ID_MAX = 256
_TOPIC_AT, _INDEX, _HIGH, _LOG_START, _RECORDS_AT, _RECORDS_END, _ROW_FIELDS = 0, 1, 2, 3, 4, 5, ROW_FIELDS
_ROWS_MAX, _VERSION_MIN, _VERSION_MAX, _ANSWER_MAX = PARTITIONS_MAX, VERSION_MIN, VERSION_MAX, ANSWER_BYTES_MAX
_BATCH_HEADER_BYTES, _LOG_OVERHEAD, _ID_BYTES, _UNLIMITED = 61, 12, 16, INT64_MAX


class Following:
    """What a fetcher follows, which its own way changes too. The dictionaries stay the same objects."""

    __slots__ = ("by_id", "changed", "conversation", "delayed", "failed", "ids", "partitions", "uncut")

    def __init__(self, conversation: FetchSessionClient, failed: Any) -> None:
        """`failed`: called with a partition's key, the partition, and the error with which its append failed."""
        self.conversation, self.failed = conversation, failed
        self.partitions: dict[TopicPartition, Followed] = {}
        self.by_id: dict[tuple[bytes, int], Followed] = {}
        """The partitions in the leader's fetch session, those without a topic id left out."""
        # Dictionaries keep the order of insertion, so that the same events make the same requests.
        self.changed: dict[TopicPartition, None] = {}
        """The next fetch tells the session."""
        self.uncut: dict[TopicPartition, None] = {}
        """To be compared, but may be longer than the leader's log."""
        self.delayed: dict[TopicPartition, None] = {}
        """Left out of fetches until their `retry_at`."""
        self.ids: dict[str, bytes] = {}


class PlainFetches(Asker):
    """The fetches of one fetcher that take the shortest way."""

    __slots__ = ("_asked", "_following", "_ids", "_rows", "_services", "taken")

    def __init__(self, following: Following, services: FetcherServices) -> None:
        super().__init__(HEAD_BYTES + _CLIENT_ID_MAX + _ROWS_MAX * (TOPIC_BYTES + PARTITION_BYTES) + END_BYTES)
        self._following, self._services = following, services
        self._rows = memoryview(array("q", bytes(8 * ROW_FIELDS * PARTITIONS_MAX)))
        self._asked: list[Followed] = []
        self._ids: list[bytes] = []  # of their topics
        self.taken = 0
        """How many answers were taken in."""

    def ask(self, correlation_id: int, version: int, client_id: bytes) -> int:
        """See `Asker`."""
        following, settings = self._following, self._services.settings
        conversation = following.conversation
        if not self._may_ask(version, client_id):
            return 0
        asked, ids, count = self._asked, self._ids, len(self._asked)
        out, session = self.out, conversation.session
        topics = number = 0
        while number < count:
            if _is_first(ids, number):
                topics += 1
            number += 1
        pos = begin_request(
            version, correlation_id, client_id, settings.wait_max_ms, settings.min_bytes, settings.response_max_bytes,
            session[0], session[1], topics, out,
        )  # fmt: skip
        first = 0
        while first < count:
            if _is_first(ids, first):
                topic_id, of_topic, number = ids[first], 0, first
                while number < count:
                    if ids[number] == topic_id:
                        of_topic += 1
                    number += 1
                pos = put_topic(topic_id, of_topic, out, pos)
                number = first
                while number < count:
                    if ids[number] == topic_id:
                        pos = self._put(asked[number], pos)
                    number += 1
                pos = end_topic(out, pos)
            first += 1
        following.changed.clear()
        asked.clear()
        ids.clear()
        return end_request(self._services.broker_id, self._services.broker_epoch(), out, pos)

    def _may_ask(self, version: int, client_id: bytes) -> bool:
        """Whether there is nothing to decide about the next fetch. Fills `_asked`."""
        following, asked, ids = self._following, self._asked, self._ids
        asked.clear()
        ids.clear()
        if version < _VERSION_MIN or version > _VERSION_MAX or len(client_id) > _CLIENT_ID_MAX:
            return False
        if following.delayed or following.uncut or not following.by_id or len(following.changed) > _ROWS_MAX:
            return False
        if following.conversation.is_full:
            return False
        for key in following.changed:
            each = following.partitions.get(key)
            topic_id = following.ids[key.topic]
            if each is None or following.by_id.get((topic_id, key.partition)) is not each or not _is_plain(each):
                return False
            asked.append(each)
            ids.append(topic_id)
        return True

    def _put(self, each: Followed, pos: int) -> int:
        log = each.partition.log
        last_epoch = log.leader_epochs.latest if each.has_epochs else NO_EPOCH
        return put_partition(
            each.partition.key.partition, each.leader_epoch, log.log_end_offset, last_epoch, log.log_start_offset,
            self._services.settings.max_bytes, self.out, pos,
        )  # fmt: skip

    def take(self, octets: memoryview, start: int, end: int) -> bool:
        """See `Asker`."""
        following, rows, asked = self._following, self._rows, self._asked
        if end - start > _ANSWER_MAX:
            return False
        session_id = following.conversation.session[0]
        count = read_answer(octets, start, end, session_id, rows)
        if count < 0 or not self._may_take(octets, count):
            return False
        following.conversation.answered(0, session_id)
        now_ms = self._services.now_ms()
        number = row = 0
        while number < count:
            self._append(asked[number], octets, row, now_ms)
            number += 1
            row += _ROW_FIELDS
        asked.clear()
        self.taken += 1
        return True

    def _may_take(self, octets: Buffer, count: int) -> bool:
        """Whether there is nothing to decide about an answer. Fills `_asked`."""
        following, rows, asked = self._following, self._rows, self._asked
        asked.clear()
        number = row = 0
        topic_id = b""
        while number < count:
            if not number or rows[row + _TOPIC_AT] != rows[row - _ROW_FIELDS + _TOPIC_AT]:
                topic_id = bytes_at(octets, rows[row + _TOPIC_AT], rows[row + _TOPIC_AT] + _ID_BYTES)
            each = following.by_id.get((topic_id, rows[row + _INDEX]))
            if each is None or each.compared is not None:
                return False
            key = each.partition.key
            if following.partitions.get(key) is not each:
                return False
            if rows[row + _RECORDS_END] > rows[row + _RECORDS_AT] and self._services.quota.is_throttled(key):
                return False
            asked.append(each)
            number += 1
            row += _ROW_FIELDS
        return True

    def _append(self, each: Followed, octets: memoryview, row: int, now_ms: int) -> None:
        """See `ReplicaFetcher._append`."""
        rows, partition = self._rows, each.partition
        state, log = partition.state, partition.log
        at, end, high_watermark = rows[row + _RECORDS_AT], rows[row + _RECORDS_END], rows[row + _HIGH]
        size, before, start = end - at, state.high_watermark, log.log_start_offset
        each.refusals = 0
        if size:
            at = log.append_run(octets, at, end, size, now_ms)
        state.log_end_offset = log.log_end_offset
        if high_watermark > before:
            state.high_watermark = max(before, min(high_watermark, log.log_end_offset))
        if (size and not _is_cut(octets, at, end)) or rows[row + _LOG_START] > start:
            offsets = follower_log.LeaderOffsets(high_watermark, rows[row + _LOG_START])
            left: Any = bytes_at(octets, at, end)
            try:
                follower_log.append_all(partition, offsets, memoryview(left), now_ms)
            except (KafkaError, OSError) as error:
                self._following.failed(partition.key, each, error)
                return
        each.lag = max(0, high_watermark - log.log_end_offset)
        if size or log.log_start_offset != start:
            self._following.changed[partition.key] = None
            self._services.received(partition.key, size)
        if state.high_watermark != before:
            self._services.advanced(partition)


def _is_plain(each: Any) -> bool:
    """Whether nothing has to be done before the next fetch of a partition."""
    log = each.partition.log
    is_plain: bool = (
        each.compared is None
        and log.failure is None
        and not log.is_truncating
        and each.partition.state.flush_count == _UNLIMITED
    )
    return is_plain


def _is_first(ids: list[bytes], number: int) -> bool:
    """Whether no topic before has the same id."""
    before = 0
    while before < number:
        if ids[before] == ids[number]:
            return False
        before += 1
    return True


def _is_cut(octets: Buffer, at: int, end: int) -> bool:
    """Whether `octets[at:end]` is nothing, or the beginning of a batch that the leader has cut."""
    if end - at < _BATCH_HEADER_BYTES:
        return end == at
    size = octets[at + 8] << 24 | octets[at + 9] << 16 | octets[at + 10] << 8 | octets[at + 11]
    return size < 1 << 31 and size + _LOG_OVERHEAD > end - at
