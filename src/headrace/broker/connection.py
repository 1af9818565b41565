# cython: language_level=3, annotation_typing=False, binding=False
"""One client's connection: requests in, answers out, in the order of the requests.

A request that can be answered at once is answered inside the read callback. One that must wait (a long poll, a
join, acks=all) holds its place in the order as a `Slot`; requests behind it are still taken up, their answers wait
for it. Work that must not be overtaken (a large batch checked on an executor, a topic being made) holds the whole
connection instead: no later request is looked at until it is done.

Compiled, since every request passes here four times (read, taken up, answered, sent), and runs uncompiled too.

Nothing here knows an API: frames go to the dispatcher, chunks come back. Limits: of a peer that does not read its
answers, or sends requests faster than they are answered, no request is taken up until it has caught up; and after
`REQUESTS_PER_TURN_MAX` requests of one connection the others get their turn.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from time import monotonic_ns
from typing import Protocol

from headrace.broker.inbound import Inbound
from headrace.broker.metrics.request_times import Timed
from headrace.broker.outbound import FileRange, Outbound, Progress
from headrace.errors import InvalidRequest
from headrace.limits import (
    REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX,
    REQUESTS_PER_TURN_MAX,
    RESPONSE_BYTES_QUEUED_PER_CONNECTION_MAX,
)

log = logging.getLogger(__name__)

_TCP_INFO = getattr(socket, "TCP_INFO", socket.TCP_NODELAY)
_CLOSE_WAIT = 8

Chunks = list[bytes | FileRange]


class Slot:
    """The place of one request in the order of a connection's answers."""

    __slots__ = ("abandon", "chunks", "request", "size")

    def __init__(self) -> None:
        self.chunks: Chunks | None = None
        self.request: Timed | None = None  # set with the chunks
        self.size = 0  # of the chunks, in bytes
        self.abandon: Callable[[], None] | None = None  # called when the connection ends before the answer is there


class Dispatch(Protocol):
    """What a connection hands its frames to."""

    def __call__(self, connection: "Connection", frame: memoryview) -> None:
        """Handles one request frame, which is valid until it returns."""


class Owner(Protocol):
    """Who keeps the connections (the server)."""

    def connection_closed(self, connection: "Connection", reason: str) -> None:
        """Forgets it."""


