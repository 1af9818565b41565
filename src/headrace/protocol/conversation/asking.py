"""The client side of a connection: matches responses to the requests in flight.

A broker answers requests in order, so the requests in flight are a queue, and the correlation id is only checked. After
a response with another id, or without a request, the stream is unusable.

Sans-IO: the caller sends the bytes, receives into `target()` and takes the result of `received()`. It passes a token of
its own (such as a future) with each request, and gets it back with the response.
"""

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from headrace.errors import InvalidRequest
from headrace.protocol.conversation.frames import ANSWER, FrameReader, SpareBuffers
from headrace.protocol.headers import write_request_header

W = TypeVar("W")
"""The caller's token of a request."""

SCRATCH_BYTES = 64 << 10
_ID_BYTES = 4
_ID_MASK = 0x7FFFFFFF


class UnexpectedAnswer(InvalidRequest):
    """A response without a request, or with another correlation id than the oldest request in flight."""


class Conversation(Generic[W]):
    """The requests in flight on one connection, and its responses."""

    __slots__ = ("_client_id", "_in_flight", "_last_id", "_reader", "_scratch")

    def __init__(
        self,
        client_id: str,
        *,
        answer_bytes_max: int,
        scratch_bytes: int = SCRATCH_BYTES,
        spares: SpareBuffers | None = None,
    ) -> None:
        """`spares`: for answers larger than `scratch_bytes`, from a peer that is trusted with its sizes."""
        self._client_id = client_id
        self._scratch = memoryview(bytearray(scratch_bytes))
        self._reader = FrameReader(self._scratch, answer_bytes_max, ANSWER, spares)
        self._in_flight: deque[tuple[int, W]] = deque()
        self._last_id = 0

    def __len__(self) -> int:
        """The number of requests in flight."""
        return len(self._in_flight)

    @property
    def reader(self) -> FrameReader:
        """The frames of responses, for a caller that reads them itself."""
        return self._reader

    def forget_first(self, last_id: int) -> None:
        """Takes out the oldest request in flight: the caller has its response, and those of further requests, the last
        of which had this correlation id."""
        self._in_flight.popleft()
        self._last_id = last_id

    def header(self, api_key: int, version: int, client_id: str = "") -> tuple[int, bytes]:
        """The correlation id of the next request, and its header; with another client id than its own, if any."""
        correlation_id = self.next_id()
        return correlation_id, write_request_header(api_key, version, correlation_id, client_id or self._client_id)

    def next_id(self) -> int:
        """The correlation id of the next request, for a caller that writes the header itself."""
        self._last_id = (self._last_id + 1) & _ID_MASK
        return self._last_id

    def expect(self, correlation_id: int, waiter: W) -> None:
        """Notes a request that was sent and expects a response."""
        self._in_flight.append((correlation_id, waiter))

    def target(self) -> memoryview:
        """The buffer for the next received bytes; never empty."""
        return self._reader.target()

    def received(self, count: int) -> Iterator[tuple[W, memoryview]]:
        """The requests answered by `count` more bytes at `target()`, each with its response, header included.

        The caller may keep a response. Raises `InvalidRequest` on a frame of an impossible size, and `UnexpectedAnswer`
        after it has returned the responses before.
        """
        for frame in self._reader.received(count):
            correlation_id = int.from_bytes(frame[:_ID_BYTES], "big")
            if len(frame) < _ID_BYTES or not self._in_flight or self._in_flight[0][0] != correlation_id:
                raise UnexpectedAnswer(f"unexpected response with correlation id {correlation_id}{self._asked()}")
            _, waiter = self._in_flight.popleft()
            yield waiter, memoryview(bytes(frame)) if frame.obj is self._scratch.obj else frame

    def end(self) -> Iterator[W]:
        """The requests that get no response, because the connection is closed."""
        while self._in_flight:
            yield self._in_flight.popleft()[1]

    def _asked(self) -> str:
        return f", {self._in_flight[0][0]} is next" if self._in_flight else ""
