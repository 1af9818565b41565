"""DescribeDelegationToken (key 41), versions 0-3.

1     throttle time
2     flexible
3     the requester of each token
Returns the tokens that the client owns, has asked for or may renew, and those that it may describe, with their HMACs.
With owners, only tokens that concern one of them.
"""

from __future__ import annotations

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, RefusalEffect
from headrace.broker.security.token_requests import check_channel, split_principal, tokens_of
from headrace.errors import ErrorCode
from headrace.in_slices import in_slices
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.security.delegation_tokens import DelegationToken

API_KEY = ApiKey.DESCRIBE_DELEGATION_TOKEN
VERSIONS = range(4)

_TOKEN = Demand(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, by_handler=RefusalEffect.HIDDEN)
_OF_USER = Demand(Operation.DESCRIBE_TOKENS, ResourceType.USER, by_handler=RefusalEffect.HIDDEN)
DEMANDS: Demands = (_TOKEN, _OF_USER)  # its owner and its renewers may see a token, too

_REQUESTER_FROM = 3

Described = m.DescribeDelegationTokenResponse.DescribedDelegationToken
Renewer = m.DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer


def handle(ctx: RequestContext, request: m.DescribeDelegationTokenRequest) -> Answer:
    """Returns the tokens; later requests of the connection wait."""
    return ctx.in_order(_describe(ctx, request), lambda error: fail(request, code_of(error)))


def fail(_request: m.DescribeDelegationTokenRequest, code: ErrorCode) -> m.DescribeDelegationTokenResponse:
    """Returns the error."""
    return m.DescribeDelegationTokenResponse(error_code=code, tokens=[])


async def _describe(
    ctx: RequestContext, request: m.DescribeDelegationTokenRequest
) -> m.DescribeDelegationTokenResponse:
    check_channel(ctx)
    tokens = tokens_of(ctx)
    owners = None
    if request.owners is not None:
        owners = {f"{each.principal_type}:{each.principal_name}" for each in request.owners}
    admission = ctx.services.admission

    def may_see(token: DelegationToken) -> bool:
        if owners is not None and owners.isdisjoint((token.owner, token.requester, *token.renewers)):
            return False
        return (
            token.concerns(ctx.principal)
            or admission.permits(ctx, _TOKEN, token.id)
            or admission.permits(ctx, _OF_USER, token.owner)
        )

    known = () if owners == set() else tokens.all()
    described = [_described(each, tokens.hmac_of(each.id)) async for each in in_slices(known) if may_see(each)]
    if ctx.api_version < _REQUESTER_FROM:
        for shown in described:
            shown.token_requester_principal_type = shown.token_requester_principal_name = ""
    return m.DescribeDelegationTokenResponse(tokens=described)


def _described(token: DelegationToken, digest: bytes) -> Described:
    (kind, name), (of, requester) = split_principal(token.owner), split_principal(token.requester)
    return Described(
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=of,
        token_requester_principal_name=requester,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=digest,
        renewers=[
            Renewer(principal_type=kind, principal_name=name) for kind, name in map(split_principal, token.renewers)
        ],
    )
