"""One connection to one broker: requests out, answers in, many in flight.

`Conversation` handles the requests in flight and the frames. Sending blocks until the kernel has the bytes. `pump`
receives the bytes that are available now, `wait` receives until one answer, and `pump_any` receives from several
connections at once. One thread at a time uses a connection.

When the socket fails, every request in flight fails with the same BrokerUnreachable, and the connection stays broken:
the owner opens another.
"""

import select
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar

from headrace.client.core.failures import BrokerUnreachable, DeadlineExceeded, SecurityMismatch
from headrace.client.core.settings import RESPONSE_BYTES_MAX, Address, ClientSettings
from headrace.client.core.timing import Deadline
from headrace.client.core.versions import BrokerVersions
from headrace.client.security.refusals import (
    closed_unanswered,
    is_end,
    is_tls_alert,
    is_tls_error,
    spoke_plain_text,
    tls_failed,
)
from headrace.errors import InvalidRequest, KafkaError
from headrace.network.transport import PlainTransport, Transport
from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message
from headrace.protocol.codec.wire import Chunk
from headrace.protocol.conversation.asking import Conversation
from headrace.protocol.conversation.authentication import RENEW_AT, authentication
from headrace.protocol.conversation.frames import SpareBuffers
from headrace.protocol.conversation.negotiation import negotiation
from headrace.protocol.headers import read_response_header

if TYPE_CHECKING:
    from ssl import SSLContext

    from headrace.client.metrics.network import ConnectionMetrics
    from headrace.network.sasl.login import Login

READABLE, WRITABLE = 1, 4
"""The events of `poll`, which Windows does not have."""
_NO_VERSIONS = BrokerVersions("(not negotiated)", {})


R = TypeVar("R", bound=Message)
"""The response message that a request is answered with."""


class Payload:
    """Bytes of a `records` value that are sent from their own buffer, without a copy into the request."""

    __slots__ = ("data", "size")

    def __init__(self, data: bytearray) -> None:
        self.data: bytearray = data
        self.size: int = len(data)


def _data_of(chunk: Chunk) -> bytearray:
    assert isinstance(chunk, Payload), "a client's records are payloads"
    return chunk.data


