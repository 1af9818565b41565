# cython: language_level=3, annotation_typing=False, binding=False
"""Fetch sessions (KIP-227): let clients of many partitions send and receive only changed partitions.

    request  (session id, epoch)                      response
             (any, -1)   no session; ends the named one          all requested partitions
             (any,  0)   a new session; ends the named one       all partitions, and the id, or 0 if the cache is full
             (id, 1 …)   changed and forgotten partitions only   changed partitions only
                         id unknown                              FETCH_SESSION_ID_NOT_FOUND
                         another epoch than the next             INVALID_FETCH_SESSION_EPOCH
                         by id in a session by name, or back     FETCH_SESSION_TOPIC_ID_ERROR

A partition has changed if it has records or an error, or another high watermark or log start offset than in the last
response. A partition that returned records moves to the end of the session's order, so that a busy one does not starve
the others. A session that has forgotten every partition ends.

The cache is bounded. A new session evicts the least recently used one if that was unused for two minutes; else one of
less worth: created over two minutes ago, or a consumer's if a follower asks, and with fewer partitions. Otherwise no
session is created; nor if all sessions together would exceed `FETCH_SESSION_PARTITIONS_MAX`.

A session is its principal's alone. For others it does not exist: who guesses an id, which has 31 bits, would learn the
topics of the session, or end it. Apache Kafka does not compare principals.

Pure: the clock and the ids are arguments. The cache keeps each partition as the client's request described it, and
what the shortest way of followers has found for it (`plain_session`). Compiled, since each exchange with a follower
reads and moves these numbers; it also runs uncompiled.
Source: Kafka's FetchSession (FetchSessionCache, FetchManager, CachedPartition). Left out: shards, which are for locks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, NamedTuple, TypeAlias

from headrace.errors import ErrorCode, KafkaError
from headrace.limits import (
    ELEMENTS_PER_SLICE,
    FETCH_SESSION_PARTITIONS_MAX,
    FETCH_SESSION_PARTITIONS_OF_CONSUMER_MAX,
    INT32_MAX,
    TOPIC_NAME_CHARS_MAX,
)
from headrace.protocol import messages as m
from headrace.security.access import ANONYMOUS
from headrace.types import TopicPartition

NO_SESSION = 0
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
EVICTION_MS = 120_000
_OUTDATED_SHARE_MAX = 4
_EPOCH_MAX, _FIRST_EPOCH = INT32_MAX, 1  # as C integers

PartitionKey: TypeAlias = tuple[str | bytes, int]
"""A topic's name, or its id in a session by id; and the partition's number."""


def next_epoch(epoch: int) -> int:
    """Returns the epoch after `epoch`: 1 after 0, and 1 after the largest."""
    return _FIRST_EPOCH if epoch >= _EPOCH_MAX else epoch + 1


class SessionPartition:
    """One partition of a session: the client's request for it, and the last response about it.

    index, fetch_offset, …        the request's fields; `wanted` is the message of them
    replica, follower             what `plain_follow` has found; it compares `follower_id` and `changes` before each use
    open_ and closed_transactions of the log's `producers`; it compares these
    position, size, source, …     what a plain request has read for it, only until it is answered"""

    __slots__ = (
        "changes", "closed_transactions", "fetch_offset", "follower", "follower_id", "high_watermark", "index",
        "is_at_the_end", "is_in_active", "key", "last_epoch", "leader_epoch", "log_start_offset", "max_bytes", "name",
        "open_transactions", "place", "position", "producers", "replica", "size", "size_so_far", "source",
        "start_offset", "topic_id",
    )  # fmt: skip

    def __init__(self, topic: str, topic_id: bytes, wanted: m.FetchRequest.FetchPartition) -> None:
        self.key = TopicPartition(topic, wanted.partition)
        """The topic's name is empty while its id is unknown to this broker."""
        self.topic_id = topic_id
        self.name: bytes | None = None  # see `FetchSession.name_of`
        self.wanted = wanted
        self.high_watermark = self.log_start_offset = -1
        """Both offsets as the last response told them."""
        self.place: PartitionKey | None = None  # in a session, once it has moved
        self.replica: Any = None
        self.follower: Any = None
        self.producers: Any = None
        self.open_transactions: Any = None
        self.closed_transactions: Any = None
        self.follower_id = self.changes = -1
        self.position = self.size = self.size_so_far = self.source = 0
        self.is_at_the_end = self.is_in_active = False

    @property
    def wanted(self) -> m.FetchRequest.FetchPartition:
        """The last request for it."""
        return m.FetchRequest.FetchPartition(
            partition=self.index,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=self.fetch_offset,
            last_fetched_epoch=self.last_epoch,
            log_start_offset=self.start_offset,
            partition_max_bytes=self.max_bytes,
        )

    @wanted.setter
    def wanted(self, wanted: m.FetchRequest.FetchPartition) -> None:
        self.index, self.fetch_offset = wanted.partition, wanted.fetch_offset
        self.leader_epoch, self.last_epoch = wanted.current_leader_epoch, wanted.last_fetched_epoch
        self.start_offset, self.max_bytes = wanted.log_start_offset, wanted.partition_max_bytes

    def named(self, topic: str) -> None:
        """Sets the topic's name, once it is known."""
        self.key = TopicPartition(topic, self.index)

    def let_go_of_dropped(self) -> None:
        """Lets go of the replica if this broker has it no more: it keeps a log and its indexes in memory."""
        replica = self.replica
        if replica is not None and replica.is_dropped:
            self.replica = self.follower = self.producers = self.open_transactions = self.closed_transactions = None
            self.follower_id = self.changes = -1

    def must_be_sent(self, answer: m.FetchResponse.PartitionData) -> bool:
        """Whether the response must contain the partition."""
        return bool(
            answer.records
            or answer.error_code
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or answer.preferred_read_replica >= 0
            or answer.diverging_epoch.epoch >= 0
        )

    def record_response(self, answer: m.FetchResponse.PartitionData) -> None:
        """Notes a response. After an error the next response contains the partition again, changed or not."""
        self.high_watermark = -1 if answer.error_code else answer.high_watermark
        self.log_start_offset = answer.log_start_offset


