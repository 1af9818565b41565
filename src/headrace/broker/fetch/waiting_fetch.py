# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""A fetch of the shortest way that waits: how it is kept, looked at again, answered, and left to the general way.

The request is kept as its frame. What a request of a session wants is in the session, and the rest in a few integers:
its frame is not read again. When there is something that the shortest way does not answer with, a general fetch goes on
in its place, which reads the frame. Compiled; it also runs uncompiled.
"""

from __future__ import annotations

import logging
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from headrace.broker.fetch.general_fetch import general_fetch
from headrace.network.answer_order import Slot
from headrace.network.connection import Shortcut
from headrace.network.outbound import Chunks
from headrace.network.request_times import AnsweredAtOnce, RequestTimes, Timed
from headrace.protocol.apis import ApiKey

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if cython.compiled:
    from cython.cimports.headrace.clock_calls import monotonic

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from headrace.broker.fetch.fetch import Fetch
    from headrace.broker.fetch.fetch_sessions import FetchSession
    from headrace.broker.services import Services
    from headrace.types import TopicPartition

log = logging.getLogger(__name__)


class FetchShortcut(Shortcut):
    """A shortest way of fetches, of which some wait. Subclasses find what there is to answer, and write it."""

    __slots__ = ("_admission", "_by_version", "_services", "_throttling", "taken", "times", "waited")

    def __init__(self, services: Services, times: RequestTimes) -> None:
        """`times`: of all fetches."""
        super().__init__()
        self._services, self.times, self._by_version = services, times, times.by_version
        self._admission, self._throttling = services.admission, services.throttling
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
        waiting = WaitingFetch()
        waiting.begin(self, connection, connection.place(), frame, session, keys)
        return waiting

    def _wait(self, waiting: WaitingFetch, watched: Iterable[Hashable], max_wait_ms: int) -> None:
        """Puts a request into the purgatory."""
        self.waited += 1
        purgatory: Any = self._services.purgatory
        waiting.waits_in(purgatory, purgatory.wait(waiting, watched, max_wait_ms))

    def look_again(self, waiting: WaitingFetch, is_over: bool) -> bool:
        """Reads for a request that waits, and answers it if there is enough or the wait `is_over`. Whether it did."""
        count = self._find_again(waiting)
        if count < 0:
            self._forget()
            return waiting.go_the_general_way(self._services, is_over)
        is_answered = is_over or self._is_enough()
        self._count_traffic(is_answered, count)
        size = self._write_waiting(waiting, count) if is_answered else 0
        self._forget()
        if is_answered:
            waiting.answer(self.take(size))
        return is_answered

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


class WaitingFetch:
    """A fetch in the purgatory."""

    __slots__ = (
        "_entry", "_fetches", "_general", "_keys", "_purgatory", "_slot", "answered_ns", "api_key", "broker_epoch",
        "connection", "correlation_id", "epoch", "follower", "frame", "handed_over_ns", "is_committed", "max_bytes",
        "min_bytes", "received_ns", "session", "started_ns", "times", "version",
    )  # fmt: skip

    def __init__(self) -> None:
        self._general: Fetch | None = None
        self._entry: Any = None
        self._purgatory: Any = None
        self.version = self.correlation_id = self.min_bytes = self.max_bytes = self.follower = self.broker_epoch = 0
        self.is_committed = False

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
        self.times, self.api_key = fetches.times, ApiKey.FETCH
        self.received_ns, self.started_ns = connection.received_ns, connection.looked_ns
        self.handed_over_ns = self.answered_ns = connection.looked_ns = _now_ns()

    def waits_in(self, purgatory: Any, entry: Any) -> None:
        """Notes where it waits, so that it ends with its connection."""
        self._purgatory, self._entry = purgatory, entry
        if self._slot is not None:
            self._slot.abandon = self.abandon

    def abandon(self) -> None:
        """Waits no more: the connection has closed."""
        self._purgatory.cancel(self._entry)

    def try_complete(self) -> bool:
        """See `purgatory.DelayedOperation`."""
        return self._look_again(False)

    def expire(self) -> None:
        """See `purgatory.DelayedOperation`."""
        self._look_again(True)

    def _look_again(self, is_over: bool) -> bool:
        if self.connection.is_closed:
            return True
        try:
            if self._general is not None:
                return self._ask_general(self._general, is_over)
            return self._fetches.look_again(self, is_over)
        except Exception:  # a bug of the broker, as in `RequestContext.failed`
            self._fetches.files.clear()
            log.exception("a request failed", extra={"api": "FETCH", "peer": self.connection.peer})
            self.connection.close("an internal error")
            return True

    def go_the_general_way(self, services: Services, is_over: bool) -> bool:
        """Lets a general fetch go on in the place of this one. Whether it has answered."""
        slot, self._slot = self._slot, None
        assert slot is not None
        self._general = general_fetch(
            services, self.connection, slot, self, self.frame, self.session, self.epoch, self._keys
        )
        return self._ask_general(self._general, is_over)

    def _ask_general(self, fetch: Fetch, is_over: bool) -> bool:
        if is_over:
            fetch.expire()
            return True
        return fetch.try_complete()

    def answer(self, chunks: Chunks) -> None:
        """Sends the answer."""
        slot, self._slot = self._slot, None  # the purgatory may keep this for a while, but not what is sent
        assert slot is not None
        self.answered_ns = _now_ns()
        self.connection.answer_later(slot, chunks, self)


def _now_ns() -> int:
    now_ns: int = monotonic() if cython.compiled else monotonic_ns()
    return now_ns
