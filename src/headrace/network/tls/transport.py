"""TLS over a socket: transports whose bytes are encrypted by OpenSSL in this process, or by the kernel.

    TlsTransport         OpenSSL encrypts. Files are read and sent as bytes, and each call sends from one buffer.
    KernelTlsTransport   OpenSSL has given the kernel the key (`kernel`): what is sent to the socket is encrypted there,
                         also by `sendfile`

The context must refuse renegotiation (`OP_NO_RENEGOTIATION`; TLS 1.3 has none), so that a send never waits for a
readable socket. A receive may have to answer a key update while the socket's send buffer is full; the socket then stays
readable, or the next send includes that answer.

    receive    OpenSSL returns one record of at most 16 KiB per call: a receive takes records until one is not full
    send       all or nothing: OpenSSL keeps what it has encrypted, and the caller repeats the call with the same bytes,
               or more behind them. A send takes 128 KiB at most, so that one call does not encrypt for long.

Sends of 16 KiB cost a sixth more processor time per byte than those of 128 KiB; larger ones, a mapped file, or records
that are made in memory and sent together do not cost less (measured with AES-256-GCM on a loopback connection).
"""

from collections.abc import Callable, Sequence
from socket import socket
from ssl import SSLSocket, SSLWantReadError, SSLWantWriteError

from headrace.network.transport import Send, SocketTransport, Wants, send_file

_RECORD_BYTES = 16 << 10
SEND_BYTES_MAX = 128 << 10


class _TlsReceiver(SocketTransport):
    """What both have in common: OpenSSL makes the handshake and decrypts."""

    __slots__ = ("_tls",)

    is_buffering = True
    turn_bytes = 1 << 20  # encrypting a megabyte takes half a millisecond

    def __init__(self, sock: SSLSocket, address: tuple[str, int] | None = None) -> None:
        """See `SocketTransport`. The handshake may still be pending."""
        super().__init__(sock, address)
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
        count = 0
        try:
            while True:
                record = self._tls.recv_into(target[count:] if count else target)
                count += record
                if record < _RECORD_BYTES or count == len(target):
                    return count
        except (SSLWantReadError, SSLWantWriteError) as cause:
            if count:
                return count
            raise BlockingIOError from cause

    def pending(self) -> int:
        """See `Transport`."""
        return self._tls.pending()


class TlsTransport(_TlsReceiver):
    """A TLS stream, of either side, that OpenSSL encrypts."""

    __slots__ = ()

    can_send_file = False

    def send(self, data: bytes | memoryview, _flags: int = 0, /) -> int:
        """See `Transport`. The flags are ignored: each call makes TLS records of its own."""
        try:
            return self._tls.send(data if len(data) <= SEND_BYTES_MAX else memoryview(data)[:SEND_BYTES_MAX])
        except (SSLWantReadError, SSLWantWriteError) as cause:
            raise BlockingIOError from cause

    def send_parts(self, parts: Sequence[memoryview], /) -> int:
        """See `Transport`. Sends bytes of the first part only."""
        return self.send(parts[0])

    def send_file(self, fd: int, position: int, size: int) -> int:
        """See `Transport`. Never called, since `can_send_file` is False."""
        raise AssertionError("sendfile would bypass the encryption by OpenSSL")


class KernelTlsTransport(_TlsReceiver):
    """A TLS stream that the kernel encrypts.

    All sends go to the socket, past OpenSSL: its own would keep a pointer to the caller's bytes when the socket is
    full. So OpenSSL sends nothing but alerts, and the key of what is sent stays the same; kernels before 6.14 cannot
    change it. A peer of TLS 1.3 that asks for another one, as Java's do after each 137 GB that they have sent, gets it
    with OpenSSL's next send, so never. When it asks again, OpenSSL answers before it goes on reading: then the peer
    cannot read on, and connects again.
    """

    __slots__ = ("send", "send_parts")

    can_send_file = True

    def __init__(self, sock: SSLSocket, address: tuple[str, int] | None = None) -> None:
        """The handshake of `sock` is complete, and `kernel.encrypts` it. `address`: see `SocketTransport`."""
        super().__init__(sock, address)
        # The methods of the socket under TLS, which an SSLSocket overrides.
        self.send: Send = socket.send.__get__(sock)
        self.send_parts: Callable[[Sequence[memoryview]], int] = socket.sendmsg.__get__(sock)

    def send_file(self, fd: int, position: int, size: int) -> int:
        """See `Transport`. The kernel encrypts the bytes of the page cache; they never enter this process."""
        return send_file(self._tls, fd, position, size)
