"""The session of a client that has authenticated by SASL."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from headrace.errors import ErrorCode
from headrace.protocol import messages as m

if TYPE_CHECKING:
    from headrace.network.connection import Connection, Dispatch

REAUTHENTICATION_INTERVAL_NS = 1_000_000_000
"""A client may authenticate again once a second, as with Apache Kafka."""


class SessionGate(Protocol):
    """What a session needs of the gate that it came through."""

    def begin_again(self, session: Session, mechanism: str, /) -> m.SaslHandshakeResponse:
        """The answer to a client that authenticates again."""


class Session:
    """An authenticated client: its mechanism, and when its session ends. `Connection.session` of its connection."""

    __slots__ = ("begun_ns", "dispatch", "end", "expires_at_ms", "gate", "is_token", "mechanism")

    def __init__(
        self, gate: SessionGate, mechanism: str, dispatch: Dispatch, *, is_token: bool, expires_at_ms: int | None
    ) -> None:
        """`dispatch`: receives its requests. `expires_at_ms`: when the credentials expire, in ms since 1970."""
        self.gate, self.dispatch, self.mechanism, self.is_token, self.expires_at_ms = (
            gate,
            dispatch,
            mechanism,
            is_token,
            expires_at_ms,
        )
        self.end: asyncio.TimerHandle | None = None
        """The timer of the session's end; None for a session without one."""
        self.begun_ns = 0
        """When the client last began to authenticate again."""

    def close(self) -> None:
        """Ends the timer."""
        if self.end is not None:
            self.end.cancel()


def handshake_again(connection: Connection, mechanism: str, now_ns: int) -> m.SaslHandshakeResponse:
    """The answer to SaslHandshake on a connection that takes ordinary requests: a client authenticates again, or has
    come through a listener without SASL."""
    session = connection.session
    if (
        not isinstance(session, Session)
        or session.end is None  # as with Apache Kafka
        or (session.begun_ns and now_ns - session.begun_ns < REAUTHENTICATION_INTERVAL_NS)
    ):
        return m.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    session.begun_ns = now_ns
    return session.gate.begin_again(session, mechanism)
