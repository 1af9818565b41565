"""AlterUserScramCredentials (key 51), version 0.

Sets and removes the SCRAM credentials of users. A client sends the salted password; the broker derives the keys that it
stores from it, and does not see the password. They are written where Apache Kafka 3.9 keeps them, and count on every
broker within moments. The credentials of one user change together or not at all. Every broker serves the request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode, KafkaError
from headrace.in_slices import in_slices
from headrace.metadata.entity_configs import USERS, sanitize
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.security.sasl.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISM_NUMBERS,
    credential_of,
    format_credential,
)

API_KEY = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
VERSIONS = range(1)
DEMANDS: Demands = (Demand(Operation.ALTER, ResourceType.CLUSTER),)

_BYTES_MAX = 1024
"""Of a salt or salted password; Kafka's tools make salts of 26 bytes. A longer salt would be in each answer to its
user's name."""

_USERS_PER_SLICE = 100
"""Users whose credentials are checked and written in one turn of the event loop."""

_MECHANISMS = {number: name for name, number in MECHANISM_NUMBERS.items()}

Result = m.AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
Upsertion = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion


@dataclass(slots=True)
class _Changes:
    """What a request asks for one user."""

    upsertions: list[Upsertion] = field(default_factory=list)
    deletions: list[int] = field(default_factory=list)


def handle(ctx: RequestContext, request: m.AlterUserScramCredentialsRequest) -> Answer:
    """Changes the credentials; later requests of the connection wait."""
    return ctx.in_order(_alter(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.AlterUserScramCredentialsRequest, code: ErrorCode) -> m.AlterUserScramCredentialsResponse:
    """Returns the same error for every user."""
    names = dict.fromkeys(each.name for some in (request.deletions, request.upsertions) for each in some)
    results = [_result(name, code, None) for name in names]
    return m.AlterUserScramCredentialsResponse(results=results)


async def _alter(
    ctx: RequestContext, request: m.AlterUserScramCredentialsRequest
) -> m.AlterUserScramCredentialsResponse:
    results = []
    by_user: dict[str, _Changes] = {}
    async for deletion in in_slices(request.deletions):
        by_user.setdefault(deletion.name, _Changes()).deletions.append(deletion.mechanism)
    async for upsertion in in_slices(request.upsertions):
        by_user.setdefault(upsertion.name, _Changes()).upsertions.append(upsertion)
    async for name, changes in in_slices(by_user.items(), _USERS_PER_SLICE):
        try:
            _check(name, changes)
            await ctx.services.entities.rewrite(USERS, sanitize(name), lambda own, c=changes: _altered(own, c))  # type: ignore[misc]
        except KafkaError as error:
            results.append(_result(name, error.code, error.message))
        else:
            results.append(_result(name, ErrorCode.NONE, None))
    return m.AlterUserScramCredentialsResponse(results=results)


def _check(name: str, changes: _Changes) -> None:
    """Raises `KafkaError` for changes that cannot be made, whatever the user has."""
    if not name:
        raise KafkaError("Username must not be empty", ErrorCode.UNACCEPTABLE_CREDENTIAL)
    mechanisms = [*changes.deletions, *(each.mechanism for each in changes.upsertions)]
    if not _MECHANISMS.keys() >= set(mechanisms):
        raise KafkaError("Unknown SCRAM mechanism", ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    for each in changes.upsertions:
        if each.iterations < ITERATIONS_MIN:
            raise KafkaError("Too few iterations", ErrorCode.UNACCEPTABLE_CREDENTIAL)
        if each.iterations > ITERATIONS_MAX:
            raise KafkaError("Too many iterations", ErrorCode.UNACCEPTABLE_CREDENTIAL)
        if max(len(each.salt), len(each.salted_password)) > _BYTES_MAX:
            raise KafkaError("Too large a salt or salted password", ErrorCode.UNACCEPTABLE_CREDENTIAL)
    if max(Counter(mechanisms).values()) > 1:
        raise KafkaError("A user credential cannot be altered twice in the same request", ErrorCode.DUPLICATE_RESOURCE)


def _altered(own: Mapping[str, str], changes: _Changes) -> dict[str, str]:
    """A user's configs after the changes. Raises `KafkaError`."""
    after = dict(own)
    for name in _names(changes.deletions):
        if name not in after:
            raise KafkaError("Attempt to delete a user credential that does not exist", ErrorCode.RESOURCE_NOT_FOUND)
        del after[name]
    for each in changes.upsertions:
        name = _MECHANISMS[each.mechanism]
        made = credential_of(name, bytes(each.salted_password), bytes(each.salt), each.iterations)
        after[name] = format_credential(made)
    return after


def _names(mechanisms: Iterable[int]) -> list[str]:
    return [_MECHANISMS[each] for each in mechanisms]


def _result(user: str, code: ErrorCode, message: str | None) -> Result:
    return Result(user=user, error_code=code, error_message=message or None)
