"""The answers about what the admission has refused: their texts, and their places among the other answers.

Clients show the text of an error, so a refusal has that of its code, as in Apache Kafka. Where Apache Kafka puts the
name of a Java object into the text, it is the same here. The other APIs (not in `_WITH_TEXT`) have none there, or
their handlers write it.

The answers about refused entries come after the others, before them, or in the places that the entries have in the
request (`RefusalPlace`). Source: Kafka's KafkaApis and ControllerApis, and its `Errors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.broker.request.demands import Entries, RefusalPlace
from headrace.errors import ErrorCode
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Struct

if TYPE_CHECKING:
    from headrace.protocol.codec.message import Message

TEXTS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "Delegation Token authorization failed.",
}
_WITH_TEXT = frozenset(
    {
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.ALTER_INSTANCES,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.DELETE_TOPICS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_INSTANCES,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.UPDATE_FEATURES,
        ApiKey.WRITE_SHARE_GROUP_STATE,
    }
)


class RefusedPart(NamedTuple):
    """What is answered about refused entries."""

    entries: Entries
    positions: Sequence[int]
    """The places of the entries in their array of the request, ascending."""
    answer: Message


def worded(api_key: ApiKey, message: Message) -> Message:
    """The response to a refused request or to refused entries, with the text of each error that has none."""
    if api_key in _WITH_TEXT:
        _word(message)
    return message


def _word(struct: Any) -> None:
    if hasattr(struct, "error_message") and not struct.error_message:
        struct.error_message = TEXTS.get(struct.error_code, struct.error_message)
    for name in struct.ARRAYS:
        elements = getattr(struct, name)
        if (
            elements
            and isinstance(elements[0], Struct)
            and (elements[0].ARRAYS or hasattr(elements[0], "error_message"))
        ):
            for each in elements:
                _word(each)


def join(message: Message, refused: Sequence[RefusedPart]) -> Message:
    """The response with the errors of refused entries. An error of the whole request stays alone."""
    if getattr(message, "error_code", ErrorCode.NONE):
        return message
    for array in dict.fromkeys(each.entries.array for each in refused):
        parts = [each for each in refused if each.entries.array == array]
        entries = parts[0].entries
        answers = getattr(message, entries.answers)
        setattr(message, entries.answers, _merged(entries, answers, parts))
    return message


def only_refused(refused: Sequence[RefusedPart]) -> Message:
    """The response to a request of which nothing is left."""
    message = refused[0].answer
    setattr(message, refused[0].entries.answers, _merged(refused[0].entries, [], refused))
    return message


def _merged(entries: Entries, others: list[Any], parts: Sequence[RefusedPart]) -> list[Any]:
    errors = [error for each in parts for error in getattr(each.answer, entries.answers)]
    if not others and len(parts) == 1:
        return errors  # in the order of the request
    positions = [position for each in parts for position in each.positions]
    are_placed = len(errors) == len(positions)  # not where a name that is repeated is answered once
    if are_placed:
        placed = dict(sorted(zip(positions, errors, strict=True), key=lambda pair: pair[0]))
        if entries.place is RefusalPlace.ASKED:
            return _interleaved(placed, others)
        errors = list(placed.values())
    return [*errors, *others] if entries.place is RefusalPlace.FIRST else [*others, *errors]


def _interleaved(errors: dict[int, Any], others: Sequence[Any]) -> list[Any]:
    """The errors at their positions, and the others in between; what is left of the others comes last."""
    merged, taken = [], 0
    for position in range(max(errors) + 1):
        if position in errors:
            merged.append(errors[position])
        elif taken < len(others):
            merged.append(others[taken])
            taken += 1
    return [*merged, *others[taken:]]
