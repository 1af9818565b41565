"""Fetch sessions (KIP-227): what a consumer of many partitions need not say, nor hear, again and again.

    request  (session id, epoch)                      answer
             (any, -1)   no session, and the one named ends      everything that was asked for
             (any,  0)   a new one; the one named ends           everything, and the id, or 0 when there is no room
             (id, 1 …)   changed and forgotten partitions only   partitions with news only
                         id unknown                              FETCH_SESSION_ID_NOT_FOUND
                         another epoch than the next             INVALID_FETCH_SESSION_EPOCH
                         by id in a session by name, or back     FETCH_SESSION_TOPIC_ID_ERROR

News are records, an error, or another high watermark or log start offset than the last answer said. A partition that
gave records goes to the end of the session's order, so that a busy one does not starve the others. A session that
has forgotten every partition is over.

The cache is bounded. A new session takes the place of the one that was longest unused, if that was for two minutes;
else of one that is worth less: made over two minutes ago, or a consumer's when a follower asks, and with fewer
partitions than it. Else there is none for it; nor when all sessions would have more partitions than is good for the
broker's memory.

Pure: the clock and the ids are arguments. What is kept of a partition is the client's own words about it.
Source: Kafka's FetchSession (FetchSessionCache, FetchManager, CachedPartition). Left out: shards, which are for locks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from headrace.errors import ErrorCode, KafkaError
from headrace.limits import FETCH_SESSION_PARTITIONS_MAX, INT32_MAX
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.protocol import messages as m

NO_SESSION = 0
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
EVICTION_MS = 120_000
_OUTDATED_SHARE_MAX = 4

PartitionKey: TypeAlias = tuple[str | bytes, int]
"""A topic's name, or its id in a session by id; and the partition's number."""


def next_epoch(epoch: int) -> int:
    """1 after 0, and again after the largest."""
    return 1 if epoch >= INT32_MAX else epoch + 1


class SessionPartition:
    """One partition of a session: what the client wants of it, and what it was told of it."""

    __slots__ = ("high_watermark", "key", "log_start_offset", "topic_id", "wanted")

    def __init__(self, topic: str, topic_id: bytes, wanted: m.FetchRequest.FetchPartition) -> None:
        self.key = TopicPartition(topic, wanted.partition)
        """The topic's name is empty while nobody knows which topic the id is of."""
        self.topic_id = topic_id
        self.wanted = wanted
        self.high_watermark = self.log_start_offset = -1

    def named(self, topic: str) -> None:
        """The topic's name is known now."""
        self.key = TopicPartition(topic, self.wanted.partition)

    def is_news(self, answer: m.FetchResponse.PartitionData) -> bool:
        """Whether the client has to be told."""
        return bool(
            answer.records
            or answer.error_code
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or answer.preferred_read_replica >= 0
            or answer.diverging_epoch.epoch >= 0
        )

    def told(self, answer: m.FetchResponse.PartitionData) -> None:
        """The client is told. After an error it is to be told again how things are, whatever they are."""
        self.high_watermark = -1 if answer.error_code else answer.high_watermark
        self.log_start_offset = answer.log_start_offset


Partitions: TypeAlias = dict[PartitionKey, SessionPartition]


class FetchSession:
    """One client's session; `partitions` in the order in which they are read."""

    __slots__ = ("by_id", "created_ms", "epoch", "id", "is_follower", "last_used_ms", "partitions", "size")

    def __init__(self, session_id: int, partitions: Partitions, *, by_id: bool, is_follower: bool, now_ms: int) -> None:
        self.id, self.partitions = session_id, partitions
        self.by_id, self.is_follower = by_id, is_follower
        self.created_ms = self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        """Of the request that must come next."""
        self.size = len(partitions)
        """Its partitions when it was last used."""

    @property
    def worth(self) -> _Worth:
        """Compared when a session has to go."""
        return _Worth(self.is_follower, self.size, self.created_ms, self.id)

    def change(self, wanted: Iterable[SessionPartition], forgotten: Iterable[PartitionKey]) -> None:
        """Takes over what an incremental request says."""
        for each in wanted:
            key = (each.topic_id if self.by_id else each.key.topic, each.wanted.partition)
            self.partitions.setdefault(key, each).wanted = each.wanted
        for key in forgotten:
            self.partitions.pop(key, None)

    def told(self, key: PartitionKey, answer: m.FetchResponse.PartitionData) -> None:
        """A partition's news leave for the client. Does nothing when the client has forgotten it meanwhile."""
        partition = self.partitions.get(key)
        if partition is not None:
            partition.told(answer)
            if answer.records:
                self.partitions[key] = self.partitions.pop(key)


