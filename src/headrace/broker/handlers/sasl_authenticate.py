"""SaslAuthenticate (key 36), versions 0-2.

1     the lifetime of the session, after which the client must authenticate again (KIP-368)
2     flexible
Carries one message of a SASL mechanism. The authentication gate reads it (`broker.security.gate`). On a connection that
is authenticated, or needs no authentication, it is an error.
"""

from __future__ import annotations

from headrace.broker.request.context import RequestContext
from headrace.broker.request.demands import Demands
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.SASL_AUTHENTICATE
VERSIONS = range(3)
DEMANDS: Demands = ()


def handle(_ctx: RequestContext, _request: m.SaslAuthenticateRequest) -> m.SaslAuthenticateResponse:
    """Refuses the request."""
    return m.SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )
