"""`Peers` over TCP: a connection for each broker and lane, opened at first use.

    ask ── connected? ── no ──▶ connect, TLS, ApiVersions, SASL ──┐
              └─ yes ─────────────────────────────────────────────┴▶ encode in the newest common version, send, wait

Requests of one lane are sent in the order of the calls, and many may be in flight. A response that is late breaks the
connection, since the responses behind it would be late too. After a failure the next attempt waits, twice as long each
time. Peers may be older or newer, or Apache Kafka: ApiVersions tells which versions each serves.

`peer_security` says how brokers authenticate. Where a session has a lifetime (KIP-368), each connection authenticates
again before it is over, after the requests in flight and before any further one.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headrace.config import BrokerConfig
from headrace.errors import AuthenticationFailed, InvalidRequest, KafkaError
from headrace.limits import PEER_ANSWER_BYTES_MAX
from headrace.network.peers.loan import Asker
from headrace.network.peers.peer_authentication import authenticate
from headrace.network.peers.peer_connection import PeerConnection
from headrace.network.peers.peer_security import NO_SECURITY, PeerSecurity, peer_security
from headrace.network.peers.peers import PeerAddress, PeerRefused, PeerUnreachable
from headrace.protocol.codec.message import Message
from headrace.protocol.conversation.asking import SCRATCH_BYTES
from headrace.protocol.conversation.authentication import RENEW_AT
from headrace.protocol.conversation.negotiation import common_version, negotiation
from headrace.protocol.headers import read_response_header
from headrace.types import BrokerId

R = TypeVar("R", bound=Message)

CONNECT_TIMEOUT_MS = 10_000
_BACKOFF_MIN_S, _BACKOFF_MAX_S = 0.05, 1.0
_HELD_SCRATCH_BYTES = 4096


def make_links(client_id: str, current: Callable[[], BrokerConfig]) -> "PeerLinks":
    """The connections of a broker whose settings are `current`. Raises `InvalidConfig`, if the broker is in a cluster
    and cannot authenticate to others."""
    return PeerLinks(client_id, peer_security(current) if current().zookeeper_connect else NO_SECURITY)


class PeerLinks:
    """The connections of one broker to all others."""

    def __init__(
        self, client_id: str, security: PeerSecurity = NO_SECURITY, *, answer_bytes_max: int = PEER_ANSWER_BYTES_MAX
    ) -> None:
        """`client_id` identifies this broker in its requests."""
        self._client_id, self._security, self._answer_bytes_max = client_id, security, answer_bytes_max
        self._links: dict[tuple[PeerAddress, str], _Link] = {}

    async def send(
        self,
        to: PeerAddress,
        request: Message,
        answer: type[R],
        *,
        timeout_ms: int,
        lane: str = "",
        client_id: str = "",
    ) -> R:
        """As `Peers.ask`. Also raises `UnsupportedVersion` when the peer serves no version that can represent the
        request."""
        link = self._links.get((to, lane))
        if link is None:
            link = self._links[to, lane] = _Link(to, self._client_id, self._security, self._answer_bytes_max)
        if link.is_open:  # a timer alone costs a fifth of a time-out's context, and followers fetch all the time
            late = asyncio.get_running_loop().call_later(timeout_ms / 1000, link.close, _late(timeout_ms))
            try:
                return await link.send(request, answer, client_id)
            finally:
                late.cancel()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await link.send(request, answer, client_id)
        except TimeoutError:
            link.close(_late(timeout_ms))
            raise PeerUnreachable(f"broker {to.id} at {to.host}:{to.port} did not answer in {timeout_ms} ms") from None

    def lend(
        self, to: PeerAddress, asker: Asker, request: type[Message], answer: type[R], *, timeout_ms: int, lane: str = ""
    ) -> Awaitable[R | None] | None:
        """As `Peers.lend`."""
        link = self._links.get((to, lane))
        return None if link is None else link.lend(asker, request, answer, timeout_ms)

    async def hold(self, to: PeerAddress, *, timeout_ms: int) -> PeerConnection:
        """As `Peers.hold`."""
        link = _Link(to, self._client_id, self._security, self._answer_bytes_max, scratch_bytes=_HELD_SCRATCH_BYTES)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await link.opened()
        except TimeoutError:
            raise PeerUnreachable(f"broker {to.id} at {to.host}:{to.port} did not answer in {timeout_ms} ms") from None

    def disconnect(self, broker: BrokerId, why: str) -> None:
        """As `Peers.disconnect`."""
        for (to, _), link in self._links.items():
            if to.id == broker:
                link.close(why)

    async def close(self) -> None:
        """As `Peers.close`."""
        for link in self._links.values():
            link.end()
        self._security.close()


class _Link:
    """The connection to one broker in one lane, reopened when it breaks."""

    def __init__(
        self,
        to: PeerAddress,
        client_id: str,
        security: PeerSecurity,
        answer_bytes_max: int,
        *,
        scratch_bytes: int = SCRATCH_BYTES,
    ) -> None:
        self._security = security
        self._scratch_bytes = scratch_bytes
        self._to, self._client_id, self._answer_bytes_max = to, client_id, answer_bytes_max
        self._name = f"broker {to.id} at {to.host}:{to.port}"
        self._connection: PeerConnection | None = None
        self._connecting = asyncio.Lock()
        self._backoff_s = 0.0
        self._retry_at = 0.0
        self._attempts = 0
        self._refusal: PeerUnreachable | None = None
        self._is_ended = False
        self._renewal: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a request can be sent now."""
        connection = self._connection
        return connection is not None and connection.failure is None and not self._connecting.locked()

    async def send(self, request: Message, answer: type[R], client_id: str) -> R:
        connection = self._connection
        if connection is None or connection.failure is not None or self._connecting.locked():
            attempts = self._attempts
            async with self._connecting:  # in the order of the calls
                if self._refusal is not None and self._attempts > attempts:
                    raise self._refusal  # an earlier caller has just tried
                connection = await self._connected()
                waiting = self._send(connection, request, client_id)
        else:
            waiting = self._send(connection, request, client_id)
        version, frame = waiting
        return self._decoded(connection, answer, request.API_KEY, version, await frame)

    def lend(
        self, asker: Asker, request: type[Message], answer: type[R], timeout_ms: int
    ) -> Awaitable[R | None] | None:
        """As `Peers.lend`. A session that has to be renewed is not lent."""
        connection = self._connection
        if connection is None or self._security.login is not None or self._connecting.locked():
            return None
        version = connection.agreed.get(request.API_KEY or 0)
        lent = None if version is None else connection.lend(asker, version, timeout_ms=timeout_ms)
        if lent is None or version is None:
            return None
        return self._lent(connection, lent, answer, request.API_KEY, version)

    async def _lent(
        self,
        connection: PeerConnection,
        lent: asyncio.Future[memoryview | None],
        answer: type[R],
        api_key: int | None,
        version: int,
    ) -> R | None:
        frame = await lent
        return None if frame is None else self._decoded(connection, answer, api_key, version, frame)

    def _decoded(
        self, connection: PeerConnection, answer: type[R], api_key: int | None, version: int, frame: memoryview
    ) -> R:
        assert api_key is not None
        try:
            _, pos = read_response_header(frame, api_key, version)
            return answer.decode(version, frame, pos)[0]
        except InvalidRequest as error:
            connection.close(error.message)
            raise PeerUnreachable(f"{self._name} sent a malformed response: {error.message}") from error

    def end(self) -> None:
        """Closes the connection, even one that is being opened, and opens no other."""
        self._is_ended = True
        self.close("this broker is shutting down")

    def close(self, why: str) -> None:
        """Closes the connection, if it is open."""
        if self._connection is not None:
            self._connection.close(why)
            self._connection = None

    def _send(
        self, connection: PeerConnection, request: Message, client_id: str
    ) -> tuple[int, asyncio.Future[memoryview]]:
        assert request.API_KEY is not None, f"{type(request).__name__} is not a request"
        version = connection.agreed.get(request.API_KEY)
        if version is None:
            ours, served = request.VERSIONS, connection.versions.get(request.API_KEY)
            version = common_version(self._name, request.API_KEY, (ours[0], ours[-1]), served)
            connection.agreed[request.API_KEY] = version
        return version, connection.send(request, version, client_id)

    async def _connected(self) -> PeerConnection:
        """The connection, opened if necessary. Raises `PeerUnreachable`."""
        if self._connection is not None and self._connection.failure is None:
            return self._connection
        if self._is_ended:
            raise PeerUnreachable("this broker is shutting down")
        loop = asyncio.get_running_loop()
        pause_s = self._retry_at - loop.time()
        if pause_s > 0:
            await asyncio.sleep(pause_s)
        self._backoff_s = min(_BACKOFF_MAX_S, max(_BACKOFF_MIN_S, 2 * self._backoff_s))
        self._retry_at = loop.time() + self._backoff_s
        try:
            connection = await self.opened()
        except PeerUnreachable as refusal:
            self._refusal = refusal
            raise
        finally:
            self._attempts += 1
        self._backoff_s, self._refusal = 0.0, None
        return connection

    async def opened(self) -> PeerConnection:
        """Opens a connection, asks for the broker's API versions and authenticates. Raises `PeerUnreachable`."""
        loop = asyncio.get_running_loop()
        sock = await self._connect(loop)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport = await self._security.transport(sock, self._to.host)
        except OSError as error:
            sock.close()
            raise PeerUnreachable(f"the connection to {self._name} failed: {error}") from None
        if self._is_ended:
            transport.close()
            raise PeerUnreachable("this broker is shutting down")
        self._connection = connection = PeerConnection(
            transport,
            self._name,
            self._client_id,
            loop=loop,
            answer_bytes_max=self._answer_bytes_max,
            scratch_bytes=self._scratch_bytes,
        )
        try:
            await _negotiate(connection, self._name)
            await self._authenticate(connection)
        except PeerUnreachable:
            raise
        except KafkaError as error:
            connection.close(error.message)
            raise PeerUnreachable(_failure(self._name, error)) from error
        except BaseException:
            connection.close("it did not answer ApiVersions")
            raise
        return connection

    async def _authenticate(self, connection: PeerConnection) -> None:
        """Authenticates, if brokers do so, and has it done again before the session is over."""
        login = self._security.login
        if login is None:
            return
        try:
            client = await login.exchange(self._to.host)
            lifetime_ms = await authenticate(connection, self._name, client, login)
        except AuthenticationFailed as error:
            login.refused(self._name, error.message)
            raise
        login.authenticated(self._name)
        if lifetime_ms:
            loop = asyncio.get_running_loop()
            self._renewal = loop.call_later(lifetime_ms * RENEW_AT / 1000, self._renew, connection)

    def _renew(self, connection: PeerConnection) -> None:
        if connection.failure is None:
            self._renewing = asyncio.get_running_loop().create_task(
                self._renewed(connection), name="authenticate again"
            )

    async def _renewed(self, connection: PeerConnection) -> None:
        async with self._connecting:  # nothing is sent meanwhile
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1000):
                    await self._authenticate(connection)
            except KafkaError as error:
                connection.close(error.message)
            except TimeoutError:
                connection.close("it did not answer the authentication")

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> socket.socket:
        failure: OSError | None = None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1000):
                for family, kind, proto, _, address in await loop.getaddrinfo(
                    self._to.host, self._to.port, type=socket.SOCK_STREAM
                ):
                    sock = socket.socket(family, kind, proto)
                    sock.setblocking(False)
                    try:
                        await loop.sock_connect(sock, address)
                    except OSError as error:
                        sock.close()
                        failure = error
                    except BaseException:
                        sock.close()
                        raise
                    else:
                        return sock
        except TimeoutError:
            raise PeerUnreachable(f"{self._name} did not accept a connection within {CONNECT_TIMEOUT_MS} ms") from None
        except OSError as error:  # the host name cannot be resolved
            failure = error
        kind_of = PeerRefused if isinstance(failure, ConnectionRefusedError) else PeerUnreachable
        why = "its host name has no address" if failure is None else failure.strerror or str(failure)
        raise kind_of(f"the connection to {self._name} failed: {why}") from failure


def _late(timeout_ms: int) -> str:
    return f"no response within {timeout_ms} ms"


def _failure(name: str, error: KafkaError) -> str:
    if isinstance(error, AuthenticationFailed):
        return error.message
    return f"{name} did not answer ApiVersions: {error.message}"


async def _negotiate(connection: PeerConnection, name: str) -> None:
    asking = negotiation(name)
    request, version = next(asking)
    while True:
        frame = await connection.send(request, version)
        try:
            request, version = asking.send(frame)
        except StopIteration as done:
            connection.versions = done.value.versions
            return
