"""CreateDelegationToken (key 38), versions 0-3.

1     throttle time
2     flexible
3     a token of another owner, for whom the client may create tokens; the answer names the requester
The token is stored where Apache Kafka 3.9 keeps it; its HMAC, which is the password, is in the answer only. Owners and
renewers must be users: Apache Kafka takes owners of any type, and logs them in as the user of the same name.
"""

from __future__ import annotations

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, RefusalEffect
from headrace.broker.security.token_requests import check_channel, split_principal, tokens_of
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.CREATE_DELEGATION_TOKEN
VERSIONS = range(4)

_OF_ANOTHER = Demand(Operation.CREATE_TOKENS, ResourceType.USER, by_handler=RefusalEffect.REQUEST)
DEMANDS: Demands = (_OF_ANOTHER,)  # an owner needs none
_USER = "User"
_REQUESTER_FROM = 3


def handle(ctx: RequestContext, request: m.CreateDelegationTokenRequest) -> Answer:
    """Creates a token; later requests of the connection wait."""
    owner = _owner(ctx, request)
    try:
        check_channel(ctx)
        if owner != ctx.principal and not ctx.services.admission.permits(ctx, _OF_ANOTHER, owner):
            raise KafkaError("it may not create tokens of this owner", ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        kinds = {each.principal_type for each in request.renewers} | {split_principal(owner)[0]}
        if kinds != {_USER}:
            raise KafkaError("owners and renewers must be users", ErrorCode.INVALID_PRINCIPAL_TYPE)
        tokens_of(ctx)
    except KafkaError as error:
        return _failed(ctx, owner, error.code)
    return ctx.in_order(_create(ctx, request, owner), lambda error: _failed(ctx, owner, code_of(error)))


async def _create(
    ctx: RequestContext, request: m.CreateDelegationTokenRequest, owner: str
) -> m.CreateDelegationTokenResponse:
    tokens, requester = tokens_of(ctx), ctx.principal
    renewers = dict.fromkeys(f"{each.principal_type}:{each.principal_name}" for each in request.renewers)
    made = await tokens.create(owner, requester, renewers, request.max_lifetime_ms)
    answer = _failed(ctx, owner, ErrorCode.NONE)
    answer.issue_timestamp_ms, answer.expiry_timestamp_ms = made.issued_ms, made.expiry_ms
    answer.max_timestamp_ms, answer.token_id, answer.hmac = made.max_ms, made.id, tokens.hmac_of(made.id)
    return answer


def _owner(ctx: RequestContext, request: m.CreateDelegationTokenRequest) -> str:
    if not request.owner_principal_name:
        return ctx.principal
    return f"{request.owner_principal_type}:{request.owner_principal_name}"


def _failed(ctx: RequestContext, owner: str, code: ErrorCode) -> m.CreateDelegationTokenResponse:
    kind, name = split_principal(owner)
    of, requester = split_principal(ctx.principal) if ctx.api_version >= _REQUESTER_FROM else ("", "")
    return m.CreateDelegationTokenResponse(
        error_code=code,
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=of,
        token_requester_principal_name=requester,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
    )
