"""What the requests about delegation tokens have in common: who may send them, and where.

A client must have proven who it is, and not by a token: a stolen token must not give birth to others. Source: Kafka's
`KafkaApis.allowTokenRequests`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.security.delegation_tokens import DelegationTokens
from headrace.broker.security.session import Session
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.security.access import ANONYMOUS

R = TypeVar("R", m.RenewDelegationTokenResponse, m.ExpireDelegationTokenResponse)


def check_channel(ctx: RequestContext) -> None:
    """Raises `KafkaError` unless the client has authenticated, and not by a token."""
    session = ctx.connection.session
    if ctx.principal == ANONYMOUS or (isinstance(session, Session) and session.is_token):
        raise KafkaError(
            "delegation tokens need a client that has authenticated without one",
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        )


def tokens_of(ctx: RequestContext) -> DelegationTokens:
    """The tokens. Raises `KafkaError` of a broker without `delegation.token.secret.key`."""
    found = ctx.services.delegation_tokens
    if found is None:
        raise KafkaError("delegation.token.secret.key is not set", ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return found


def moves_end(ctx: RequestContext, response: type[R], move: Callable[[DelegationTokens], Awaitable[int]]) -> Answer:
    """Answers with the end of a token, to which `move` moves it; later requests of the connection wait."""

    async def moved() -> R:
        check_channel(ctx)
        return response(expiry_timestamp_ms=await move(tokens_of(ctx)))

    return ctx.in_order(moved(), lambda error: response(error_code=code_of(error), expiry_timestamp_ms=-1))


def split_principal(principal: str) -> tuple[str, str]:
    """Type and name."""
    kind, _, name = principal.partition(":")
    return kind, name
