"""TLS over a socket: a transport whose bytes are encrypted by OpenSSL in this process.

`sendfile` cannot be used, since it would bypass the encryption, and each call sends from one buffer. The context must
refuse renegotiation (`OP_NO_RENEGOTIATION`; TLS 1.3 has none), so that a send never waits for a readable socket. A
receive may have to answer a key update while the socket's send buffer is full; the socket then stays readable, or the
next send includes that answer.
"""

from collections.abc import Sequence
from ssl import SSLSocket, SSLWantReadError, SSLWantWriteError

from headrace.network.transport import SocketTransport, Wants


class TlsTransport(SocketTransport):
    """A TLS stream, of either side."""

    __slots__ = ("_tls",)

    can_send_file = False
    is_buffering = True

    def __init__(self, sock: SSLSocket) -> None:
        """`sock` is connected and non-blocking; its handshake may still be pending."""
        super().__init__(sock)
        self._tls = sock

    def handshake(self) -> Wants:
        """See `Transport`."""
        try:
            self._tls.do_handshake()
        except SSLWantReadError:
            return Wants.READ
        except SSLWantWriteError:
            return Wants.WRITE
        return Wants.NOTHING

    def receive_into(self, target: memoryview, /) -> int:
        """See `Transport`."""
        try:
            return self._tls.recv_into(target)
        except (SSLWantReadError, SSLWantWriteError) as cause:
            raise BlockingIOError from cause

    def send(self, data: bytes | memoryview, _flags: int = 0, /) -> int:
        """See `Transport`. The flags are ignored: each call makes TLS records of its own."""
        try:
            return self._tls.send(data)
        except (SSLWantReadError, SSLWantWriteError) as cause:
            raise BlockingIOError from cause

    def send_parts(self, parts: Sequence[memoryview], /) -> int:
        """See `Transport`. Sends bytes of the first part only."""
        return self.send(parts[0])

    def send_file(self, fd: int, position: int, size: int) -> int:
        """See `Transport`. Never called, since `can_send_file` is False."""
        raise AssertionError("a TLS connection cannot use sendfile, which would bypass the encryption")

    def pending(self) -> int:
        """See `Transport`."""
        return self._tls.pending()
