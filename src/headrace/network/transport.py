"""The byte stream under a connection. Nothing else receives from a socket or sends to it.

    handshake()      -> Wants        NOTHING when bytes can be exchanged; READ or WRITE: call again when the socket can
    receive_into()   -> count        0 at the end of the stream
    send(), send_parts(), send_file() -> count, which may be less than what was given

Each of the last four raises `BlockingIOError` when the socket would block, and `OSError` when the stream has failed.
Once the handshake is over, a receive is called again when the socket is readable and a send when it is writable.

`can_send_file` is False where bytes must be changed on their way (TLS): the caller reads the file and sends bytes.
`direct_fd` is the descriptor of a socket whose own calls are all that the transport makes, so that compiled code may
make them itself; -1 otherwise. `is_buffering` is True where the transport may hold `pending()` bytes that it took from
the socket and `receive_into` has not returned yet: the socket does not become readable for them. `turn_bytes` are sent
at most before other connections get their turn.

A plain stream adds no cost: `receive_into`, `send` and `send_parts` are the socket's own methods.
"""

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
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


class Send(Protocol):
    """`Transport.send`."""

    def __call__(self, data: bytes | memoryview, flags: int = 0, /) -> int: ...


class Transport(Protocol):
    """A byte stream to a peer, over a socket that does not block."""

    can_send_file: bool
    direct_fd: int
    is_buffering: bool
    turn_bytes: int

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

    def shut_down(self) -> None:
        """Ends the stream in both directions, also for a thread that waits for it. Any thread may call."""

    def close(self) -> None:
        """Closes the socket."""


def plain_address(host: str) -> str:
    """An address of IPv4 in its own form, which a socket of IPv6 names `::ffff:A.B.C.D`: rules, limits and quotas name
    it without the prefix, as Java does."""
    return host.removeprefix("::ffff:") if "." in host else host


def peek(sock: socket.socket, size: int) -> bytes:
    """The next received bytes, at most `size`, which stay to be received; empty at the end of the stream. Raises
    `OSError`."""
    return sock.recv(size, socket.MSG_PEEK)


def receive(sock: socket.socket, size: int) -> bytes:
    """The next bytes, at most `size`, of what comes before the stream; empty at its end. Raises `OSError`."""
    return sock.recv(size)


def send_file(sock: socket.socket, fd: int, position: int, size: int) -> int:
    """Sends bytes of a file to a socket as it is, past any encryption in this process; see `Transport.send_file`."""
    return os.sendfile(sock.fileno(), fd, position, size)


class SocketTransport:
    """The common part of transports over a socket."""

    __slots__ = ("_address", "_sock")

    direct_fd = -1

    def __init__(self, sock: socket.socket, address: tuple[str, int] | None = None) -> None:
        """`sock` is connected and does not block. `address`: of the peer, which is not the socket's behind a proxy."""
        self._sock, self._address = sock, address

    def fileno(self) -> int:
        """See `Transport`."""
        return self._sock.fileno()

    def address(self) -> tuple[str, int]:
        """See `Transport`."""
        if self._address is not None:
            return self._address
        host, port, *_ = self._sock.getpeername()
        return plain_address(str(host)), int(port)

    def is_left(self) -> bool:
        """See `Transport`."""
        return self._sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0] == _CLOSE_WAIT

    def shut_down(self) -> None:
        """See `Transport`. The socket's own way, because that of TLS takes the thread's state away."""
        with suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """See `Transport`."""
        self._sock.close()


class PlainTransport(SocketTransport):
    """Plain TCP."""

    __slots__ = ("direct_fd", "receive_into", "send", "send_parts")

    can_send_file = True
    is_buffering = False
    turn_bytes = 4 << 20

    def __init__(self, sock: socket.socket, address: tuple[str, int] | None = None) -> None:
        """See `SocketTransport`."""
        super().__init__(sock, address)
        self.direct_fd = sock.fileno()
        self.receive_into: Callable[[memoryview], int] = sock.recv_into
        self.send: Send = sock.send
        self.send_parts: Callable[[Sequence[memoryview]], int] = (
            sock.sendmsg if hasattr(sock, "sendmsg") else lambda parts: sock.send(parts[0])  # Windows has none
        )

    def send_file(self, fd: int, position: int, size: int) -> int:
        """See `Transport`. The kernel copies the bytes; they never enter this process."""
        return send_file(self._sock, fd, position, size)

    def close(self) -> None:
        """See `Transport`."""
        self.direct_fd = -1  # the number may soon be that of another socket
        super().close()

    def handshake(self) -> Wants:
        """See `Transport`. A plain stream has none."""
        return Wants.NOTHING

    def pending(self) -> int:
        """See `Transport`. Always 0: the kernel holds all received bytes."""
        return 0
