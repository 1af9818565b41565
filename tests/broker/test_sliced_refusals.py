"""Refused requests of many elements: answered in parts, and as in one piece."""

from types import ModuleType
from typing import Any

import pytest

from headrace.broker.handlers import all_modules
from headrace.broker.request.dispatch import message_name
from headrace.broker.request.refusal_answers import worded
from headrace.broker.request.sliced_refusals import has_many, refused_in_parts
from headrace.errors import ErrorCode
from headrace.limits import ELEMENTS_PER_SLICE
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Struct
from tests.broker.test_largest_requests import Filler

ELEMENTS = 3 * ELEMENTS_PER_SLICE + 7
AT_ONCE = (ApiKey.ALTER_REPLICA_LOG_DIRS, ApiKey.ALTER_CLIENT_QUOTAS)
"""APIs with answers of another form than the request, or with two arrays in one element; at most 20,000 elements."""
ANSWERED_ONCE = (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.WRITE_TXN_MARKERS)
"""APIs that answer once what a part repeats, and the requests here do."""
FAILING = [each for each in all_modules() if hasattr(each, "fail")]


def elements(struct: Any) -> int:
    """All elements in a request or response."""
    arrays = [value for name in struct.FIELDS if isinstance(value := getattr(struct, name), list)]
    return sum(len(each) + sum(elements(one) for one in each if isinstance(one, Struct)) for each in arrays)


@pytest.mark.parametrize("module", FAILING, ids=lambda module: module.API_KEY.name)
async def test_the_answer_in_parts_is_that_in_one_piece(module: ModuleType) -> None:
    asked: list[int] = []

    def refuse(request: Any) -> Any:
        asked.append(elements(request))
        return worded(module.API_KEY, module.fail(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))

    for request in Filler(message_name(module.API_KEY, "Request"), module.VERSIONS[-1], "unknown", ELEMENTS).requests():
        whole = refuse(request)
        asked.clear()
        answer = await refused_in_parts(request, refuse)
        assert answer == whole or (module.API_KEY in ANSWERED_ONCE and elements(answer) > elements(whole))
        if elements(whole) > ELEMENTS and module.API_KEY not in AT_ONCE:  # as long as the request
            assert has_many(request)
            assert max(asked) < 2 * ELEMENTS_PER_SLICE, "a part is too large"


async def test_every_array_of_a_request_is_answered() -> None:
    request = m.AlterUserScramCredentialsRequest(
        deletions=[
            m.AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=f"d{number}", mechanism=1)
            for number in range(ELEMENTS)
        ],
        upsertions=[
            m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(name=f"u{number}", mechanism=1)
            for number in range(ELEMENTS)
        ],
    )
    (module,) = [each for each in FAILING if each.API_KEY == request.API_KEY]

    def refuse(part: Any) -> Any:
        return module.fail(part, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    assert await refused_in_parts(request, refuse) == refuse(request)
    assert has_many(request)
    assert not has_many(m.AlterUserScramCredentialsRequest(deletions=request.deletions[:9], upsertions=[]))
