"""One connection to one broker: requests out, answers in, many in flight.

A broker answers in the order in which it was asked, so the requests in flight are a queue and the correlation id is
only checked. Sending blocks until the bytes are with the kernel; receiving happens in `pump` (whatever is there now),
`wait` (until one answer) or, over several connections at once, in `pump_any`. One thread at a time uses a connection.

When the socket fails, every request in flight fails with the same BrokerUnreachable, and the connection stays broken:
the owner opens another.
"""

import select
import socket
from collections import deque
from collections.abc import Iterable, Sequence
from ssl import SSLSocket, SSLWantReadError, SSLWantWriteError
from typing import Any, Generic, Self, TypeVar

from headrace.client.failures import BrokerUnreachable, DeadlineExceeded
from headrace.client.inbound import FrameBuffer
from headrace.client.settings import Address, ClientSettings
from headrace.client.timing import Deadline
from headrace.client.versions import BrokerVersions
from headrace.protocol.headers import read_response_header, write_request_header
from headrace.protocol.message import Message
from headrace.protocol.wire import Chunk

_WOULD_BLOCK = (BlockingIOError, SSLWantReadError, SSLWantWriteError)
_NO_VERSIONS = BrokerVersions("(not negotiated)", {})


R = TypeVar("R", bound=Message)
"""The response message that a request is answered with."""


class Payload:
    """Bytes given as a `records` value that go to the socket from where they are, not copied into the request."""

    __slots__ = ("data", "size")

    def __init__(self, data: bytearray) -> None:
        self.data = data
        self.size = len(data)


def _data_of(chunk: Chunk) -> bytearray:
    assert isinstance(chunk, Payload), "a client's records are payloads"
    return chunk.data


class Pending(Generic[R]):
    """A request in flight: `done` once answered or failed, then `result()`."""

    __slots__ = ("_answer", "_api_key", "_error", "_frame", "correlation_id", "version")

    def __init__(self, correlation_id: int, api_key: int, version: int, answer: type[R]) -> None:
        self.correlation_id = correlation_id
        self.version = version
        self._api_key = api_key
        self._answer = answer
        self._frame: memoryview | None = None
        self._error: BrokerUnreachable | None = None

    @property
    def done(self) -> bool:
        """Whether `result()` would give or raise something."""
        return self._frame is not None or self._error is not None

    def complete(self, frame: memoryview) -> None:
        """The answer has come."""
        self._frame = frame

    def fail(self, error: BrokerUnreachable) -> None:
        """No answer will come."""
        self._error = error

    def frame(self) -> memoryview:
        """The raw answer, header included; raises what the request failed with."""
        if self._error is not None:
            raise self._error
        assert self._frame is not None, "asked for a result before it was done"
        return self._frame

    def result(self) -> R:
        """The decoded answer; raises what the request failed with."""
        frame = self.frame()
        _, pos = read_response_header(frame, self._api_key, self.version)
        return self._answer.decode(self.version, frame, pos)[0]


