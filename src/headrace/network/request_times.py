"""Times of requests, by API and phase: sums that grow in place while requests are served.

    bytes read ── queue ──▶ dispatched ── local ──▶ handed over ── remote ──▶ answered ── send ──▶ with the kernel
                                              (only a request that has to wait)

    queue    behind requests of the same connection that were read with it, or that held the connection
    local    decoding, the handler, and encoding if the handler answers at once
    remote   waiting: for replicas, for records, for other members, for a thread
    send     behind earlier responses of the connection, and until the socket has accepted the last byte

Everything else is computed when metrics are requested: one answered request costs four additions and one count in a
histogram whose bounds are powers of two. Source: Kafka's `RequestMetrics`, whose request queue time is `queue` and
whose response queue and send times together are `send`.
"""

from typing import Protocol

FIRST_BOUND_BITS = 16
"""The first bucket of `totals` ends at 2**16 ns (66 µs); each further bound is twice the one before."""

_BUCKETS = 48


class Timed(Protocol):
    """The times of one request, in ns of the monotonic clock, and the sums that they are added to."""

    @property
    def times(self) -> "RequestTimes":
        """The sums of its API."""

    @property
    def received_ns(self) -> int:
        """When its last byte had been read."""

    @property
    def started_ns(self) -> int:
        """When it was dispatched."""

    @property
    def handed_over_ns(self) -> int:
        """When it began to wait; when it was answered, if it did not wait."""

    @property
    def answered_ns(self) -> int:
        """When its response was encoded."""


class AnsweredAtOnce:
    """The times of a request that did not wait."""

    __slots__ = ("answered_ns", "handed_over_ns", "received_ns", "started_ns", "times")

    def __init__(self, times: "RequestTimes", received_ns: int, started_ns: int, answered_ns: int) -> None:
        self.times, self.received_ns, self.started_ns = times, received_ns, started_ns
        self.handed_over_ns = self.answered_ns = answered_ns


class RequestTimes:
    """The sums over all requests of one API, in ns."""

    __slots__ = ("by_version", "local_ns", "queue_ns", "remote_ns", "send_ns", "totals")

    def __init__(self, versions: range) -> None:
        self.by_version = [0] * max(versions.stop, 1)  # requests dispatched, answered or not
        self.queue_ns = self.local_ns = self.remote_ns = self.send_ns = 0
        self.totals = [0] * _BUCKETS  # answered requests by total time

    def add(self, request: Timed, sent_ns: int) -> None:
        """Adds a request whose response is sent, or which is complete without a response."""
        received_ns, started_ns = request.received_ns, request.started_ns
        handed_over_ns, answered_ns = request.handed_over_ns, request.answered_ns
        if started_ns != received_ns:
            self.queue_ns += started_ns - received_ns
        self.local_ns += handed_over_ns - started_ns
        if answered_ns != handed_over_ns:
            self.remote_ns += answered_ns - handed_over_ns
        self.send_ns += sent_ns - answered_ns
        self.totals[(sent_ns - received_ns >> FIRST_BOUND_BITS).bit_length()] += 1
