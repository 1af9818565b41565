"""One connection to another broker: requests out, answers in, in the order in which they were asked.

A broker answers in order, so what is in flight is a queue, and the correlation id is only checked. A frame that fits
the scratch buffer is copied out of it; a larger one has a buffer of its own, and what is decoded from it are views of
that buffer: records that a follower fetched are copied once, by the kernel, until they are appended.

Once anything goes wrong the connection is of no use: everybody who waits hears why, and its owner makes another.
"""

import asyncio
import socket
from collections import deque
from typing import NamedTuple

from headrace.broker.inbound import Inbound
from headrace.coordination.peers import PeerUnreachable
from headrace.errors import InvalidRequest

SCRATCH_BYTES = 64 << 10


class _InFlight(NamedTuple):
    correlation_id: int
    answered: asyncio.Future[memoryview]


class PeerConnection:
    """A socket that is connected, owned by the event loop."""

    def __init__(
        self,
        sock: socket.socket,
        name: str,
        *,
        loop: asyncio.AbstractEventLoop,
        answer_bytes_max: int,
        scratch_bytes: int = SCRATCH_BYTES,
    ) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock, self._loop, self._name = sock, loop, name
        self._scratch = memoryview(bytearray(scratch_bytes))
        self._inbound = Inbound(self._scratch, answer_bytes_max)
        self._unsent: deque[memoryview] = deque()
        self._in_flight: deque[_InFlight] = deque()
        self._last_id = 0
        self.versions: dict[int, tuple[int, int]] = {}
        """What the peer serves: the first and the last version by API key."""
        self.failure: PeerUnreachable | None = None
        """Why it is of no use any more."""
        self._over = asyncio.Event()
        loop.add_reader(sock, self._on_readable)

    def next_id(self) -> int:
        """The correlation id of the next request."""
        self._last_id = (self._last_id + 1) & 0x7FFFFFFF
        return self._last_id

    def send(self, correlation_id: int, frame: bytes) -> asyncio.Future[memoryview]:
        """Sends a request, header and all but its size; the answer, header and all, when it is there. A connection
        that breaks gives `PeerUnreachable`."""
        answered: asyncio.Future[memoryview] = self._loop.create_future()
        if self.failure is not None:
            answered.set_exception(self.failure)
            return answered
        self._in_flight.append(_InFlight(correlation_id, answered))
        self._unsent.append(memoryview(len(frame).to_bytes(4, "big") + frame))
        if len(self._unsent) == 1:
            self._send()
        return answered

    async def broken(self) -> None:
        """Returns when it is of no use any more."""
        await self._over.wait()

    def close(self, why: str = "it is not needed any more") -> None:
        """Ends it; whoever waits gets `PeerUnreachable`."""
        if self.failure is not None:
            return
        self.failure = PeerUnreachable(f"{self._name}: {why}")
        self._over.set()
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        self._unsent.clear()
        while self._in_flight:
            answered = self._in_flight.popleft().answered
            if not answered.done():
                answered.set_exception(self.failure)

    def _send(self) -> None:
        try:
            while self._unsent:
                sent = self._sock.send(self._unsent[0])
                if sent < len(self._unsent[0]):
                    self._unsent[0] = self._unsent[0][sent:]
                else:
                    self._unsent.popleft()
        except (BlockingIOError, InterruptedError):
            self._loop.add_writer(self._sock, self._send)
        except OSError as error:
            self.close(error.strerror or str(error))
        else:
            self._loop.remove_writer(self._sock)

    def _on_readable(self) -> None:
        try:
            count = self._sock.recv_into(self._inbound.target())
            if count == 0:
                self.close("closed by the other side")
                return
            for frame in self._inbound.received(count):
                self._answered(memoryview(bytes(frame)) if frame.obj is self._scratch.obj else frame)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(error.strerror or str(error))
        except InvalidRequest as error:
            self.close(f"what came is no answer: {error.message}")

    def _answered(self, frame: memoryview) -> None:
        correlation_id = int.from_bytes(frame[:4], "big")
        if not self._in_flight or self._in_flight[0].correlation_id != correlation_id:
            raise InvalidRequest(f"answer {correlation_id} was not asked for")
        answered = self._in_flight.popleft().answered
        if not answered.done():
            answered.set_result(frame)