class Connection:
    """A socket to one broker with its requests in flight and its negotiated versions."""

    __slots__ = ("_client_id", "_error", "_frames", "_in_flight", "_next_id", "_socket", "address", "versions")

    def __init__(self, sock: socket.socket, address: Address, client_id: str) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._client_id = client_id
        self._frames = FrameBuffer()
        self._in_flight: deque[Pending[Any]] = deque()
        self._next_id = 0
        self._error: BrokerUnreachable | None = None
        self.address = address
        self.versions: BrokerVersions = _NO_VERSIONS

    @classmethod
    def open(cls, address: Address, settings: ClientSettings, deadline: Deadline) -> Self:
        """Connect (and shake hands when `settings.tls` is given). BrokerUnreachable names the address."""
        limit = deadline.sooner(settings.connect_timeout_ms)
        try:
            sock = socket.create_connection(address, timeout=max(0.001, limit.remaining_s))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if settings.tls is not None:
                sock = settings.tls.wrap_socket(sock, server_hostname=address.host)
        except OSError as cause:
            raise BrokerUnreachable(f"cannot connect to {address}: {cause.strerror or cause}") from cause
        return cls(sock, address, settings.client_id)

    def fileno(self) -> int:
        """The socket's descriptor, for a selector."""
        return self._socket.fileno()

    @property
    def usable(self) -> bool:
        """Whether a request can still be sent here."""
        return self._error is None

    @property
    def in_flight(self) -> int:
        """How many requests wait for their answers."""
        return len(self._in_flight)

    def send(self, request: Message, answer: type[R], deadline: Deadline, version: int | None = None) -> Pending[R]:
        """Send `request` in the negotiated version; the answer is collected later."""
        pending = self._write(request, answer, deadline, version)
        self._in_flight.append(pending)
        return pending

    def send_unanswered(self, request: Message, answer: type[R], deadline: Deadline) -> None:
        """Send a request that a broker does not answer (Produce with acks=0)."""
        self._write(request, answer, deadline, None)

    def call(self, request: Message, answer: type[R], deadline: Deadline, version: int | None = None) -> R:
        """Send and wait."""
        return self.wait(self.send(request, answer, deadline, version), deadline)

    def wait(self, pending: Pending[R], deadline: Deadline) -> R:
        """The answer to `pending`, decoded."""
        self.settle(pending, deadline)
        return pending.result()

    def settle(self, pending: Pending[R], deadline: Deadline) -> None:
        """Wait until `pending` is done; DeadlineExceeded breaks the connection, whose stream is then in doubt."""
        if not self.pump_until(pending, deadline):
            self._break(BrokerUnreachable(f"closed by us: {self.address} did not answer in time"))
            raise DeadlineExceeded(f"{self.address} did not answer in time")

    def pump_until(self, pending: Pending[R], deadline: Deadline) -> bool:
        """Whether `pending` was done before the deadline; it stays in flight when it was not."""
        while not pending.done:
            if not pump_any([self], deadline.remaining_s) and deadline.expired:
                return False
        return True

    def pump(self) -> None:
        """Take all bytes that are there without waiting, and complete the requests that they answer."""
        try:
            while self._receive():
                pass
        except OSError as cause:
            self._break(BrokerUnreachable(f"connection to {self.address} lost: {cause.strerror or cause}"))

    def close(self) -> None:
        """Close; what is in flight fails."""
        self._break(BrokerUnreachable(f"connection to {self.address} closed"))

    def _write(self, request: Message, answer: type[R], deadline: Deadline, version: int | None) -> Pending[R]:
        if self._error is not None:
            raise self._error
        api_key = request.API_KEY
        assert api_key is not None, f"{type(request).__name__} is not a request"
        if version is None:
            version = self.versions.choose(api_key)
        self._next_id = correlation_id = (self._next_id + 1) & 0x7FFFFFFF
        header = write_request_header(api_key, version, correlation_id, self._client_id)
        pieces = request.encode_chunks(version)
        body = [piece if isinstance(piece, bytes) else _data_of(piece) for piece in pieces]
        size = (len(header) + sum(map(len, body))).to_bytes(4, "big")
        try:
            self._send_all([size + header, *body], deadline)
        except OSError as cause:
            self._break(BrokerUnreachable(f"connection to {self.address} lost: {cause.strerror or cause}"))
            assert self._error is not None
            raise self._error from cause
        return Pending(correlation_id, api_key, version, answer)

    def _send_all(self, parts: Sequence[bytes | bytearray], deadline: Deadline) -> None:
        rest = [memoryview(part) for part in parts if part]
        while rest:
            try:
                sent = self._socket.send(rest[0]) if isinstance(self._socket, SSLSocket) else self._socket.sendmsg(rest)
            except _WOULD_BLOCK:
                if not _ready(self._socket, select.POLLOUT, deadline.remaining_s):
                    raise TimeoutError("no room to send before the deadline") from None
                continue
            while rest and sent >= len(rest[0]):
                sent -= len(rest.pop(0))
            if sent:
                rest[0] = rest[0][sent:]

    def _receive(self) -> bool:
        """One receive; whether there may be more to read now."""
        room = self._frames.writable()
        try:
            count = self._socket.recv_into(room)
        except _WOULD_BLOCK:
            return False
        if count == 0:
            raise ConnectionResetError("closed by the broker")
        self._frames.wrote(count)
        while (frame := self._frames.next_frame()) is not None:
            self._answered(frame)
        return count == len(room) or isinstance(self._socket, SSLSocket)

    def _answered(self, frame: memoryview) -> None:
        correlation_id = int.from_bytes(frame[:4], "big")
        if not self._in_flight or self._in_flight[0].correlation_id != correlation_id:
            raise OSError(f"answer {correlation_id} was not asked for")
        self._in_flight.popleft().complete(frame)

    def _break(self, error: BrokerUnreachable) -> None:
        if self._error is None:
            self._error = error
            self._socket.close()
        while self._in_flight:
            self._in_flight.popleft().fail(error)


def _ready(sock: socket.socket, events: int, timeout_s: float) -> bool:
    poller = select.poll()
    poller.register(sock, events)
    return bool(poller.poll(timeout_s * 1000))


def pump_any(connections: Iterable[Connection], timeout_s: float, wake_fd: int | None = None) -> bool:
    """Wait until a connection (or `wake_fd`) is readable, then take what is there; whether anything was."""
    by_fd = {connection.fileno(): connection for connection in connections if connection.usable}
    poller = select.poll()
    for fd in by_fd:
        poller.register(fd, select.POLLIN)
    if wake_fd is not None:
        poller.register(wake_fd, select.POLLIN)
    ready = poller.poll(max(0.0, timeout_s) * 1000)
    for fd, _ in ready:
        if fd in by_fd:
            by_fd[fd].pump()
    return bool(ready)
