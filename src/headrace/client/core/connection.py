"""One connection to one broker: requests out, answers in, many in flight.

`Conversation` handles the requests in flight and the frames. Sending blocks until the kernel has the bytes. `pump`
receives the bytes that are available now, `wait` receives until one answer, and `pump_any` receives from several
connections at once. One thread at a time uses a connection.

When the socket fails, every request in flight fails with the same BrokerUnreachable, and the connection stays broken:
the owner opens another.
"""

import select
import socket
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from headrace.client.core.failures import BrokerUnreachable, DeadlineExceeded
from headrace.client.core.settings import RESPONSE_BYTES_MAX, Address, ClientSettings
from headrace.client.core.timing import Deadline
from headrace.client.core.versions import BrokerVersions
from headrace.errors import InvalidRequest
from headrace.network.transport import PlainTransport, Transport
from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message
from headrace.protocol.codec.wire import Chunk
from headrace.protocol.conversation.asking import Conversation
from headrace.protocol.conversation.frames import SpareBuffers
from headrace.protocol.conversation.negotiation import negotiation
from headrace.protocol.headers import read_response_header

if TYPE_CHECKING:
    from ssl import SSLContext

_NO_VERSIONS = BrokerVersions("(not negotiated)", {})


R = TypeVar("R", bound=Message)
"""The response message that a request is answered with."""


class Payload:
    """Bytes of a `records` value that are sent from their own buffer, without a copy into the request."""

    __slots__ = ("data", "size")

    def __init__(self, data: bytearray) -> None:
        self.data = data
        self.size = len(data)


def _data_of(chunk: Chunk) -> bytearray:
    assert isinstance(chunk, Payload), "a client's records are payloads"
    return chunk.data


class Pending(Generic[R]):
    """A request in flight. When it is answered or failed, `done` is true and `result()` is available."""

    __slots__ = ("_answer", "_api_key", "_error", "_frame", "version")

    def __init__(self, api_key: int, version: int, answer: type[R]) -> None:
        self.version = version
        self._api_key = api_key
        self._answer = answer
        self._frame: memoryview | None = None
        self._error: BrokerUnreachable | None = None

    @property
    def done(self) -> bool:
        """Whether `result()` is available: the request was answered or failed."""
        return self._frame is not None or self._error is not None

    def complete(self, frame: memoryview) -> None:
        """Complete the request with an answer."""
        self._frame = frame

    def fail(self, error: BrokerUnreachable) -> None:
        """Complete the request with an error."""
        self._error = error

    def frame(self) -> memoryview:
        """The raw answer with its header. Raises the error of a failed request."""
        if self._error is not None:
            raise self._error
        assert self._frame is not None, "asked for a result before it was done"
        return self._frame

    def result(self) -> R:
        """The decoded answer. Raises the error of a failed request."""
        frame = self.frame()
        _, pos = read_response_header(frame, self._api_key, self.version)
        return self._answer.decode(self.version, frame, pos)[0]


