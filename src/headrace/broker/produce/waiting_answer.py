"""What the shortest way of a Produce keeps of a request that waits for replicas.

The answer is written when the request comes, for the case that all goes well. If it does not, a context is made, and
the response of another one, from the request's header and that answer.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.network.request_times import RequestTimes

log = logging.getLogger(__name__)


class WaitingAnswer:
    """The place of a request in the order of its connection's answers, and its times (`request_times.Timed`)."""

    __slots__ = (
        "answered_ns", "connection", "frame", "handed_over_ns", "header", "names", "received_ns", "slot", "started_ns",
        "times",
    )  # fmt: skip

    def __init__(self, connection: Any, times: RequestTimes, header: bytes, frame: bytes, names: Sequence[str]) -> None:
        """`header`: the request's. `names`: of each batch's topic."""
        self.connection, self.times, self.header, self.frame, self.names = connection, times, header, frame, names
        self.slot: Any = connection.place()
        self.received_ns, self.started_ns = connection.received_ns, connection.looked_ns
        self.handed_over_ns = self.answered_ns = connection.looked_ns = monotonic_ns()

    def reply_frame(self, frame: bytes) -> None:
        """See `commit_queue.Answering`."""
        slot, self.slot = self.slot, None
        self.answered_ns = monotonic_ns()
        if not self.connection.is_closed:
            self.connection.answer_later(slot, [frame], self)

    def failed(self) -> None:
        """See `commit_queue.Answering`."""
        log.exception("a request failed", extra={"api": "PRODUCE", "peer": self.connection.peer})
        self.connection.close("an internal error")
