"""Connections from trusted proxies, until their header of the PROXY protocol is complete.

From a trusted address the header is required, as with HAProxy's `expect-proxy` and NGINX's `proxy_protocol`: a receiver
that guesses lets clients tell where they are from. Nothing is read behind the header. A connection that ends before its
first byte is a health check, and is not logged. Everything is bounded: the time, the connections, the header's size.
"""

import asyncio
import socket
from collections.abc import Callable

from headrace.errors import InvalidRequest
from headrace.limits import HANDSHAKE_MS, PROXY_HEADERS_MAX
from headrace.network.entrances import Entrance
from headrace.network.fairness import FairRoom
from headrace.network.proxy_protocol import bytes_needed, read_proxy_header
from headrace.network.refusals import Refusals
from headrace.network.transport import receive

_CLOSES_PER_TURN = 20  # each takes up to fifty microseconds

Address = tuple[str, int]
Arrived = Callable[[Entrance, socket.socket, Address], None]


class _Waiting:
    __slots__ = ("deadline", "entrance", "fd", "peer", "received", "sock")

    def __init__(self, entrance: Entrance, sock: socket.socket, peer: Address, deadline: float) -> None:
        self.entrance, self.sock, self.peer, self.deadline = entrance, sock, peer, deadline
        self.fd = sock.fileno()
        self.received = bytearray()


class Proxied:
    """Reads the headers."""

    def __init__(self, loop: asyncio.AbstractEventLoop, arrived: Arrived, refusals: Refusals) -> None:
        """`arrived` gets each connection whose header is complete, with its client's address."""
        self._loop, self._arrived, self._refusals = loop, arrived, refusals
        self._waiting: FairRoom[_Waiting] = FairRoom()
        self._timer: asyncio.TimerHandle | None = None
        self.failures = 0
        """Connections without a header that could be read."""

    def __len__(self) -> int:
        """The number of connections whose header is not complete."""
        return len(self._waiting)

    def begin(self, entrance: Entrance, sock: socket.socket, peer: Address) -> None:
        """Takes an accepted connection of a trusted proxy."""
        sock.setblocking(False)
        if len(self._waiting) >= PROXY_HEADERS_MAX:
            self._fail(self._waiting.excess, "too many connections of proxies have sent no header")
        deadline = self._loop.time() + HANDSHAKE_MS / 1000
        this = _Waiting(entrance, sock, peer, deadline)
        self._waiting.add(this, entrance.name)
        self._loop.add_reader(this.fd, self._read, this)
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._expire)

    def close(self) -> None:
        """Closes all connections."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for this in list(self._waiting):
            self._forget(this)
            this.sock.close()

    def _read(self, this: _Waiting) -> None:
        try:
            while missing := bytes_needed(this.received):
                found = receive(this.sock, missing)
                if not found:
                    self._fail(this, "a trusted proxy sent half a header" if this.received else "")
                    return
                this.received += found
            header = read_proxy_header(this.received)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._fail(this, "")
            return
        except InvalidRequest as error:
            self._fail(this, error.message)
            return
        assert header is not None
        self._forget(this)
        self._arrived(this.entrance, this.sock, header.source or this.peer)

    def _expire(self) -> None:
        """Closes the connections that had their time; the clock runs for the next one."""
        self._timer, now, left = None, self._loop.time(), _CLOSES_PER_TURN
        while self._waiting:
            oldest = self._waiting.oldest
            if oldest.deadline > now or not left:
                self._timer = self._loop.call_at(max(oldest.deadline, now), self._expire)
                return
            left -= 1
            self._fail(oldest, "a trusted proxy sent no header in time")

    def _fail(self, this: _Waiting, why: str) -> None:
        self.failures += 1
        self._forget(this)
        this.sock.close()
        if why:
            self._refusals.note(why, f"{this.peer[0]}:{this.peer[1]}", this.entrance.name)

    def _forget(self, this: _Waiting) -> None:
        self._loop.remove_reader(this.fd)
        self._waiting.remove(this)
