"""`Peers` over TCP: a connection for each broker and lane, made when it is first used.

    ask ── connected? ── no ──▶ connect, ApiVersions ──┐
              └─ yes ──────────────────────────────────┴▶ encode in the newest common version, send, wait

Requests of one lane leave in the order of the calls, and many may be in flight. An answer that does not come in time
breaks the connection, since the ones behind it would wait too. After a failure the next attempt waits, twice as long
each time. Peers may be older or newer, or Apache Kafka: each says with ApiVersions what it serves.
Left out: TLS and SASL between brokers.
"""

import asyncio
import socket
from typing import TypeVar

import headrace
from headrace.broker.peer_connection import SCRATCH_BYTES, PeerConnection
from headrace.coordination.peers import PeerAddress, PeerRefused, PeerUnreachable
from headrace.errors import ErrorCode, InvalidRequest, UnsupportedVersion
from headrace.limits import PEER_ANSWER_BYTES_MAX
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import read_response_header, write_request_header
from headrace.protocol.message import Message

R = TypeVar("R", bound=Message)

CONNECT_TIMEOUT_MS = 10_000
_BACKOFF_MIN_S, _BACKOFF_MAX_S = 0.05, 1.0
_HEADER_BYTES = 4
_HELD_SCRATCH_BYTES = 4096


class PeerLinks:
    """The connections of one broker to all others."""

    def __init__(self, client_id: str, *, answer_bytes_max: int = PEER_ANSWER_BYTES_MAX) -> None:
        """`client_id` is what this broker calls itself in its requests."""
        self._client_id, self._answer_bytes_max = client_id, answer_bytes_max
        self._links: dict[tuple[PeerAddress, str], _Link] = {}

    async def ask(self, to: PeerAddress, request: Message, answer: type[R], *, timeout_ms: int, lane: str = "") -> R:
        """As `Peers.ask`; also raises `UnsupportedVersion` when the peer does not serve the request, or in no version
        that can say it."""
        link = self._links.get((to, lane))
        if link is None:
            link = self._links[to, lane] = _Link(to, self._client_id, self._answer_bytes_max)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await link.ask(request, answer)
        except TimeoutError:
            link.close(f"no answer within {timeout_ms} ms")
            raise PeerUnreachable(f"broker {to.id} at {to.host}:{to.port} did not answer in {timeout_ms} ms") from None

    async def hold(self, to: PeerAddress, *, timeout_ms: int) -> PeerConnection:
        """As `Peers.hold`."""
        link = _Link(to, self._client_id, self._answer_bytes_max, scratch_bytes=_HELD_SCRATCH_BYTES)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await link.opened()
        except TimeoutError:
            raise PeerUnreachable(f"broker {to.id} at {to.host}:{to.port} did not answer in {timeout_ms} ms") from None

    async def close(self) -> None:
        """As `Peers.close`."""
        for link in self._links.values():
            link.end()


