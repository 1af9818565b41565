"""An offset commit of the shortest way that waits for followers: how it ends, and how it is answered.

Its batch is in the log, and its answer is written, for the case that all goes well. It waits in the queue of its
partition of `__consumer_offsets` (`commit_queue`). Until it ends, its offsets are pending. A client that leaves does
not end it: what is in the log may be committed all the same.
"""

from __future__ import annotations

import logging
from time import monotonic_ns
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.produce.commit_queue import WaitingRequest
from headrace.broker.request.context import encode_response
from headrace.coordinators.groups.commits import ended
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import read_response_header

if TYPE_CHECKING:
    from headrace.coordinators.groups.offsets import CommittedOffset, GroupOffsets
    from headrace.network.connection import Connection
    from headrace.network.request_times import RequestTimes
    from headrace.types import TopicPartition

log = logging.getLogger(__name__)


class WrittenCommit(NamedTuple):
    """A commit whose batch is in the log."""

    group_offsets: GroupOffsets
    offsets: dict[TopicPartition, CommittedOffset]
    key: TopicPartition  # the group's partition of `__consumer_offsets`
    record_offset: int


class WaitingCommit(WaitingRequest):
    """A commit in the queue of its partition."""

    __slots__ = (
        "_commit", "_connection", "_frame", "_slot", "_version", "answered_ns", "handed_over_ns", "received_ns",
        "started_ns", "times",
    )  # fmt: skip

    def __init__(
        self,
        connection: Connection,
        times: RequestTimes,
        version: int,
        frame: bytes,
        commit: WrittenCommit,
        deadline: float,
    ) -> None:
        """Takes a place in the order of the connection's answers. `frame` is the answer if all goes well. `deadline` is
        in seconds of the event loop's clock."""
        self._connection, self._version, self._frame, self._commit = connection, version, frame, commit
        self._slot = connection.place()
        self.times, self.deadline, self.is_over = times, deadline, False
        self.received_ns, self.started_ns = connection.received_ns, connection.looked_ns
        self.handed_over_ns = self.answered_ns = connection.looked_ns = monotonic_ns()

    def ended(self, number: int, code: ErrorCode) -> bool:
        """See `WaitingRequest`. It is answered at once."""
        self.is_over = True
        try:
            self._end(code)
        except Exception:  # a bug of the broker, as in `RequestContext.failed`
            log.exception("a request failed", extra={"api": "OFFSET_COMMIT", "peer": self._connection.peer})
            self._connection.close("an internal error")
        return False

    def answer(self) -> None:
        """See `WaitingRequest`."""
        self.ended(0, ErrorCode.REQUEST_TIMED_OUT)

    def _end(self, code: ErrorCode) -> None:
        group_offsets, offsets, key, record_offset = self._commit
        told = ended(group_offsets, offsets, code, record_offset)
        if told is not ErrorCode.NONE:
            log.warning(
                "%s: the offsets of a group at offset %d may not be committed: %s", key, record_offset, code.name
            )
            self._frame = _refusal(self._frame, self._version, told)
        if not self._connection.is_closed:
            self.answered_ns = monotonic_ns()
            self._connection.answer_later(self._slot, [self._frame], self)


def _refusal(frame: bytes, version: int, code: ErrorCode) -> bytes:
    """The same answer with an error for each partition."""
    correlation_id, position = read_response_header(frame[4:], ApiKey.OFFSET_COMMIT, version)
    response, _ = m.OffsetCommitResponse.decode(version, memoryview(frame)[4:], position)
    for topic in response.topics:
        for partition in topic.partitions:
            partition.error_code = code
    (refused,) = encode_response(ApiKey.OFFSET_COMMIT, version, correlation_id, response)
    assert isinstance(refused, bytes)
    return refused
