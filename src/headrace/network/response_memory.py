"""Memory of the responses that wait for slow readers, over all connections: `queued.max.response.bytes`.

A connection is counted, without file ranges, once its queue exceeds `UNCOUNTED_BYTES`. While the total exceeds the
limit, counted connections dispatch no further request. Such a connection checks the total again whenever its own client
has read something, so no connection has to be woken. A connection with a shorter queue is never stopped by what others
leave unread; the total may therefore exceed the limit by one response for each of them.

Apache Kafka has no such limit: `queued.max.request.bytes` bounds requests alone.
"""

UNCOUNTED_BYTES = 64 << 10
"""Bytes that each connection may queue without being counted: about the size of a socket's buffers."""

UNLIMITED = -1


class ResponseMemory:
    """The total of one broker."""

    __slots__ = ("limit_bytes", "queued_bytes")

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes`: with `UNLIMITED`, the memory is only counted."""
        self.limit_bytes, self.queued_bytes = limit_bytes, 0

    def recount(self, counted: int, queued: int) -> int:
        """Replaces a connection's `counted` bytes with its `queued` bytes; returns what it is counted with now."""
        counts = queued if queued > UNCOUNTED_BYTES else 0
        self.queued_bytes += counts - counted
        return counts

    @property
    def is_exhausted(self) -> bool:
        """Whether counted connections have to wait."""
        return 0 <= self.limit_bytes < self.queued_bytes