class _Link:
    """The way to one broker in one lane."""

    def __init__(
        self, to: PeerAddress, client_id: str, answer_bytes_max: int, *, scratch_bytes: int = SCRATCH_BYTES
    ) -> None:
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

    async def ask(self, request: Message, answer: type[R]) -> R:
        connection = self._connection
        if connection is None or connection.failure is not None or self._connecting.locked():
            attempts = self._attempts
            async with self._connecting:  # in the order of the calls
                if self._refusal is not None and self._attempts > attempts:
                    raise self._refusal  # whoever came before has just tried
                connection = await self._connected()
                waiting = self._send(connection, request)
        else:
            waiting = self._send(connection, request)
        version, frame = waiting
        try:
            return _decoded(answer, request, version, await frame)
        except InvalidRequest as error:
            connection.close(error.message)
            raise PeerUnreachable(f"{self._name} answers with what is no answer: {error.message}") from error

    def end(self) -> None:
        """Ends the connection, also one that is being made, and makes no other."""
        self._is_ended = True
        self.close("this broker is going")

    def close(self, why: str) -> None:
        """Ends the connection, if there is one."""
        if self._connection is not None:
            self._connection.close(why)
            self._connection = None

    def _send(self, connection: PeerConnection, request: Message) -> tuple[int, asyncio.Future[memoryview]]:
        assert request.API_KEY is not None, f"{type(request).__name__} is not a request"
        version = self._version(connection, request)
        return version, _send(connection, request, version, self._client_id)

    def _version(self, connection: PeerConnection, request: Message) -> int:
        assert request.API_KEY is not None
        name, ours = ApiKey(request.API_KEY).name, request.VERSIONS
        served = connection.versions.get(request.API_KEY)
        if served is None:
            raise UnsupportedVersion(f"{self._name} does not serve {name}")
        version = min(ours[-1], served[1])
        if version < max(ours[0], served[0]):
            raise UnsupportedVersion(f"{self._name} serves {name} {served[0]}-{served[1]}, not {ours[0]}-{ours[-1]}")
        return version

    async def _connected(self) -> PeerConnection:
        """The connection, made anew when there is none. Raises `PeerUnreachable`."""
        if self._connection is not None and self._connection.failure is None:
            return self._connection
        if self._is_ended:
            raise PeerUnreachable("this broker is going")
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
        """A new connection to a broker that has said what it serves. Raises `PeerUnreachable`."""
        loop = asyncio.get_running_loop()
        sock = await self._connect(loop)
        if self._is_ended:
            sock.close()
            raise PeerUnreachable("this broker is going")
        self._connection = connection = PeerConnection(
            sock,
            self._name,
            loop=loop,
            answer_bytes_max=self._answer_bytes_max,
            scratch_bytes=self._scratch_bytes,
        )
        try:
            await _negotiate(connection, self._client_id)
        except InvalidRequest as error:
            connection.close(error.message)
            raise PeerUnreachable(f"{self._name} does not say which versions it serves: {error.message}") from error
        except BaseException:
            connection.close("it did not say which versions it serves")
            raise
        return connection

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
            raise PeerUnreachable(f"{self._name} cannot be connected to in {CONNECT_TIMEOUT_MS} ms") from None
        except OSError as error:  # the name is not known
            failure = error
        kind_of = PeerRefused if isinstance(failure, ConnectionRefusedError) else PeerUnreachable
        why = "no address" if failure is None else failure.strerror or str(failure)
        raise kind_of(f"{self._name} cannot be connected to: {why}") from failure


def _send(connection: PeerConnection, request: Message, version: int, client_id: str) -> asyncio.Future[memoryview]:
    assert request.API_KEY is not None
    correlation_id = connection.next_id()
    header = write_request_header(request.API_KEY, version, correlation_id, client_id)
    return connection.send(correlation_id, header + request.encode(version))


def _decoded(answer: type[R], request: Message, version: int, frame: memoryview) -> R:
    assert request.API_KEY is not None
    _, pos = read_response_header(frame, request.API_KEY, version)
    return answer.decode(version, frame, pos)[0]


async def _negotiate(connection: PeerConnection, client_id: str) -> None:
    """Asks which versions the peer serves; in the version that it names where the newest is too new (KIP-511)."""
    asking = m.ApiVersionsRequest(client_software_name="headrace", client_software_version=headrace.__version__)
    version = type(asking).VERSIONS[-1]
    frame = await _send(connection, asking, version, client_id)
    if int.from_bytes(frame[_HEADER_BYTES : _HEADER_BYTES + 2], "big") == ErrorCode.UNSUPPORTED_VERSION:
        refused, _ = m.ApiVersionsResponse.decode(0, frame, _HEADER_BYTES)
        served = [each.max_version for each in refused.api_keys if each.api_key == ApiKey.API_VERSIONS]
        version = min([version - 1, *served]) if served else 0
        frame = await _send(connection, asking, version, client_id)
    answer = _decoded(m.ApiVersionsResponse, asking, version, frame)
    if answer.error_code:
        raise PeerUnreachable(f"ApiVersions was refused: {ErrorCode(answer.error_code).name}")
    connection.versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