class Pending(Generic[R]):
    """A request in flight. When it is answered or failed, `done` is true and `result()` is available."""

    __slots__ = ("_answer", "_api_key", "_error", "_frame", "sent_s", "version")

    def __init__(self, api_key: int, version: int, answer: type[R]) -> None:
        self.version: int = version
        self.sent_s: float = 0.0
        """When it was sent, by the clock of the metrics."""
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

    __slots__ = (
        "__weakref__", "_conversation", "_error", "_is_greeted", "_is_used", "_login", "_renewal", "_settings",
        "_throttled", "_transport", "address", "metrics", "on_silence", "round_trip_s", "versions",
    )  # fmt: skip

    def __init__(self, transport: Transport, address: Address, settings: ClientSettings) -> None:
        self._transport = transport
        self._settings = settings
        self._is_greeted = False  # whether anything was received
        self._is_used = False  # whether a request after the negotiation was answered
        self._conversation: Conversation[Pending[Any]] = Conversation(
            settings.client_id, answer_bytes_max=RESPONSE_BYTES_MAX, spares=SpareBuffers()
        )
        self._error: BrokerUnreachable | None = None
        self._login: Login | None = None
        self._renewal: Deadline | None = None  # when to authenticate again
        self._throttled: Deadline | None = None
        self.address: Address = address
        self.versions: BrokerVersions = _NO_VERSIONS
        self.metrics: ConnectionMetrics | None = None
        self.on_silence: Callable[[Address], object] | None = None
        """Called when the broker did not answer in time."""
        self.round_trip_s: float = 0.0
        """About the shortest time in which the broker answered of late, where it is measured (`answered_within`)."""

    @classmethod
    def open(cls, address: Address, settings: ClientSettings, deadline: Deadline) -> Self:
        """Connect (with a TLS handshake if `settings.tls` is given). BrokerUnreachable names the address."""
        limit = deadline.sooner(settings.connect_timeout_ms)
        try:
            sock = socket.create_connection(address, timeout=max(0.001, limit.remaining_s))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as cause:
            raise BrokerUnreachable(f"cannot connect to {address}: {cause.strerror or cause}") from cause
        try:
            transport = _transport_over(sock, address, settings.tls)
        except OSError as cause:
            sock.close()
            raise tls_failed(address, cause) from cause
        return cls(transport, address, settings)

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
                self._is_used = False
                return

    def authenticate(self, login: "Login", deadline: Deadline) -> None:
        """Authenticate by SASL, right after `negotiate`. When the session's lifetime is nearly over, the next request
        authenticates again first. Raises AuthenticationFailed."""
        self._login, self._renewal = login, None
        asking = authentication(str(self.address), login.client(self.address.host), self.versions.ranges)
        request, version = next(asking)
        while True:
            pending = self.send(request, m.SaslAuthenticateResponse, deadline, version)
            self.settle(pending, deadline)
            try:
                request, version = asking.send(pending.frame())
            except StopIteration as done:
                if done.value:
                    self._renewal = Deadline.after_ms(int(done.value * RENEW_AT))
                return

    def _authenticate_again(self, login: "Login", deadline: Deadline) -> None:
        try:
            self.authenticate(login, deadline)
        except KafkaError as cause:
            self._break(BrokerUnreachable(f"connection to {self.address} lost: {cause.message}"))
            raise

    def fileno(self) -> int:
        """The socket's descriptor, for a selector."""
        return self._transport.fileno()

    @property
    def usable(self) -> bool:
        """Whether the connection can still send a request."""
        return self._error is None

    @property
    def is_free(self) -> bool:
        """Whether a request could be sent at once, and would be the only one: nothing is in flight, nothing is due."""
        return (
            self._error is None
            and not self._conversation
            and (self._renewal is None or not self._renewal.expired)
            and (self._throttled is None or self._throttled.expired)
        )

    @property
    def in_flight(self) -> int:
        """The number of requests in flight."""
        return len(self._conversation)

    @property
    def throttled_s(self) -> float:
        """How many seconds the broker is to be left alone."""
        return 0.0 if self._throttled is None else self._throttled.remaining_s

    def throttle(self, throttle_time_ms: int) -> None:
        """The broker asks for a pause, because a quota was exceeded (KIP-219). It reads nothing meanwhile."""
        if throttle_time_ms > 0:
            self._throttled = Deadline.after_ms(throttle_time_ms)

    def answered_within(self, time_s: float) -> None:
        """A request was answered after this time. A longer one than before counts little: it is of a queue."""
        known_s = self.round_trip_s
        self.round_trip_s = time_s if time_s < known_s or not known_s else known_s + (time_s - known_s) / 64

    def send(self, request: Message, answer: type[R], deadline: Deadline, version: int | None = None) -> Pending[R]:
        """Send `request` in the negotiated version; the caller collects the answer later."""
        correlation_id, pending = self._write(request, answer, deadline, version)
        self._conversation.expect(correlation_id, pending)
        return pending

    def send_frame(
        self, frame_of: Callable[[int], bytes], api_key: int, version: int, answer: type[R], deadline: Deadline
    ) -> Pending[R]:
        """Send a request that `frame_of` encodes, given its correlation id."""
        if self._error is not None:
            raise self._error
        correlation_id = self._conversation.next_id()
        frame = frame_of(correlation_id)
        try:
            try:
                sent = self._transport.send(frame)
            except BlockingIOError:
                sent = 0
            if sent < len(frame):
                self._send_all([frame[sent:]], deadline)
        except OSError as cause:
            self._raise_lost(cause)
        pending = self._pending(api_key, version, answer, len(frame))
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
            self.give_up()
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
        except SecurityMismatch as cause:
            self._break(cause)
        except OSError as cause:
            self._break(self._lost(cause))

    def interrupt(self) -> None:
        """End the wait of the thread that uses the connection, which then finds it broken. Any thread may call."""
        self._transport.shut_down()

    def give_up(self) -> None:
        """Close the connection, because the broker did not answer in time; requests in flight fail."""
        if self.on_silence is not None:
            self.on_silence(self.address)
        self._break(BrokerUnreachable(f"closed by this client: {self.address} did not answer in time"))

    def close(self) -> None:
        """Close the connection; requests in flight fail."""
        self._break(BrokerUnreachable(f"connection to {self.address} closed"))

    def _write(
        self, request: Message, answer: type[R], deadline: Deadline, version: int | None
    ) -> tuple[int, Pending[R]]:
        if self._error is not None:
            raise self._error
        if self._renewal is not None and self._renewal.expired and self._login is not None:
            self._authenticate_again(self._login, deadline)
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
            self._raise_lost(cause)
        return correlation_id, self._pending(api_key, version, answer, 4 + int.from_bytes(size, "big"))

    def _pending(self, api_key: int, version: int, answer: type[R], size_bytes: int) -> Pending[R]:
        """What waits for the answer to a request of that size, which has been sent."""
        pending = Pending(api_key, version, answer)
        if self.metrics is not None:
            pending.sent_s = self.metrics.sent(size_bytes)
        return pending

    def _raise_lost(self, cause: OSError) -> NoReturn:
        self._break(self._lost(cause))
        assert self._error is not None
        raise self._error from cause

    def _send_all(self, parts: Sequence[bytes | bytearray], deadline: Deadline) -> None:
        rest = [memoryview(part) for part in parts if part]
        while rest:
            try:
                sent = self._transport.send_parts(rest)
            except BlockingIOError:
                if not _ready(self._transport.fileno(), WRITABLE, deadline.remaining_s):
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
        if not self._is_greeted:
            self._is_greeted = True
            if self._settings.tls is None and is_tls_alert(room):
                raise spoke_plain_text(self.address)
        if self.metrics is not None:
            self.metrics.received(count)
        for pending, frame in self._conversation.received(count):
            pending.complete(frame)
            if self.metrics is not None:
                self.metrics.answered(pending.sent_s)
            self._is_used = True
        return count == len(room) or self._transport.is_buffering

    def _lost(self, cause: OSError) -> BrokerUnreachable:
        """The error of a connection that broke, with what to change where that is known."""
        settings = self._settings
        if settings.tls is not None and is_end(cause):
            cause = self._alert() or cause  # the peer said why before it closed, and a send found it closed
        if is_tls_error(cause) and not is_end(cause):
            return tls_failed(self.address, cause)
        if is_end(cause) and not self._is_used:
            return closed_unanswered(
                self.address,
                is_negotiated=self.versions is not _NO_VERSIONS,
                has_tls=settings.tls is not None,
                has_sasl=settings.sasl is not None,
            )
        return BrokerUnreachable(f"connection to {self.address} lost: {cause.strerror or cause}")

    def _alert(self) -> OSError | None:
        """The TLS alert that waits to be read, if there is one."""
        try:
            self._transport.receive_into(memoryview(bytearray(1)))
        except OSError as error:
            return error if is_tls_error(error) and not is_end(error) else None
        return None

    def _break(self, error: BrokerUnreachable) -> None:
        if self._error is None:
            self._error = error
            self._transport.close()
            if self.metrics is not None:
                self.metrics.closed()
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
    return bool(_poll({fd: events}, timeout_s))