class _Worth(NamedTuple):
    """What is compared of two sessions when one of them has to go."""

    is_follower: bool
    size: int
    created_ms: int
    id: int


class _Evictable:
    """Sessions that may have to go, the least worth first: a heap in which outdated entries are passed over."""

    def __init__(self, sessions: Mapping[int, FetchSession]) -> None:
        self._sessions = sessions
        self._heap: list[_Worth] = []

    def add(self, worth: _Worth) -> None:
        heappush(self._heap, worth)
        if len(self._heap) > 64 + _OUTDATED_SHARE_MAX * len(self._sessions):
            self._heap = [each for each in set(self._heap) if self._is_valid(each)]
            heapify(self._heap)

    def weakest(self) -> _Worth | None:
        while self._heap and not self._is_valid(self._heap[0]):
            heappop(self._heap)
        return self._heap[0] if self._heap else None

    def _is_valid(self, worth: _Worth) -> bool:
        session = self._sessions.get(worth.id)
        return session is not None and session.worth == worth


class FetchSessionCache:
    """Every session of one broker, least recently used first."""

    def __init__(
        self,
        slots: int,
        new_id: Callable[[], int],
        *,
        eviction_ms: int = EVICTION_MS,
        partitions_max: int = FETCH_SESSION_PARTITIONS_MAX,
    ) -> None:
        """`new_id` gives random numbers from 1 to 2^31 - 1; one that is in use is not taken."""
        self._slots, self._new_id, self._eviction_ms = slots, new_id, eviction_ms
        self._partitions_left = partitions_max
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._old = _Evictable(self._sessions)
        self._consumers = _Evictable(self._sessions)

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        """The session of this id."""
        return self._sessions.get(session_id)

    def end(self, session_id: int) -> None:
        """Forgets a session, if there is one."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions_left += session.size

    def open(self, partitions: Partitions, *, by_id: bool, is_follower: bool, now_ms: int) -> int:
        """A new session that has heard of `partitions` once; its id, or `NO_SESSION` when there is no room."""
        if len(partitions) > self._partitions_left:
            return NO_SESSION
        if len(self._sessions) >= self._slots and not self._make_room(len(partitions), is_follower, now_ms):
            return NO_SESSION
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(session_id, partitions, by_id=by_id, is_follower=is_follower, now_ms=now_ms)
        self._sessions[session_id] = session
        self._partitions_left -= session.size
        if not is_follower:
            self._consumers.add(session.worth)
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
    ) -> FetchSession:
        """The session, with the changes that an incremental request brings; it may be over, and is empty then.

        One that has grown too large is over too, and counts as not found, so that the client begins anew.

        Raises FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(f"there is no fetch session {session_id}", ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(
                f"fetch session {session_id} expects epoch {session.epoch}, not {epoch}",
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            )
        if session.by_id != by_id:
            raise KafkaError(
                f"fetch session {session_id} names topics otherwise", ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
            )
        session.change(wanted, forgotten)
        if not session.partitions:
            self.end(session_id)
            return session
        if len(session.partitions) - session.size > self._partitions_left:
            self.end(session_id)
            raise KafkaError(f"fetch session {session_id} is too large", ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = next_epoch(epoch)
        self._touch(session, now_ms)
        return session

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        was_old, old_size = self._is_old(session), session.size
        session.last_used_ms = now_ms
        session.size = len(session.partitions)
        self._partitions_left -= session.size - old_size
        self._sessions.move_to_end(session.id)
        if self._is_old(session) and not (was_old and session.size == old_size):
            self._old.add(session.worth)
        if session.size != old_size and not session.is_follower:
            self._consumers.add(session.worth)

    def _is_old(self, session: FetchSession) -> bool:
        return session.last_used_ms - session.created_ms > self._eviction_ms

    def _make_room(self, size: int, is_follower: bool, now_ms: int) -> bool:
        """Whether a session could be ended for a new one of `size` partitions."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > self._eviction_ms:
            self.end(oldest.id)
            return True
        candidates = [self._old.weakest(), self._consumers.weakest() if is_follower else None]
        weakest = min((each for each in candidates if each is not None), default=None)
        if weakest is None or (is_follower, size) <= (weakest.is_follower, weakest.size):
            return False
        self.end(weakest.id)
        return True
