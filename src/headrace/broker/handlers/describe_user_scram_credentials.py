"""DescribeUserScramCredentials (key 50), version 0.

Returns the mechanisms and iterations of the SCRAM credentials that are stored for users, never their keys. Without
names, every user with credentials. `kafka-configs --describe --entity-type users` asks for them beside the quotas.
AlterUserScramCredentials stores them, and Apache Kafka's tools that write to ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.in_slices import counted, in_slices
from headrace.metadata.entity_configs import DEFAULT, USERS, desanitize, sanitize
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
VERSIONS = range(1)
DEMANDS: Demands = (Demand(Operation.DESCRIBE, ResourceType.CLUSTER),)

_MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}

Result = m.DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


def handle(ctx: RequestContext, request: m.DescribeUserScramCredentialsRequest) -> Answer:
    """Returns the credentials' mechanisms; later requests of the connection wait."""
    return ctx.in_order(_describe(ctx, request), lambda error: fail(request, code_of(error)))


def fail(_request: m.DescribeUserScramCredentialsRequest, code: ErrorCode) -> m.DescribeUserScramCredentialsResponse:
    """Returns the error for the whole request."""
    return m.DescribeUserScramCredentialsResponse(error_code=code, error_message=None, results=[])


async def _describe(
    ctx: RequestContext, request: m.DescribeUserScramCredentialsRequest
) -> m.DescribeUserScramCredentialsResponse:
    stored = ctx.services.entities
    results = []
    if request.users:
        times = await counted(each.name for each in request.users)
        results = [_result(each, stored.get(USERS, sanitize(each)), times[each]) async for each in in_slices(times)]
    else:
        async for name, configs in in_slices(list(stored.all(USERS).items())):
            if "/" not in name and name != DEFAULT and _MECHANISMS.keys() & configs.keys():
                results.append(_result(desanitize(name), configs, 1))
        results.sort(key=lambda each: each.user)
    return m.DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _result(user: str, configs: Mapping[str, str], times: int) -> Result:
    if not user:
        return _refusal(user, ErrorCode.RESOURCE_NOT_FOUND, "Username must not be empty")
    if times > 1:
        what = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return _refusal(user, ErrorCode.DUPLICATE_RESOURCE, what)
    infos = [
        m.DescribeUserScramCredentialsResponse.CredentialInfo(mechanism=number, iterations=_iterations(configs[name]))
        for name, number in _MECHANISMS.items()
        if name in configs
    ]
    if not infos:
        what = f"Attempt to describe a user credential that does not exist: {user}"
        return _refusal(user, ErrorCode.RESOURCE_NOT_FOUND, what)
    return Result(user=user, error_message=None, credential_infos=infos)


def _refusal(user: str, code: ErrorCode, message: str) -> Result:
    return Result(user=user, error_code=code, error_message=message, credential_infos=[])


def _iterations(credential: str) -> int:
    """Of `salt=...,stored_key=...,server_key=...,iterations=4096`; 0 if there are none."""
    fields = dict(part.split("=", 1) for part in credential.split(",") if "=" in part)
    text = fields.get("iterations", "")
    return int(text) if text.isdecimal() else 0