class Connection:
    """One accepted socket, owned by the event loop."""

    __slots__ = (
        "_dispatch", "_goes_on", "_held", "_inbound", "_is_closed", "_is_held", "_is_reading", "_is_sending", "_loop",
        "_outbound", "_owner", "_receive_into", "_slots", "_sock", "_unsent", "_waiting_bytes", "host", "is_timed",
        "listener", "looked_ns", "peer", "received_ns", "software",
    )  # fmt: skip

    def __init__(
        self,
        sock: socket.socket,
        listener: str,
        inbound: Inbound,
        dispatch: Dispatch,
        owner: Owner,
        loop: asyncio.AbstractEventLoop,
        *,
        is_timed: bool = False,
    ) -> None:
        """`is_timed`: whether anybody will ask how long requests took."""
        self.is_timed = is_timed
        self._sock, self._loop, self._owner, self._dispatch = sock, loop, owner, dispatch
        self._receive_into = sock.recv_into
        self._inbound, self._outbound = inbound, Outbound()
        self._slots: deque[Slot] = deque()
        self._unsent: list[Timed] = []  # their answers are in `_outbound`
        self._waiting_bytes = 0  # of answers that are there and wait for one before them
        self._held: deque[memoryview] = deque()  # frames that arrived and could not be taken up yet
        self._is_held = self._is_closed = self._is_reading = self._is_sending = self._goes_on = False
        self.listener = listener
        address = sock.getpeername()
        self.host = str(address[0])
        self.peer = f"{address[0]}:{address[1]}"
        self.software = ""  # the client's name and version, once ApiVersions told
        self.received_ns = monotonic_ns()  # when bytes came last
        self.looked_ns = self.received_ns  # when the request being dispatched was taken up
        self._read_again()

    # -- in

    def _on_readable(self) -> None:
        inbound = self._inbound
        try:
            count = self._receive_into(inbound.target())
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(error.strerror or str(error))
            return
        if count == 0:
            self.close("closed by the client")
            return
        self.received_ns = self.looked_ns = monotonic_ns()
        try:
            frames = inbound.received(count)
        except InvalidRequest as error:
            self.close(error.message)
            return
        taken = self._take_up(frames)
        if taken < len(frames) and not self._is_closed:
            self._held.extend([memoryview(bytearray(frame)) for frame in frames[taken:]])
        self._flush()

    def _take_up(self, frames: list[memoryview]) -> int:
        """Dispatches frames, as many as may be; how many."""
        taken = 0
        try:
            for frame in frames:
                if taken == REQUESTS_PER_TURN_MAX or self._is_held or self._is_closed or self._is_full():
                    break
                taken += 1
                self._dispatch(self, frame)
        except InvalidRequest as error:
            self.close(error.message)
        except Exception:  # a bug of ours: the client must not wait for ever
            log.exception("a request could not be answered", extra={"peer": self.peer})
            self.close("an internal error")
        return taken

    def hold(self) -> None:
        """Takes up no further request until `release`."""
        self._is_held = True
        self._stop_reading()

    def release(self) -> None:
        """Goes on after `hold`, first with the frames that had arrived already."""
        self._is_held = False
        self._go_on()

    def _go_on(self) -> None:
        self._goes_on = False
        self.looked_ns = monotonic_ns()
        frames = [self._held.popleft() for _ in range(min(len(self._held), REQUESTS_PER_TURN_MAX))]
        taken = self._take_up(frames)
        if taken < len(frames) and not self._is_closed:
            self._held.extendleft(frames[: taken - 1 : -1] if taken else frames[::-1])
        self._flush()

    # -- out

    def place(self) -> Slot:
        """Reserves the next place in the order of the answers."""
        slot = Slot()
        self._slots.append(slot)
        return slot

    def answer(self, chunks: Chunks, request: Timed | None) -> None:
        """An answer to the request being dispatched; leaves when the read callback ends. None: nobody times it."""
        if self._slots:
            self._fill(self.place(), chunks, request)
        elif chunks:
            self._put_out(chunks, request)

    def answer_later(self, slot: Slot, chunks: Chunks, request: Timed) -> None:
        """The answer to a request that had to wait. No chunks: it has none (acks=0)."""
        self._fill(slot, chunks, request)
        if self._slots and self._slots[0] is slot:
            self._flush()

    def _fill(self, slot: Slot, chunks: Chunks, request: Timed | None) -> None:
        slot.chunks, slot.request, slot.abandon = chunks, request, None
        slot.size = sum(len(chunk) if isinstance(chunk, bytes) else chunk.size for chunk in chunks)
        self._waiting_bytes += slot.size

    def _put_out(self, chunks: Chunks, request: Timed | None) -> None:
        for chunk in chunks:
            self._outbound.add(chunk)
        if self.is_timed and request is not None:
            self._unsent.append(request)

    def _note_sent(self) -> None:
        """All that was to be sent has left (or so much waits that it is no longer told apart)."""
        now_ns = monotonic_ns()
        for request in self._unsent:
            request.times.add(request, now_ns)
        self._unsent.clear()

    def _flush(self) -> None:
        if self._is_closed:
            return
        slots = self._slots
        while slots and slots[0].chunks is not None:
            slot = slots.popleft()
            self._waiting_bytes -= slot.size
            if slot.chunks:
                self._put_out(slot.chunks, slot.request)
        if self._outbound and not self._is_sending:
            self._send()
        else:
            self._pace()

    def _send(self) -> None:
        try:
            progress = self._outbound.send(self._sock)
        except OSError as error:
            self.close(error.strerror or str(error))
            return
        if self._unsent and (progress is Progress.DONE or len(self._unsent) > REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX):
            self._note_sent()
        if progress is Progress.DONE:
            if self._is_sending:
                self._loop.remove_writer(self._sock)
                self._is_sending = False
        elif progress is Progress.COLD:
            self._warm_up()
        elif not self._is_sending:
            self._loop.add_writer(self._sock, self._send)
            self._is_sending = True
        self._pace()

    def _warm_up(self) -> None:
        if not self._is_sending:
            self._is_sending = True
        else:
            self._loop.remove_writer(self._sock)
        self._loop.run_in_executor(None, self._outbound.warm).add_done_callback(self._warmed)

    def _warmed(self, warming: "asyncio.Future[None]") -> None:
        self._is_sending = False
        error = warming.exception()
        if error is not None:
            self.close(f"reading the log failed: {error}")
        elif not self._is_closed:
            self._send()

    # -- pace

    def _pace(self) -> None:
        """Reads on, or not, by what the peer has yet to be sent."""
        if self._is_closed:
            return
        if self._is_held or self._is_full():
            self._stop_reading()
        elif self._held:
            self._stop_reading()
            if not self._goes_on:
                self._goes_on = True
                self._loop.call_soon(self._go_on)
        elif not self._is_reading:
            self._read_again()

    def _is_full(self) -> bool:
        return (
            self._outbound.queued_bytes + self._waiting_bytes > RESPONSE_BYTES_QUEUED_PER_CONNECTION_MAX
            or len(self._slots) > REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX
        )

    def _read_again(self) -> None:
        self._is_reading = True
        self._loop.add_reader(self._sock, self._on_readable)

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._sock)

    # -- end

    @property
    def last_active(self) -> float:
        """When bytes came last, by the loop's clock."""
        return self.received_ns / 1e9

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be answered any more."""
        return self._is_closed

    @property
    def is_idle(self) -> bool:
        """Whether no request waits for an answer."""
        return not (self._slots or self._outbound or self._held or self._is_held)

    def is_left_behind(self) -> bool:
        """Whether the peer has gone while so much waited for it that the end of its stream was not read (Linux)."""
        if not self._is_full() or self._is_closed:
            return False
        return self._sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0] == _CLOSE_WAIT

    def close(self, reason: str) -> None:
        """Ends the connection; answers that have not left are dropped."""
        if self._is_closed:
            return
        self._is_closed = True
        self._stop_reading()
        if self._is_sending:
            self._loop.remove_writer(self._sock)
        self._sock.close()
        self._outbound.clear()
        for slot in self._slots:
            if slot.abandon is not None:
                slot.abandon()
        self._slots.clear()
        self._unsent.clear()
        self._held.clear()
        self._owner.connection_closed(self, reason)