Partitions: TypeAlias = dict[PartitionKey, SessionPartition]


class FetchSession:
    """One client's session; `partitions` in the order in which they are read."""

    __slots__ = (
        "by_id", "created_ms", "epoch", "id", "is_follower", "is_over", "last_use", "last_used_ms", "named",
        "partitions", "principal", "size", "waiting", "watched",
    )  # fmt: skip

    def __init__(
        self,
        session_id: int,
        partitions: Partitions,
        *,
        by_id: bool,
        is_follower: bool,
        now_ms: int,
        principal: str = ANONYMOUS,
    ) -> None:
        self.id, self.partitions, self.principal = session_id, partitions, principal
        self.by_id, self.is_follower = by_id, is_follower
        self.created_ms = self.last_used_ms = now_ms
        self.last_use = 0
        """The number of its last use among those of all sessions."""
        self.epoch = next_epoch(INITIAL_EPOCH)
        """The epoch that the next request must have."""
        self.size = len(partitions)
        """The number of its partitions when it was last used."""
        self.is_over = False
        """Whether the cache has forgotten it."""
        self.named: list[SessionPartition] = []
        """The partitions that the last plain request named: the next one often names the same."""
        self.watched: tuple[Hashable, ...] | None = None
        """What a plain request of a follower waits for, once that is known."""
        self.waiting: Any = None
        """The last such request that has waited (`waiting_fetch`): the next one may wait in its place."""

    @property
    def evictable_key(self) -> _EvictableKey:
        """The worth, compared when a session has to be evicted."""
        return _EvictableKey(self.is_follower, self.size, self.created_ms, self.id)

    def change(self, wanted: Iterable[SessionPartition], forgotten: Iterable[PartitionKey]) -> None:
        """Applies the changes of an incremental request."""
        self.named, self.watched = [], None
        for each in wanted:
            key = (each.topic_id if self.by_id else each.key.topic, each.index)
            known = self.partitions.setdefault(key, each)
            if known is not each:
                known.wanted = each.wanted
        for key in forgotten:
            self.partitions.pop(key, None)

    def note(self, partition: SessionPartition, high_watermark: int, log_start_offset: int, has_records: bool) -> None:
        """Notes a response without an error about one of the partitions."""
        partition.high_watermark, partition.log_start_offset = high_watermark, log_start_offset
        if has_records and len(self.partitions) > 1:
            if partition.place is None:
                partition.place = (partition.topic_id if self.by_id else partition.key.topic, partition.index)
            self.partitions[partition.place] = self.partitions.pop(partition.place)

    def name_of(self, partition: SessionPartition) -> bytes:
        """The topic of one of the partitions as requests and answers have it: its id, or its name."""
        if partition.name is None:
            partition.name = partition.topic_id if self.by_id else partition.key.topic.encode()
        return partition.name

    def record_response(self, key: PartitionKey, answer: m.FetchResponse.PartitionData) -> None:
        """Notes a response about a partition. Does nothing if the client has forgotten the partition meanwhile."""
        partition = self.partitions.get(key)
        if partition is not None:
            partition.record_response(answer)
            if answer.records:
                self.partitions[key] = self.partitions.pop(key)