class Connection:
    """A stream to one broker with its requests in flight and its negotiated versions."""

    __slots__ = ("_conversation", "_error", "_transport", "address", "versions")

    def __init__(self, transport: Transport, address: Address, client_id: str) -> None:
        self._transport = transport
        self._conversation: Conversation[Pending[Any]] = Conversation(
            client_id, answer_bytes_max=RESPONSE_BYTES_MAX, spares=SpareBuffers()
        )
        self._error: BrokerUnreachable | None = None
        self.address = address
        self.versions: BrokerVersions = _NO_VERSIONS

    @classmethod
    def open(cls, address: Address, settings: ClientSettings, deadline: Deadline) -> Self:
        """Connect (with a TLS handshake if `settings.tls` is given). BrokerUnreachable names the address."""
        limit = deadline.sooner(settings.connect_timeout_ms)
        try:
            sock = socket.create_connection(address, timeout=max(0.001, limit.remaining_s))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport = _transport_over(sock, address, settings.tls)
        except OSError as cause:
            raise BrokerUnreachable(f"cannot connect to {address}: {cause.strerror or cause}") from cause
        return cls(transport, address, settings.client_id)

    def negotiate(self, deadline: Deadline) -> None:
        """Request the broker's versions, before any other request. Raises KafkaError if the broker refuses."""
        asking = negotiation(str(self.address))
        request, version = next(asking)
        while True:
            pending = self.send(request, m.ApiVersionsResponse, deadline, version)
            self.settle(pending, deadline)
            try:
                request, version = asking.send(pending.frame())
            except StopIteration as done:
                self.versions = BrokerVersions(str(self.address), *done.value)
                return

    def fileno(self) -> int:
        """The socket's descriptor, for a selector."""
        return self._transport.fileno()

    @property
    def usable(self) -> bool:
        """Whether the connection can still send a request."""
        return self._error is None

    @property
    def in_flight(self) -> int:
        """The number of requests in flight."""
        return len(self._conversation)

    def send(self, request: Message, answer: type[R], deadline: Deadline, version: int | None = None) -> Pending[R]:
        """Send `request` in the negotiated version; the caller collects the answer later."""
        correlation_id, pending = self._write(request, answer, deadline, version)
        self._conversation.expect(correlation_id, pending)
        return pending

    def send_unanswered(self, request: Message, answer: type[R], deadline: Deadline) -> None:
        """Send a request that a broker does not answer (Produce with acks=0)."""
        self._write(request, answer, deadline, None)

    def call(self, request: Message, answer: type[R], deadline: Deadline, version: int | None = None) -> R:
        """Send `request` and wait for its answer."""
        return self.wait(self.send(request, answer, deadline, version), deadline)

    def wait(self, pending: Pending[R], deadline: Deadline) -> R:
        """The answer to `pending`, decoded."""
        self.settle(pending, deadline)
        return pending.result()

    def settle(self, pending: Pending[R], deadline: Deadline) -> None:
        """Wait until `pending` is done. DeadlineExceeded breaks the connection, whose stream is then uncertain."""
        if not self.pump_until(pending, deadline):
            self._break(BrokerUnreachable(f"closed by this client: {self.address} did not answer in time"))
            raise DeadlineExceeded(f"{self.address} did not answer in time")

    def pump_until(self, pending: Pending[R], deadline: Deadline) -> bool:
        """Whether `pending` was done before the deadline; otherwise it stays in flight."""
        while not pending.done:
            if not pump_any([self], deadline.remaining_s) and deadline.expired:
                return False
        return True

    def pump(self) -> None:
        """Receive all available bytes without waiting, and complete the requests that they answer."""
        try:
            while self._receive():
                pass
        except InvalidRequest as cause:
            self._break(BrokerUnreachable(f"connection to {self.address} lost: {cause.message}"))
        except OSError as cause:
            self._break(BrokerUnreachable(f"connection to {self.address} lost: {cause.strerror or cause}"))

    def close(self) -> None:
        """Close the connection; requests in flight fail."""
        self._break(BrokerUnreachable(f"connection to {self.address} closed"))

    def _write(
        self, request: Message, answer: type[R], deadline: Deadline, version: int | None
    ) -> tuple[int, Pending[R]]:
        if self._error is not None:
            raise self._error
        api_key = request.API_KEY
        assert api_key is not None, f"{type(request).__name__} is not a request"
        if version is None:
            version = self.versions.choose(api_key)
        correlation_id, header = self._conversation.header(api_key, version)
        pieces = request.encode_chunks(version)
        body = [piece if isinstance(piece, bytes) else _data_of(piece) for piece in pieces]
        size = (len(header) + sum(map(len, body))).to_bytes(4, "big")
        try:
            self._send_all([size + header, *body], deadline)
        except OSError as cause:
            self._break(BrokerUnreachable(f"connection to {self.address} lost: {cause.strerror or cause}"))
            assert self._error is not None
            raise self._error from cause
        return correlation_id, Pending(api_key, version, answer)

    def _send_all(self, parts: Sequence[bytes | bytearray], deadline: Deadline) -> None:
        rest = [memoryview(part) for part in parts if part]
        while rest:
            try:
                sent = self._transport.send_parts(rest)
            except BlockingIOError:
                if not _ready(self._transport.fileno(), select.POLLOUT, deadline.remaining_s):
                    raise TimeoutError("the request could not be sent before the deadline") from None
                continue
            while rest and sent >= len(rest[0]):
                sent -= len(rest.pop(0))
            if sent:
                rest[0] = rest[0][sent:]

    def _receive(self) -> bool:
        """Receive once; returns whether more bytes may be available now."""
        room = self._conversation.target()
        try:
            count = self._transport.receive_into(room)
        except BlockingIOError:
            return False
        if count == 0:
            raise ConnectionResetError("the broker closed the connection")
        for pending, frame in self._conversation.received(count):
            pending.complete(frame)
        return count == len(room) or self._transport.is_buffering

    def _break(self, error: BrokerUnreachable) -> None:
        if self._error is None:
            self._error = error
            self._transport.close()
        for pending in self._conversation.end():
            pending.fail(error)


def _transport_over(sock: socket.socket, address: Address, tls: "SSLContext | None") -> Transport:
    """A stream over a connected socket, its handshake done within the socket's time-out. Raises `OSError`."""
    if tls is None:
        sock.setblocking(False)
        return PlainTransport(sock)
    from headrace.network.tls import TlsTransport

    secured = tls.wrap_socket(sock, server_hostname=address.host)
    secured.setblocking(False)
    return TlsTransport(secured)


def _ready(fd: int, events: int, timeout_s: float) -> bool:
    poller = select.poll()
    poller.register(fd, events)
    return bool(poller.poll(timeout_s * 1000))


def pump_any(connections: Iterable[Connection], timeout_s: float, wake_fd: int | None = None) -> bool:
    """Wait until a connection (or `wake_fd`) is readable, then receive; returns whether anything was readable."""
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
