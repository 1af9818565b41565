"""The byte stream under a connection. Nothing else receives from a socket or sends to it.

    handshake()      -> Wants        NOTHING when bytes can be exchanged; READ or WRITE: call again when the socket can
    receive_into()   -> count        0 at the end of the stream
    send(), send_parts(), send_file() -> count, which may be less than what was given

Each of the last four raises `BlockingIOError` when the socket would block, and `OSError` when the stream has failed.
Once the handshake is over, a receive is called again when the socket is readable and a send when it is writable.

`can_send_file` is False where bytes must be changed on their way (TLS): the caller reads the file and sends bytes.
`is_buffering` is True where the transport may hold `pending()` bytes that it took from the socket and `receive_into`
has not returned yet: the socket does not become readable for them.

A plain stream adds no cost: `receive_into`, `send` and `send_parts` are the socket's own methods.
"""

import os
import socket
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Protocol

MORE = getattr(socket, "MSG_MORE", 0)
"""Flag of `send`: more bytes follow at once, so the kernel may wait for them before it makes a packet."""

_TCP_INFO = getattr(socket, "TCP_INFO", socket.TCP_NODELAY)
_CLOSE_WAIT = 8


class Wants(Enum):
    """The readiness of the socket that a transport waits for."""

    NOTHING = auto()
    READ = auto()
    WRITE = auto()


class _Send(Protocol):
    def __call__(self, data: bytes | memoryview, flags: int = 0, /) -> int: ...


class Transport(Protocol):
    """A byte stream to a peer, over a socket that does not block."""

    can_send_file: bool
    is_buffering: bool

    def receive_into(self, target: memoryview, /) -> int:
        """Receives bytes into `target`; returns 0 at the end of the stream."""

    def send(self, data: bytes | memoryview, flags: int = 0, /) -> int:
        """Sends from the beginning of `data`. `flags` is MORE or 0."""

    def send_parts(self, parts: Sequence[memoryview], /) -> int:
        """Sends from the beginning of several pieces, as if they were one."""

    def send_file(self, fd: int, position: int, size: int) -> int:
        """Sends bytes of a file; returns 0 if the file ends before `position`."""

    def handshake(self) -> Wants:
        """Continues the handshake. Raises `OSError` when it failed."""

    def pending(self) -> int:
        """How many bytes `receive_into` can return without reading the socket."""

    def fileno(self) -> int:
        """The socket's descriptor, for an event loop or a selector."""

    def address(self) -> tuple[str, int]:
        """The peer's host and port."""

    def is_left(self) -> bool:
        """Whether the peer has closed its side, even if the end of the stream is not read yet (Linux)."""

    def close(self) -> None:
        """Closes the socket."""


class SocketTransport:
    """The common part of transports over a socket."""

    __slots__ = ("_sock",)

    def __init__(self, sock: socket.socket) -> None:
        """`sock` is connected and does not block."""
        self._sock = sock

    def fileno(self) -> int:
        """See `Transport`."""
        return self._sock.fileno()

    def address(self) -> tuple[str, int]:
        """See `Transport`."""
        host, port, *_ = self._sock.getpeername()
        return str(host), int(port)

    def is_left(self) -> bool:
        """See `Transport`."""
        return self._sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0] == _CLOSE_WAIT

    def close(self) -> None:
        """See `Transport`."""
        self._sock.close()


class PlainTransport(SocketTransport):
    """Plain TCP."""

    __slots__ = ("receive_into", "send", "send_parts")

    can_send_file = True
    is_buffering = False

    def __init__(self, sock: socket.socket) -> None:
        """`sock` is connected and does not block."""
        super().__init__(sock)
        self.receive_into: Callable[[memoryview], int] = sock.recv_into
        self.send: _Send = sock.send
        self.send_parts: Callable[[Sequence[memoryview]], int] = sock.sendmsg

    def send_file(self, fd: int, position: int, size: int) -> int:
        """See `Transport`. The kernel copies the bytes; they never enter this process."""
        return os.sendfile(self._sock.fileno(), fd, position, size)

    def handshake(self) -> Wants:
        """See `Transport`. A plain stream has none."""
        return Wants.NOTHING

    def pending(self) -> int:
        """See `Transport`. Always 0: the kernel holds all received bytes."""
        return 0
