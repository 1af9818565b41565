"""The authentication gate: the receiver of a connection's frames until its client is authenticated.

    VERSIONS ── ApiVersions ─▶ HANDSHAKE ── SaslHandshake 1 ─▶ AUTHENTICATE ── SaslAuthenticate ─▶ the dispatcher
       └──────── SaslHandshake ───┘   └──── SaslHandshake 0 ─▶ TOKENS ──── bytes as they are ──────────▲
       └──────── a token of GSSAPI, of a client of Kafka 0.9 ─────▲

Only these three requests are read. A wrong one is answered with ILLEGAL_SASL_STATE or closes the connection, as in
Apache Kafka's `SaslServerAuthenticator`; Apache Kafka also answers other requests than these three with the error, for
which it has to parse them. A failure is answered after `connection.failed.authentication.delay.ms`, and the connection
is closed. The gate hands the connection over to the dispatcher, so that requests of a session pay nothing for it; when
the client authenticates again, or its session is over, the connection comes back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Protocol

from headrace.broker.handlers.index import VERSIONS
from headrace.broker.request.context import encode_response
from headrace.broker.security.session import Session
from headrace.broker.security.worker import ClientLeft
from headrace.errors import ErrorCode, InvalidRequest
from headrace.limits import AUTHENTICATION_FRAME_BYTES_MAX, AUTHENTICATION_ROUNDS_MAX
from headrace.network.connection import Connection, Dispatch
from headrace.network.held import Held
from headrace.network.outbound import Chunks
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Message
from headrace.protocol.headers import RequestHeader, read_request_header
from headrace.security.sasl.exchange import (
    Authenticated,
    Blocking,
    Challenge,
    ExchangeRefused,
    Malformed,
    ServerExchange,
    Unverified,
)
from headrace.security.sasl.gssapi import MECHANISM as GSSAPI
from headrace.security.sasl.gssapi import TOKEN_TAG

if TYPE_CHECKING:
    from headrace.broker.instances.visitors import Visitors
    from headrace.broker.security.mechanisms import Mechanisms

log = logging.getLogger(__name__)

_TOKEN_TAG = bytes([TOKEN_TAG])


_HELD_LOOKED_AT_EVERY_S = 0.05


class GateState(Enum):
    """What the gate expects next."""

    VERSIONS = auto()
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    TOKENS = auto()
    OTHER_MECHANISM = auto()
    """The client has asked for another mechanism than before; its next message fails."""
    OVER = auto()
    """Frames go to the dispatcher, or the authentication has failed."""


class GateHost(Protocol):
    """What gates need of the broker."""

    dispatch: Dispatch
    """Handles the ordinary requests of clients that are of no instance."""
    loop: asyncio.AbstractEventLoop
    request_bytes_max: int
    gate_bytes_max: int
    failure_delay_s: float
    timeout_s: float
    """In which an authentication has to be over."""

    def now_ms(self) -> int:
        """The time of day."""

    def spawn(self, work: Coroutine[object, object, None]) -> bool:
        """Runs `work` in the background."""

    def is_barred(self, connection: Connection, name: str) -> bool:
        """Whether a user who comes through an ordinary listener is of an instance that it may not enter this way. May
        be called on any thread."""

    def visitors_of(self, connection: Connection, name: str) -> Visitors | None:
        """The instance that a user is of who has come through an ordinary listener; None for one that is of none.
        Raises `Malformed` for one that may not come in this way."""

    def begun(self, connection: Connection, *, is_again: bool) -> None:
        """A client begins to authenticate, which has to be over within a time."""

    def announced(self, connection: Connection, size: int) -> None:
        """Of a message of a client that has yet to authenticate a part is kept; the whole has `size` bytes."""

    def finishing(self, connection: Connection, task: asyncio.Task[None] | None) -> None:
        """A task finishes a step of a client, until None. It is cancelled when the client leaves."""

    def succeeded(self, connection: Connection, mechanism: str, *, is_again: bool) -> None:
        """A client is authenticated."""

    def failed(self, connection: Connection, mechanism: str, claimed: str, reason: str, *, is_again: bool) -> None:
        """A client has failed. `claimed`: the name that it has said to have."""

    def expired(self, connection: Connection) -> None:
        """A request came after the end of its session, which closes the connection."""


class Gate:
    """The gate of one connection."""

    __slots__ = ("_before", "_connection", "_exchange", "_host", "_mechanisms", "_rounds", "_state", "_visitors")

    def __init__(
        self, connection: Connection, mechanisms: Mechanisms, host: GateHost, visitors: Visitors | None = None
    ) -> None:
        """Takes the connection's frames from the next one on. `visitors`: of a listener of an instance, whose users say
        their names without the instance's."""
        self._connection, self._mechanisms, self._host, self._visitors = connection, mechanisms, host, visitors
        self._state = GateState.VERSIONS
        self._exchange: ServerExchange
        self._before: Session | None = None  # while a client authenticates again
        self._rounds = 0
        self._take_over()

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        """Reads one frame. Raises `InvalidRequest` when the connection must be closed at once."""
        if self._state is GateState.TOKENS:
            self._step(None, bytes(frame))
            return
        if self._state is GateState.OVER:
            raise InvalidRequest("a request behind a failed authentication")
        if self._state is GateState.VERSIONS and frame[:1] == _TOKEN_TAG and GSSAPI in self._mechanisms.names:
            self._choose(GSSAPI)
            self._expect_tokens()
            self._step(None, bytes(frame))
            return
        header, pos = read_request_header(frame)
        match header.api_key:
            case ApiKey.API_VERSIONS:
                self._on_versions(header, frame)
            case ApiKey.SASL_HANDSHAKE:
                self._on_handshake(header, frame, pos)
            case ApiKey.SASL_AUTHENTICATE:
                self._on_authenticate(header, frame, pos)
            case other:
                raise InvalidRequest(f"Unexpected Kafka request of type {_name(other)} before authentication")

    def begin_again(self, session: Session, mechanism: str) -> m.SaslHandshakeResponse:
        """The answer to the handshake of a client that authenticates again. Its next frames come here."""
        session.close()  # its end may come while the client authenticates; there is a time for that, too
        self._before, self._rounds = session, 0
        self._take_over()
        code = self._choose(mechanism)
        if code:
            self._host.failed(self._connection, mechanism, "", "an unsupported mechanism", is_again=True)
            self._host.loop.call_later(self._host.failure_delay_s, self._connection.close, "it did not authenticate")
            self._state = GateState.OVER
        elif mechanism != session.mechanism:
            self._state = GateState.OTHER_MECHANISM
        return m.SaslHandshakeResponse(error_code=code, mechanisms=list(self._mechanisms.names))

    def _take_over(self) -> None:
        self._receive(min(AUTHENTICATION_FRAME_BYTES_MAX, self._host.gate_bytes_max))
        self._host.begun(self._connection, is_again=self._before is not None)

    def _receive(self, frame_bytes_max: int, frame_bytes_min: int = 1) -> None:
        connection = self._connection
        connection.hand_over(self, frame_bytes_max, frame_bytes_min, partial(self._host.announced, connection))

    # -- requests

    def _on_versions(self, header: RequestHeader, frame: memoryview) -> None:
        if self._state in (GateState.AUTHENTICATE, GateState.OTHER_MECHANISM):
            self._refuse_state(header, m.ApiVersionsResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
            return
        if self._state is not GateState.VERSIONS:
            raise InvalidRequest("Unexpected ApiVersions request received during SASL authentication")
        self._rounds += 1
        if self._rounds > AUTHENTICATION_ROUNDS_MAX:
            raise InvalidRequest(f"more than {AUTHENTICATION_ROUNDS_MAX} requests before authentication")
        software = self._connection.software
        self._dispatch(self._visitors)(self._connection, frame)
        is_read = header.api_version in VERSIONS[ApiKey.API_VERSIONS]
        if is_read and (header.api_version < 3 or self._connection.software != software):
            self._state = GateState.HANDSHAKE

    def _on_handshake(self, header: RequestHeader, frame: memoryview, pos: int) -> None:
        version = _served(header, VERSIONS[ApiKey.SASL_HANDSHAKE])
        request, _ = m.SaslHandshakeRequest.decode(version, frame, pos)
        if self._state in (GateState.AUTHENTICATE, GateState.OTHER_MECHANISM):
            self._refuse_state(header, m.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[]))
            return
        code = self._choose(request.mechanism)
        answer = m.SaslHandshakeResponse(error_code=code, mechanisms=list(self._mechanisms.names))
        if code:
            self._fail(header, answer, f"Unsupported SASL mechanism {request.mechanism:.100}")
            return
        if version == 0:
            self._expect_tokens()
        self._connection.answer(_encoded(header, answer), None)

    def _choose(self, mechanism: str) -> ErrorCode:
        if mechanism not in self._mechanisms.names:
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        if self._visitors is None:
            is_barred = partial(self._host.is_barred, self._connection)
            self._exchange = self._mechanisms.begin(mechanism, is_barred=is_barred)
        else:
            self._exchange = self._mechanisms.begin(mechanism, self._visitors.names.prefix)
        if self._exchange.has_large_messages:
            self._receive(self._host.gate_bytes_max)
        self._state = GateState.AUTHENTICATE
        return ErrorCode.NONE

    def _expect_tokens(self) -> None:
        """Messages come as they are from now on; one of GSSAPI is empty."""
        self._state = GateState.TOKENS
        limit = self._host.gate_bytes_max
        if not self._exchange.has_large_messages:
            limit = min(AUTHENTICATION_FRAME_BYTES_MAX, limit)
        self._receive(limit, 0)

    def _on_authenticate(self, header: RequestHeader, frame: memoryview, pos: int) -> None:
        version = _served(header, VERSIONS[ApiKey.SASL_AUTHENTICATE])
        if self._state is GateState.OTHER_MECHANISM and self._before is not None:
            reason = (
                f"SASL mechanism '{self._exchange.mechanism}' requested by client is not supported for "
                f"re-authentication of mechanism '{self._before.mechanism}'"
            )
            self._fail(header, None, reason)
        elif self._state is not GateState.AUTHENTICATE:
            raise InvalidRequest("Unexpected Kafka request of type SASL_AUTHENTICATE during SASL handshake.")
        else:
            request, _ = m.SaslAuthenticateRequest.decode(version, frame, pos)
            self._step(header, bytes(request.auth_bytes))

    def _refuse_state(self, header: RequestHeader, answer: Message) -> None:
        name = _name(header.api_key)
        self._fail(header, answer, f"Unexpected Kafka request of type {name} during SASL authentication.")

    # -- the exchange; `header` is None where messages come as they are

    def _step(self, header: RequestHeader | None, message: bytes) -> None:
        self._rounds += 1
        try:
            if self._rounds > AUTHENTICATION_ROUNDS_MAX:
                raise Malformed(f"more than {AUTHENTICATION_ROUNDS_MAX} messages")
            step = self._exchange.respond(message)
            if isinstance(step, Unverified | Blocking):
                self._finish_later(header, step)
            else:
                self._go_on(header, step)
        except (ExchangeRefused, Malformed) as error:
            self._fail_exchange(header, error)

    def _go_on(self, header: RequestHeader | None, step: Challenge | Authenticated) -> None:
        if isinstance(step, Authenticated):
            self._succeed(header, step)
        else:
            self._send(header, step.data)

    def _finish_later(self, header: RequestHeader | None, step: Unverified | Blocking) -> None:
        self._connection.hold(Held.AUTHENTICATION)
        if not self._host.spawn(self._finish(header, step)):
            self._connection.close("the broker is shutting down")

    async def _finish(self, header: RequestHeader | None, step: Unverified | Blocking) -> None:
        """Goes on when a step that takes a while is over. The connection reads nothing meanwhile."""
        if self._connection.is_closed:
            return
        try:
            self._host.finishing(self._connection, asyncio.current_task())
            try:
                outcome = await self._mechanisms.finish(self._exchange, step, lambda: self._connection.is_left)
            finally:
                self._host.finishing(self._connection, None)
            self._go_on(header, outcome)
        except (ExchangeRefused, Malformed) as error:
            self._fail_exchange(header, error)
            return
        except ClientLeft:
            self._connection.close("closed by the client")
            return
        except Exception:
            log.exception("an authentication failed", extra={"peer": self._connection.peer})
            self._connection.close("an internal error")
            return
        self._connection.release(Held.AUTHENTICATION)

    def _send(self, header: RequestHeader | None, data: bytes | None, lifetime_ms: int = 0) -> None:
        if header is None:
            if data is not None:
                self._connection.answer([len(data).to_bytes(4, "big") + data], None)
            return
        answer = m.SaslAuthenticateResponse(error_message="", auth_bytes=data or b"", session_lifetime_ms=lifetime_ms)
        self._connection.answer(_encoded(header, answer), None)

    def _succeed(self, header: RequestHeader | None, done: Authenticated) -> None:
        """Raises `ExchangeRefused` if a client that authenticates again is another one."""
        connection, before, host, visitors = self._connection, self._before, self._host, self._visitors
        principal = f"User:{done.name}"
        if visitors is not None:
            principal = visitors.names.qualified_client(principal)
        if before is not None and principal != connection.principal:
            raise ExchangeRefused(
                f"Cannot change principals during re-authentication from {connection.principal.replace(':', '.', 1)}: "
                f"User.{done.name}"
            )
        if visitors is None:
            visitors = host.visitors_of(connection, done.name)
        try:
            dispatch = self._dispatch(visitors)
        except InvalidRequest as error:
            raise ExchangeRefused(error.message) from None
        mechanism = self._exchange.mechanism
        if visitors is not None:
            self._check_admitted(visitors, done, principal)
        session = Session(self, mechanism, dispatch, is_token=done.is_token, expires_at_ms=done.expires_at_ms)
        if before is not None:
            session.begun_ns = before.begun_ns
            before.close()
        lifetime_ms = self._lifetime_ms(mechanism, done.expires_at_ms)
        if lifetime_ms is not None:
            end = host.loop.time() + lifetime_ms / 1000
            session.end = host.loop.call_at(end, self._end, session, end + host.timeout_s)
        connection.principal, connection.session, connection.admitted = principal, session, None
        self._state, self._before, self._rounds = GateState.OVER, None, 0
        host.succeeded(connection, mechanism, is_again=before is not None)
        self._send(header, done.data, lifetime_ms or 0)
        connection.hand_over(dispatch, host.request_bytes_max)

    def _check_admitted(self, visitors: Visitors, done: Authenticated, principal: str) -> None:
        """Raises `ExchangeRefused` for one whom the instance does not let in."""
        name = visitors.names.local(principal.partition(":")[2]) or ""
        if not visitors.admits(name, self._exchange.mechanism, is_token=done.is_token):
            visitors.refuse_principal(self._connection.host)
            raise ExchangeRefused("Authentication failed: the principal is none of those that may enter here")

    def _dispatch(self, visitors: Visitors | None) -> Dispatch:
        """The receiver of ordinary requests. Raises `InvalidRequest`."""
        dispatch = self._host.dispatch if visitors is None else visitors.dispatch
        if dispatch is None:
            raise InvalidRequest("the instance is not served any more")
        return dispatch

    def _lifetime_ms(self, mechanism: str, expires_at_ms: int | None) -> int | None:
        """How long the session may last from now on; None for a session without an end."""
        most = self._mechanisms.max_reauth_ms(mechanism)
        ends = [most] if most > 0 else []
        if expires_at_ms is not None:
            ends.append(max(0, expires_at_ms - self._host.now_ms()))
        return min(ends) if ends else None

    def _end(self, session: Session, latest: float) -> None:
        """Ends a session. While requests are held, that with which the client authenticates again may be among those
        that have come: they are dispatched first, until `latest`."""
        connection, loop = self._connection, self._host.loop
        if connection.held and loop.time() < latest:
            session.end = loop.call_later(_HELD_LOOKED_AT_EVERY_S, self._end, session, latest)
        else:
            connection.hand_over(self._on_expired, self._host.gate_bytes_max)

    def _on_expired(self, connection: Connection, frame: memoryview) -> None:
        """The first frame behind the end of a session: only a client that authenticates again may go on."""
        header, _ = read_request_header(frame)
        if header.api_key != ApiKey.SASL_HANDSHAKE:
            self._host.expired(connection)
            raise InvalidRequest("the session has expired, and the client has not authenticated again")
        # Not handed over: the handshake may be refused, and the session stays over then.
        session = connection.session
        assert isinstance(session, Session)
        session.dispatch(connection, frame)

    # -- failures

    def _fail_exchange(self, header: RequestHeader | None, error: ExchangeRefused | Malformed) -> None:
        """Tells the client what it may know."""
        when = "authentication" if self._before is None else "re-authentication"
        mechanism = self._exchange.mechanism
        text = str(error)
        if isinstance(error, Malformed):
            text = f"Authentication failed during {when} due to invalid credentials with SASL mechanism {mechanism}"
        answer = m.SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text, auth_bytes=b""
        )
        self._fail(header, answer, self._exchange.reason or str(error))

    def _fail(self, header: RequestHeader | None, answer: Message | None, reason: str) -> None:
        """Sends the answer after a while, and closes the connection."""
        self._state = GateState.OVER
        chunks = [] if header is None or answer is None else _encoded(header, answer)
        exchange = getattr(self, "_exchange", None)
        mechanism, claimed = ("", "") if exchange is None else (exchange.mechanism, exchange.claimed)
        self._host.failed(self._connection, mechanism, claimed, reason, is_again=self._before is not None)
        self._connection.hold(Held.AUTHENTICATION)
        self._host.loop.call_later(self._host.failure_delay_s, self._connection.finish, chunks, reason)


def _served(header: RequestHeader, versions: range) -> int:
    if header.api_version not in versions:
        raise InvalidRequest(f"Version {header.api_version} is not supported for apiKey {_name(header.api_key)}")
    return header.api_version


def _encoded(header: RequestHeader, answer: Message) -> Chunks:
    return encode_response(ApiKey(header.api_key), header.api_version, header.correlation_id, answer)


def _name(api_key: int) -> str:
    return ApiKey(api_key).name if api_key in ApiKey._value2member_map_ else str(api_key)
