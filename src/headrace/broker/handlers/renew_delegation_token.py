"""RenewDelegationToken (key 39), versions 0-2.

1     throttle time
2     flexible
Moves the end of a token to so long from now, within its longest lifetime; a negative period is
delegation.token.expiry.time.ms. For the owner and the renewers, who name the token by its HMAC.
"""

from __future__ import annotations

from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demands
from headrace.broker.security.token_requests import moves_end
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.RENEW_DELEGATION_TOKEN
VERSIONS = range(3)
DEMANDS: Demands = ()  # the token says who may


def handle(ctx: RequestContext, request: m.RenewDelegationTokenRequest) -> Answer:
    """Changes the token; later requests of the connection wait."""
    digest, period_ms = bytes(request.hmac), request.renew_period_ms
    return moves_end(ctx, m.RenewDelegationTokenResponse, lambda tokens: tokens.renew(ctx.principal, digest, period_ms))


def fail(_request: m.RenewDelegationTokenRequest, code: ErrorCode) -> m.RenewDelegationTokenResponse:
    """Returns the error."""
    return m.RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)
