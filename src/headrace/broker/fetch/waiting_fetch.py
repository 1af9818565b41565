# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""A fetch of the shortest way that waits: how it is kept, looked at again, answered, and left to the general way.

The request is kept as its frame, and read from there each time the purgatory looks at it. When there is something that
the shortest way does not answer with, a general fetch goes on in its place. Compiled; it also runs uncompiled.
"""

from __future__ import annotations

import logging
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from headrace.broker.fetch.general_fetch import general_fetch
from headrace.network.answer_order import Slot
from headrace.network.connection import Shortcut
from headrace.network.outbound import Chunks
from headrace.network.request_times import AnsweredAtOnce, RequestTimes, Timed
from headrace.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from headrace.broker.fetch.fetch import Fetch
    from headrace.broker.fetch.fetch_sessions import FetchSession
    from headrace.broker.services import Services
    from headrace.octets import Buffer
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

    def _wait(
        self,
        connection: Any,
        frame: bytes,
        session: FetchSession | None,
        keys: Sequence[TopicPartition],
        watched: Sequence[Hashable],
        max_wait_ms: int,
    ) -> None:
        """Puts a request into the purgatory. `keys`: of its partitions, or of its session's."""
        slot = connection.place()
        waiting = WaitingFetch(self, connection, slot, frame, session, keys)
        self.waited += 1
        purgatory = self._services.purgatory
        slot.abandon = partial(purgatory.cancel, purgatory.wait(waiting, watched, max_wait_ms))

    def look_again(self, waiting: WaitingFetch, is_over: bool) -> bool:
        """Reads for a request that waits, and answers it if there is enough or the wait `is_over`. Whether it did."""
        count = self._find_again(waiting)
        if count < 0:
            self._forget()
            return waiting.go_the_general_way(self._services, is_over)
        is_answered = is_over or self._is_enough()
        self._count_traffic(is_answered)
        size = self._write(waiting.frame, count, waiting.session, 0) if is_answered else 0
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

    def _count_traffic(self, is_answered: bool) -> None:
        """Counts what was read."""
        raise NotImplementedError

    def _write(self, octets: Buffer, count: int, session: FetchSession | None, at: int) -> int:
        """Writes an answer of so many partitions to `out[at:]`; returns its end."""
        raise NotImplementedError

    def _forget(self) -> None:
        """Lets go of what was read: a file of a deleted segment takes space as long as somebody has it."""
        raise NotImplementedError


class WaitingFetch:
    """A fetch in the purgatory."""

    __slots__ = (
        "_fetches", "_general", "_keys", "_slot", "answered_ns", "api_key", "connection", "epoch", "frame",
        "handed_over_ns", "received_ns", "session", "started_ns", "times",
    )  # fmt: skip

    def __init__(
        self,
        fetches: FetchShortcut,
        connection: Any,
        slot: Slot,
        frame: bytes,
        session: FetchSession | None,
        keys: Sequence[TopicPartition],
    ) -> None:
        """`keys`: of the request's partitions, or of the session's."""
        self._fetches, self.connection, self._keys = fetches, connection, keys
        self._slot: Slot | None = slot
        self._general: Fetch | None = None
        self.frame, self.session = frame, session
        self.epoch = 0 if session is None else session.epoch
        """The session's, which changes when the client sends another request before this one is answered."""
        self.times, self.api_key = fetches.times, ApiKey.FETCH
        self.received_ns, self.started_ns = connection.received_ns, connection.looked_ns
        self.handed_over_ns = self.answered_ns = connection.looked_ns = monotonic_ns()

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
        self.answered_ns = monotonic_ns()
        self.connection.answer_later(slot, chunks, self)
