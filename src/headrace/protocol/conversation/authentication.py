"""Authentication by SASL: the client's side of SaslHandshake and SaslAuthenticate.

    send SaslHandshake with the mechanism
      UNSUPPORTED_SASL_MECHANISM      fail, and say which mechanisms the peer has
      NONE                            send SaslAuthenticate with the mechanism's messages until it is complete

It runs right behind the version negotiation, and again on the same connection before the session's lifetime is over
(KIP-368). Source: Kafka's `SaslClientAuthenticator`, KIP-43, KIP-152. Left out: brokers before 1.0, which have no
SaslAuthenticate.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Protocol

from headrace.errors import AuthenticationFailed, ErrorCode, known_code
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.conversation.negotiation import common_version
from headrace.protocol.headers import read_response_header

if TYPE_CHECKING:
    Request = m.SaslHandshakeRequest | m.SaslAuthenticateRequest
    Authentication = Generator[tuple[Request, int], memoryview, int]

_ROUNDS_MAX = 16
_HANDSHAKE_FROM = 1  # version 0 announces tokens without a request around them

RENEW_AT = 0.85
"""The part of a session's lifetime after which a client authenticates again, as Apache Kafka's clients do."""


class Mechanism(Protocol):
    """The client's side of a SASL mechanism."""

    @property
    def mechanism(self) -> str:
        """The name of the mechanism."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether it expects no further message."""
        ...

    def respond(self, message: bytes | None, /) -> bytes:
        """The first message (None), or the response to the server's. Raises `ValueError` if the server cannot be
        trusted."""
        ...


def authentication(peer: str, client: Mechanism, versions: Mapping[int, tuple[int, int]]) -> Authentication:
    """Authenticates to `peer`, whose first and last version of each API are `versions`: yields a request and its
    version, is sent the response with its header, and returns the lifetime of the session in ms, 0 if it has no end.

    A step may take ten milliseconds (PBKDF2). Raises `AuthenticationFailed`, `UnsupportedVersion`, and `InvalidRequest`
    on a malformed response.
    """
    own = m.SaslHandshakeRequest.VERSIONS
    served = versions.get(ApiKey.SASL_HANDSHAKE)
    version = common_version(peer, ApiKey.SASL_HANDSHAKE, (_HANDSHAKE_FROM, own[-1]), served)
    frame = yield m.SaslHandshakeRequest(mechanism=client.mechanism), version
    _, pos = read_response_header(frame, ApiKey.SASL_HANDSHAKE, version)
    shaken, _ = m.SaslHandshakeResponse.decode(version, frame, pos)
    if shaken.error_code:
        raise _handshake_failure(peer, client.mechanism, shaken)
    own = m.SaslAuthenticateRequest.VERSIONS
    version = common_version(peer, ApiKey.SASL_AUTHENTICATE, (own[0], own[-1]), versions.get(ApiKey.SASL_AUTHENTICATE))
    message = _respond(peer, client, None)
    for _ in range(_ROUNDS_MAX):
        frame = yield m.SaslAuthenticateRequest(auth_bytes=message), version
        _, pos = read_response_header(frame, ApiKey.SASL_AUTHENTICATE, version)
        answer, _ = m.SaslAuthenticateResponse.decode(version, frame, pos)
        if answer.error_code:
            text = f": {answer.error_message}" if answer.error_message else ""
            raise AuthenticationFailed(
                f"{peer} refused the authentication by {client.mechanism}{text}", known_code(answer.error_code)
            )
        message = _respond(peer, client, bytes(answer.auth_bytes))
        if client.is_complete:
            return max(0, answer.session_lifetime_ms)
    raise AuthenticationFailed(f"{peer} did not end the authentication by {client.mechanism}")


def _respond(peer: str, client: Mechanism, message: bytes | None) -> bytes:
    try:
        return client.respond(message)
    except ValueError as error:
        raise AuthenticationFailed(f"{peer} cannot be trusted: {error}") from None


def _handshake_failure(peer: str, mechanism: str, shaken: m.SaslHandshakeResponse) -> AuthenticationFailed:
    if shaken.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(shaken.mechanisms) or "none"
        what = f"{peer} does not support the SASL mechanism {mechanism}; it supports {offered}: set sasl.mechanism"
    elif shaken.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        what = (
            f"{peer} has no SASL on this port: connect to a SASL listener, or set security.protocol to PLAINTEXT or SSL"
        )
    else:
        what = f"{peer} refused the SASL handshake"
    return AuthenticationFailed(what, known_code(shaken.error_code))