def is_too_large(size: int, *, is_follower: bool) -> bool:
    """Whether a session may not have so many partitions."""
    return size > FETCH_SESSION_PARTITIONS_OF_CONSUMER_MAX and not is_follower


def has_long_name(partitions: Iterable[SessionPartition]) -> bool:
    """Whether a name is longer than one of a topic. A session would keep it, and it may have many megabytes."""
    return any(len(each.key.topic) > TOPIC_NAME_CHARS_MAX for each in partitions)


class _EvictableKey(NamedTuple):
    """The order in which sessions are evicted."""

    is_follower: bool
    size: int
    created_ms: int
    id: int


class _Evictable:
    """Sessions in the order of eviction: a heap whose outdated entries are skipped."""

    def __init__(self, sessions: Mapping[int, FetchSession]) -> None:
        self._sessions = sessions
        self._heap: list[_EvictableKey] = []

    def add(self, evictable_key: _EvictableKey) -> None:
        heappush(self._heap, evictable_key)
        if len(self._heap) > 64 + _OUTDATED_SHARE_MAX * len(self._sessions):
            self._heap = [each for each in set(self._heap) if self._is_valid(each)]
            heapify(self._heap)

    def first(self) -> _EvictableKey | None:
        while self._heap and not self._is_valid(self._heap[0]):
            heappop(self._heap)
        return self._heap[0] if self._heap else None

    def _is_valid(self, evictable_key: _EvictableKey) -> bool:
        session = self._sessions.get(evictable_key.id)
        return session is not None and session.evictable_key == evictable_key


