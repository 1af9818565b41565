# cython: language_level=3, annotation_typing=False, binding=False
"""What the shortest way of a Produce keeps of a request that waits for replicas.

The answer is written when the request comes, for the case that all goes well. If it does not, a context is made, and
the response of another one, from the request's header and that answer. Compiled, as the queue that it waits in; it also
runs uncompiled.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

from headrace.broker.produce.commit_queue import Refuse, WaitingProduce
from headrace.network.connection import Connection

if cython.compiled:
    from cython.cimports.headrace.clock_calls import monotonic

if TYPE_CHECKING:
    from headrace.network.request_times import RequestTimes
    from headrace.types import TopicPartition

log = logging.getLogger(__name__)


class WaitingAnswer(WaitingProduce):
    """A request with its place in the order of its connection's answers, and its times (`request_times.Timed`)."""

    __slots__ = (
        "_key", "_keys", "_own", "_refuse_it", "answered_ns", "connection", "frame", "handed_over_ns", "header",
        "received_ns", "slot", "started_ns", "times",
    )  # fmt: skip

    connection: Any
    slot: Any
    """Its place; None once it is answered."""
    frame: bytes
    """The answer if all goes well."""
    header: bytes
    """The request's."""
    times: RequestTimes
    received_ns: int
    started_ns: int
    handed_over_ns: int
    answered_ns: int
    _own: Connection | None
    """The connection, if its kind is known."""
    _key: TopicPartition
    """The partition of the only batch, or of the first one."""
    _keys: Sequence[TopicPartition] | None
    """The partitions of several batches."""
    _refuse_it: Refuse

    @property
    def names(self) -> Sequence[str]:
        """Of each batch's topic."""
        return [key.topic for key in self._keys or (self._key,)]

    def _reply(self) -> None:
        if self._codes is not None:
            self._refuse_it(self, self._codes)
            return
        slot: Any = self.slot
        self.slot = None
        own = self._own
        if own is not None:
            if own.is_timed:
                self.answered_ns = monotonic() if cython.compiled else monotonic_ns()
            if not own._is_closed:
                own.answer_frame_later(slot, self.frame, self)
            return
        self.answered_ns = monotonic() if cython.compiled else monotonic_ns()
        if not self.connection.is_closed:
            self.connection.answer_later(slot, [self.frame], self)

    def _fail(self) -> None:
        log.exception("a request failed", extra={"api": "PRODUCE", "peer": self.connection.peer})
        self.connection.close("an internal error")


def waiting_answer(
    connection: Any,
    times: RequestTimes,
    header: bytes,
    frame: bytes,
    key: TopicPartition,
    batches: int,
    keys: Sequence[TopicPartition] | None,
    refuse: Refuse,
    deadline: float,
) -> WaitingAnswer:
    """A request that begins to wait. `header`: the request's. `key`: of the first batch's partition. `keys`: of each
    one's, if there are several. `refuse`: answers it if a batch fails. `deadline`: in seconds of the event loop's
    clock."""
    made = WaitingAnswer.__new__(WaitingAnswer)
    made._begin(batches, deadline)
    made.connection, made.times, made.header, made.frame = connection, times, header, frame
    made._key, made._keys, made._refuse_it = key, keys, refuse
    if isinstance(connection, Connection):
        own = connection
        made._own = own
        slot = own._answers.order.place() if cython.compiled else own.place()
        now_ns = made.started_ns = own.looked_ns
        made.received_ns = own.received_ns
        if own.is_timed:
            own.looked_ns = now_ns = monotonic() if cython.compiled else monotonic_ns()
    else:
        made._own = None
        slot = connection.place()
        now_ns = monotonic_ns()
        made.received_ns, made.started_ns = connection.received_ns, connection.looked_ns
        connection.looked_ns = now_ns
    made.handed_over_ns = made.answered_ns = now_ns
    made.slot, slot.waiter = slot, made
    return made
