# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""A fetch of the shortest way that waits: how it is kept, looked at again, answered, and left to the general way.

The request is kept as its frame. What a request of a session wants is in the session, and the rest in a few integers:
its frame is not read again. When there is something that the shortest way does not answer with, a general fetch goes on
in its place, which reads the frame.

The requests of a follower's session wait for the same keys, one after the other. One object does for all of them: it
rests in between, and keeps its place in the purgatory. Compiled; it also runs uncompiled.
"""

from __future__ import annotations

import logging
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from headrace.broker.fetch.general_fetch import general_fetch
from headrace.broker.request.purgatory import DelayedRequest
from headrace.network.answer_order import Slot
from headrace.network.connection import Connection, Shortcut
from headrace.network.request_times import AnsweredAtOnce, RequestTimes, Timed
from headrace.protocol.apis import ApiKey

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if cython.compiled:
    from cython.cimports.headrace.clock_calls import monotonic

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from headrace.broker.fetch.fetch import Fetch
    from headrace.broker.fetch.fetch_sessions import FetchSession
    from headrace.broker.request.purgatory import Purgatory
    from headrace.broker.services import Services
    from headrace.types import TopicPartition

log = logging.getLogger(__name__)

_FETCH = ApiKey.FETCH


class FetchShortcut(Shortcut):
    """A shortest way of fetches, of which some wait. Subclasses find what there is to answer, and write it."""

    __slots__ = ("_admission", "_by_version", "_purgatory", "_services", "_throttling", "taken", "times", "waited")

    def __init__(self, services: Services, times: RequestTimes) -> None:
        """`times`: of all fetches."""
        super().__init__()
        self._services, self.times, self._by_version = services, times, times.by_version
        self._admission, self._throttling = services.admission, services.throttling
        self._purgatory = services.purgatory
        self.taken = self.waited = 0
        """How many were answered at once, and how many had to wait."""

    def timed(self, connection: Any) -> Timed:
        """See `Shortcut`."""
        now_ns = monotonic_ns()
        made = AnsweredAtOnce(self.times, connection.received_ns, connection.looked_ns, now_ns)
        connection.looked_ns = now_ns
        return made

    def _placed(
        self, connection: Any, frame: bytes, session: FetchSession | None, keys: Sequence[TopicPartition]
    ) -> WaitingFetch:
        """A request with a place in its connection's order. `keys`: of its partitions, without a session."""
        waiting: WaitingFetch | None = None
        if session is not None:
            waiting = session.waiting
        if waiting is None or not waiting.is_resting:
            waiting = WaitingFetch()
        if isinstance(connection, Connection):
            own = connection
            slot = own.place()
        else:
            slot = connection.place()
        waiting.begin(self, connection, slot, frame, session, keys)
        return waiting

    def _wait(self, waiting: WaitingFetch, watched: tuple[Hashable, ...], max_wait_ms: int) -> None:
        """Puts a request into the purgatory."""
        self.waited += 1
        waiting.wait_in(self._purgatory, watched, max_wait_ms)

    def look_again(self, waiting: WaitingFetch, is_over: bool) -> bool:
        """Reads for a request that waits, and answers it if there is enough or the wait `is_over`. Whether it is over,
        and does not rest."""
        count = self._find_again(waiting)
        if count < 0:
            self._forget()
            return waiting.go_the_general_way(self._services, is_over)
        is_answered = is_over or self._is_enough()
        self._count_traffic(is_answered, count)
        size = self._write_waiting(waiting, count) if is_answered else 0
        self._forget()
        return is_answered and waiting.answer(size)

    def _find_again(self, waiting: WaitingFetch) -> int:
        """Reads the request that waits; returns the number of partitions to answer with. -1 if the general way has
        to."""
        raise NotImplementedError

    def _is_enough(self) -> bool:
        """Whether what was read is to be sent at once."""
        raise NotImplementedError

    def _count_traffic(self, is_answered: bool, count: int) -> None:
        """Counts what was read, of which so many partitions are to be answered with."""
        raise NotImplementedError

    def _write_waiting(self, waiting: WaitingFetch, count: int) -> int:
        """Writes the answer with so many partitions to `out`; returns its end."""
        raise NotImplementedError

    def _forget(self) -> None:
        """Lets go of what was read: a file of a deleted segment takes space as long as somebody has it."""
        raise NotImplementedError


