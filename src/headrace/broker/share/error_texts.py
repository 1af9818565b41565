"""Texts of errors of share groups that kafka-share-groups prints, in Apache Kafka's words."""

from headrace.broker.request.refusal_answers import TEXTS
from headrace.coordinators.share_state.persister import PersisterOutcome
from headrace.errors import ErrorCode

NO_SUCH_TOPIC = PersisterOutcome(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)
_OF_GROUPS = {
    ErrorCode.INVALID_GROUP_ID: "The group id is invalid.",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
}


def error_text(code: ErrorCode) -> str:
    """The text of an error of a whole group; the name of an error without one."""
    return _OF_GROUPS.get(code) or TEXTS.get(code, code.name)