def wait_any(connections: Iterable[Connection], timeout_s: float, wake_fd: int) -> list[Connection]:
    """Wait until a connection or `wake_fd` is readable; the connections that are to be pumped then."""
    by_fd = {connection.fileno(): connection for connection in connections if connection.usable}
    wanted = {**dict.fromkeys(by_fd, READABLE), wake_fd: READABLE}
    return [by_fd[fd] for fd in _poll(wanted, max(0.0, timeout_s)) if fd in by_fd]


def pump_any(connections: Iterable[Connection], timeout_s: float, wake_fd: int | None = None) -> bool:
    """Wait until a connection (or `wake_fd`) is readable, then receive; returns whether anything was readable."""
    by_fd = {connection.fileno(): connection for connection in connections if connection.usable}
    wanted = dict.fromkeys(by_fd, READABLE)
    if wake_fd is not None:
        wanted[wake_fd] = READABLE
    ready = _poll(wanted, max(0.0, timeout_s))
    for fd in ready:
        if fd in by_fd:
            by_fd[fd].pump()
    return bool(ready)


def _by_poll(wanted: Mapping[int, int], timeout_s: float) -> list[int]:
    """The descriptors that are ready for what is wanted of them, or have failed."""
    poller = select.poll()
    for fd, events in wanted.items():
        poller.register(fd, events)
    return [fd for fd, _ in poller.poll(timeout_s * 1000)]


def _by_select(wanted: Mapping[int, int], timeout_s: float) -> list[int]:
    """As `_by_poll`, on Windows, which has no poll and whose select takes sockets of any number."""
    if not wanted:
        time.sleep(timeout_s)
        return []
    readable = [fd for fd, events in wanted.items() if events == READABLE]
    writable = [fd for fd, events in wanted.items() if events == WRITABLE]
    return [fd for ready in select.select(readable, writable, [*wanted], timeout_s) for fd in ready]


_poll = _by_poll if hasattr(select, "poll") else _by_select
