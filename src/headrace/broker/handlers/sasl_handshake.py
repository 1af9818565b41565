"""SaslHandshake (key 17), versions 0-1.

1     the client's messages come in SaslAuthenticate requests; at version 0 they come as they are
A client names its SASL mechanism, at the beginning of a connection through a SASL listener, where the authentication
gate reads the request (`broker.security.gate`). This handler answers it later: a client authenticates again (KIP-368).
Else, and through a listener without SASL, the answer is ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from time import monotonic_ns

from headrace.broker.request.context import RequestContext
from headrace.broker.request.demands import Demands
from headrace.broker.security.session import handshake_again
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.SASL_HANDSHAKE
VERSIONS = range(2)
DEMANDS: Demands = ()


def handle(ctx: RequestContext, request: m.SaslHandshakeRequest) -> m.SaslHandshakeResponse:
    """Returns the mechanisms of the listener, or the error."""
    return handshake_again(ctx.connection, request.mechanism, monotonic_ns())