class WaitingFetch(DelayedRequest):
    """A fetch in the purgatory.

    session.waiting   this, if the session's next request may wait in the place of this one
    is_resting        whether it waits for that request: its entry in the purgatory is paused"""

    __slots__ = (
        "_entry", "_fetches", "_general", "_keys", "_purgatory", "_slot", "answered_ns", "api_key", "broker_epoch",
        "connection", "correlation_id", "epoch", "follower", "frame", "handed_over_ns", "is_committed",
        "is_resting", "max_bytes", "min_bytes", "received_ns", "session", "started_ns", "times", "version",
    )  # fmt: skip

    def __init__(self) -> None:
        self._general: Fetch | None = None
        self._entry: Any = None
        self._purgatory: Any = None
        self.version = self.correlation_id = self.min_bytes = self.max_bytes = self.follower = self.broker_epoch = 0
        self.is_committed = self.is_resting = False

    def begin(
        self,
        fetches: FetchShortcut,
        connection: Any,
        slot: Slot,
        frame: bytes,
        session: FetchSession | None,
        keys: Sequence[TopicPartition],
    ) -> None:
        """`keys`: of the request's partitions, without a session."""
        self._fetches, self.connection, self._keys = fetches, connection, keys
        self._slot: Slot | None = slot
        self.frame, self.session = frame, session
        self.epoch = 0 if session is None else session.epoch
        """The session's, which changes when the client sends another request before this one is answered."""
        self.times, self.api_key = fetches.times, _FETCH
        now_ns = self.handed_over_ns = self.answered_ns = _now_ns()
        if isinstance(connection, Connection):
            own = connection
            self.received_ns, self.started_ns = own.received_ns, own.looked_ns
            own.looked_ns = now_ns
        else:
            self.received_ns, self.started_ns = connection.received_ns, connection.looked_ns
            connection.looked_ns = now_ns

    def wait_in(self, purgatory: Purgatory, watched: tuple[Hashable, ...], max_wait_ms: int) -> None:
        """Waits until something of `watched` changes, or its time is up. Ends with its connection."""
        entry, session = self._entry, self.session
        if self.is_resting:
            self.is_resting = False
            if entry.keys is not watched or not purgatory.wait_again(entry, max_wait_ms):
                purgatory.cancel(entry)
                entry = None
        if entry is None:
            entry = purgatory.wait(self, watched, max_wait_ms)
        self._purgatory, self._entry = purgatory, entry
        if session is not None and session.is_follower and not session.is_over:
            session.waiting = self
        slot = self._slot
        if slot is not None:
            slot.waiter = self

    def abandon(self) -> None:
        """Waits no more: the connection has closed."""
        self._end_rest()
        self._purgatory.cancel(self._entry)

    def _end_rest(self) -> None:
        """The session's next request gets an object of its own."""
        session = self.session
        if session is not None and session.waiting is self:
            session.waiting = None

    def try_complete(self) -> bool:
        """See `purgatory.DelayedOperation`."""
        return self._look_again(False)

    def expire(self) -> None:
        """See `purgatory.DelayedOperation`. Its place in the purgatory is lost."""
        self._end_rest()
        self._look_again(True)

    def _look_again(self, is_over: bool) -> bool:
        connection = self.connection
        if isinstance(connection, Connection):
            own = connection
            is_closed = own._is_closed
        else:
            is_closed = connection.is_closed
        if is_closed:
            self._end_rest()
            return True
        try:
            if self._general is not None:
                return self._ask_general(self._general, is_over)
            return self._fetches.look_again(self, is_over)
        except Exception:  # a bug of the broker, as in `RequestContext.failed`
            self._end_rest()
            self._fetches.files.clear()
            log.exception("a request failed", extra={"api": "FETCH", "peer": connection.peer})
            connection.close("an internal error")
            return True

    def go_the_general_way(self, services: Services, is_over: bool) -> bool:
        """Lets a general fetch go on in the place of this one. Whether it has answered."""
        slot = self._slot
        self._slot = None
        assert slot is not None
        self._end_rest()
        self._general = general_fetch(
            services, self.connection, slot, self, self.frame, self.session, self.epoch, self._keys
        )
        return self._ask_general(self._general, is_over)

    def _ask_general(self, fetch: Fetch, is_over: bool) -> bool:
        if is_over:
            fetch.expire()
            return True
        return fetch.try_complete()

    def answer(self, size: int) -> bool:
        """Sends the answer, the first `size` bytes of the buffer. Whether this is over, and does not rest."""
        slot, connection, session = self._slot, self.connection, self.session
        self._slot = None  # the purgatory may keep this for a while, but not what is sent
        assert slot is not None
        if isinstance(connection, Connection):
            own = connection
            is_timed = own.is_timed
        else:
            is_timed = connection.is_timed
        is_over = is_timed or session is None or session.waiting is not self
        self.answered_ns = _now_ns()
        if is_over:
            self._end_rest()
        else:
            self._rest()
        if isinstance(connection, Connection):
            own = connection
            own.answer_written_later(slot, self._fetches, size, self)
        else:
            connection.answer_later(slot, self._fetches.take(size), self)
        return is_over

    def _rest(self) -> None:
        """Waits for the session's next request, without what was of the last one."""
        self._purgatory.pause(self._entry)
        self.is_resting = True
        self.connection, self.session, self.frame = None, None, b""


def _now_ns() -> int:
    now_ns: int = monotonic() if cython.compiled else monotonic_ns()
    return now_ns
