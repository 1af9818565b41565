"""What two brokers refuse, compared: only the refusals of an answer count, with what they are about, their texts, and
the order of the entries.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Struct
from tests.rights.requests import about, joined
from tests.rights.secured import HIDDEN, MINE, Secured
from tests.rotation import day

REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
_NAMES = ("name", "topic", "topic_name", "group_id", "transactional_id", "key", "resource_name")
_OPERATIONS = ("cluster_authorized_operations", "topic_authorized_operations", "authorized_operations")
NOT_ASKED = -(1 << 31)
_REPLICA_STATE_FROM = 15  # of Fetch

Refused = frozenset[tuple[str, str]]
Shown = tuple[tuple[str, str], ...]
"""The entries of an answer in their order, each with the text of its refusal: "" if it has none, or is none."""
Case = tuple[ApiKey, int, str, str]
"""API, version, principal, and whose names are asked about. `follower` asks about hidden ones as a broker does."""

UNORDERED = {
    ApiKey.CREATE_PARTITIONS, ApiKey.CREATE_TOPICS, ApiKey.DELETE_RECORDS, ApiKey.DELETE_TOPICS,
    ApiKey.DESCRIBE_GROUPS, ApiKey.PRODUCE, ApiKey.STREAMS_GROUP_DESCRIBE, ApiKey.WRITE_TXN_MARKERS,
}  # fmt: skip
"""Apache Kafka answers in the order of a hash table, or at random."""

JAVA_OBJECT = re.compile(r"Request Request\(.*\) needs \w+ permission\.", re.DOTALL)
"""What Apache Kafka 4.3's AuthHelper writes into the text of some refusals."""


def refused(answer: Any) -> Refused:
    """The refusals of an answer: pairs of a name, which may be empty, and an error."""
    return frozenset({("", "closed")} if answer is None else _refused(answer, ""))


def _refused(value: Struct, above: str) -> Iterator[tuple[str, str]]:
    name = next((str(getattr(value, each)) for each in _NAMES if getattr(value, each, None)), above)
    for field in value.FIELDS:
        found = getattr(value, field)
        if field.endswith("error_code") and found in REFUSALS:
            yield name, ErrorCode(found).name
        elif field in _OPERATIONS and found != NOT_ASKED:
            yield name, f"{field}={found}"
        elif isinstance(found, list) and found and isinstance(found[0], Struct):
            for each in found:
                yield from _refused(each, name)


def shown(answer: Any) -> Shown:
    """What a client shows of the entries of an answer, in their order."""
    return () if answer is None else tuple(_shown(answer, ""))


def _shown(value: Struct, above: str) -> Iterator[tuple[str, str]]:
    name = next((str(getattr(value, each)) for each in _NAMES if getattr(value, each, None)), above)
    code = getattr(value, "error_code", None)
    if code is not None:
        text = (getattr(value, "error_message", "") or "") if code in REFUSALS else ""
        yield name, JAVA_OBJECT.sub("Cluster authorization failed.", text)
    for field in value.FIELDS:
        found = getattr(value, field)
        if isinstance(found, list) and found and isinstance(found[0], Struct):
            for each in found:
                yield from _shown(each, name)


def cases(apis: Iterable[tuple[ApiKey, int]], principals: Iterable[str], *, is_whole: bool) -> list[Case]:
    """Every question; unless it is the whole, in one of the two orders of entries, which the day decides."""
    orders = ("both", "reversed") if is_whole else (("both", "reversed")[day() % 2],)
    return [(*api, who, what) for who in principals for api in apis for what in ("mine", "hidden", *orders)] + [
        (*api, who, "follower") for who in principals for api in apis if api[0] in (ApiKey.FETCH, ApiKey.LIST_OFFSETS)
    ]


def ask(broker: Secured, case: Case, protocol: str) -> tuple[Refused, Shown]:
    """What a broker refuses through a listener, and what it shows."""
    key, version, principal, what = case
    mine, hidden = (about(key, version, broker.names(each)) for each in (MINE, HIDDEN))
    request: Any = {"mine": mine, "both": joined(mine, hidden), "reversed": joined(hidden, mine)}.get(what, hidden)
    if what == "follower":
        if key is ApiKey.FETCH and version >= _REPLICA_STATE_FROM:
            request.replica_state = m.FetchRequest.ReplicaState(replica_id=1)
        else:
            request.replica_id = 1
    answer = broker.ask(principal, request, version, protocol)
    return refused(answer), shown(answer)