class FetchSessionCache:
    """Every session of one broker."""

    def __init__(
        self,
        slots: int,
        new_id: Callable[[], int],
        *,
        eviction_ms: int = EVICTION_MS,
        partitions_max: int = FETCH_SESSION_PARTITIONS_MAX,
    ) -> None:
        """`new_id` returns random numbers from 1 to 2^31 - 1; the cache asks again for one that is in use."""
        self._slots, self._new_id, self._eviction_ms = slots, new_id, eviction_ms
        self._partitions_left = partitions_max
        self._sessions: dict[int, FetchSession] = {}
        self._uses = 0
        # A heap of each session's id with one of its uses. It is brought up to date when a session has to be evicted,
        # for each fetch is a use.
        self._by_use: list[tuple[int, int]] = []
        self._old = _Evictable(self._sessions)
        self._consumers = _Evictable(self._sessions)

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        """Returns the session with this id, or None."""
        return self._sessions.get(session_id)

    def end_of(self, principal: str, session_id: int) -> None:
        """Forgets a session, if the principal has it."""
        session = self._sessions.get(session_id)
        if session is not None and session.principal == principal:
            self.end(session_id)

    def end(self, session_id: int) -> None:
        """Forgets a session, if there is one."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.is_over, session.waiting = True, None
            self._partitions_left += session.size

    def let_go_of_dropped(self) -> Generator[None, None, None]:
        """Lets go of the replicas that this broker has no more. A follower that is dead does not forget them. In
        slices."""
        left = ELEMENTS_PER_SLICE
        for session in list(self._sessions.values()):
            if not session.is_follower:
                continue
            for each in list(session.partitions.values()):
                each.let_go_of_dropped()
                left -= 1
                if not left:
                    left = ELEMENTS_PER_SLICE
                    yield

    def open(
        self, partitions: Partitions, *, by_id: bool, is_follower: bool, now_ms: int, principal: str = ANONYMOUS
    ) -> int:
        """Creates a session whose first response was about `partitions`; returns its id, or `NO_SESSION` if there is no
        room."""
        if len(partitions) > self._partitions_left or is_too_large(len(partitions), is_follower=is_follower):
            return NO_SESSION
        if not is_follower and has_long_name(partitions.values()):
            return NO_SESSION
        if len(self._sessions) >= self._slots and not self._make_room(len(partitions), is_follower, now_ms):
            return NO_SESSION
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(
            session_id, partitions, by_id=by_id, is_follower=is_follower, now_ms=now_ms, principal=principal
        )
        self._sessions[session_id] = session
        self._add_use(session)
        self._partitions_left -= session.size
        if not is_follower:
            self._consumers.add(session.evictable_key)
        return session_id

    def resume(
        self,
        session_id: int,
        epoch: int,
        wanted: Iterable[SessionPartition],
        forgotten: Iterable[PartitionKey],
        *,
        by_id: bool,
        now_ms: int,
        principal: str = ANONYMOUS,
    ) -> FetchSession:
        """The session, with the changes of an incremental request applied. A session that has ended is empty.

        A session that has grown too large ends as not found, so that the client starts over.

        Raises FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session = self._sessions.get(session_id)
        if session is None or session.principal != principal:
            raise KafkaError(f"fetch session {session_id} does not exist", ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(
                f"fetch session {session_id} expects epoch {session.epoch}, not {epoch}",
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            )
        if session.by_id != by_id:
            raise KafkaError(
                f"fetch session {session_id} cannot change between topic names and topic ids",
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
            )
        wanted = list(wanted)
        session.change(wanted, forgotten)
        if not session.partitions:
            self.end(session_id)
            return session
        size = len(session.partitions)
        is_over = size - session.size > self._partitions_left or is_too_large(size, is_follower=session.is_follower)
        if is_over or (not session.is_follower and has_long_name(wanted)):
            self.end(session_id)
            raise KafkaError(
                f"fetch session {session_id} has too many partitions, or too long names",
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            )
        self.proceed(session, now_ms)
        return session

    def proceed(self, session: FetchSession, now_ms: int) -> None:
        """Takes in that the next request of a session has come."""
        session.epoch = next_epoch(session.epoch)
        self._touch(session, now_ms)

    def resume_known(
        self, request: m.FetchRequest, *, by_id: bool, now_ms: int, principal: str = ANONYMOUS
    ) -> FetchSession | None:
        """As `resume`, for a request that adds no partition and forgets none, as most do; None, with nothing done, for
        any other, also for one that `resume` refuses."""
        session = self._sessions.get(request.session_id)
        if session is None or session.epoch != request.session_epoch or session.by_id != by_id:
            return None
        if not session.partitions:  # it ends with this request
            return None
        if session.principal != principal or request.forgotten_topics_data:
            return None
        known = []
        for topic in request.topics:
            name: str | bytes = topic.topic_id if by_id else topic.topic
            for each in topic.partitions:
                partition = session.partitions.get((name, each.partition))
                if partition is None:
                    return None
                known.append((partition, each))
        for partition, wanted in known:
            partition.wanted = wanted
        self.proceed(session, now_ms)
        return session

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        was_old, old_size = self._is_old(session), session.size
        session.last_used_ms = now_ms
        session.size = len(session.partitions)
        self._partitions_left -= session.size - old_size
        self._uses += 1
        session.last_use = self._uses
        if self._is_old(session) and not (was_old and session.size == old_size):
            self._old.add(session.evictable_key)
        if session.size != old_size and not session.is_follower:
            self._consumers.add(session.evictable_key)

    def _is_old(self, session: FetchSession) -> bool:
        return session.last_used_ms - session.created_ms > self._eviction_ms

    def _add_use(self, session: FetchSession) -> None:
        self._uses += 1
        session.last_use = self._uses
        heappush(self._by_use, (session.last_use, session.id))
        if len(self._by_use) > 64 + _OUTDATED_SHARE_MAX * len(self._sessions):  # most are of sessions that have ended
            self._by_use = [(each.last_use, each.id) for each in self._sessions.values()]
            heapify(self._by_use)

    def _least_recently_used(self) -> FetchSession | None:
        by_use = self._by_use
        while by_use:
            use, session_id = by_use[0]
            session = self._sessions.get(session_id)
            if session is None:
                heappop(by_use)
            elif session.last_use != use:
                heapreplace(by_use, (session.last_use, session_id))
            else:
                return session
        return None

    def _make_room(self, size: int, is_follower: bool, now_ms: int) -> bool:
        """Makes room for a new session of `size` partitions; returns whether there is room."""
        oldest = self._least_recently_used()
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > self._eviction_ms:
            self.end(oldest.id)
            return True
        candidates = [self._old.first(), self._consumers.first() if is_follower else None]
        first = min((each for each in candidates if each is not None), default=None)
        if first is None or (is_follower, size) <= (first.is_follower, first.size):
            return False
        self.end(first.id)
        return True
