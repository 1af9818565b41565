"""Subscriptions by regular expression: which are valid, which topics they match, and when they are to be resolved anew.

The expressions are RE2's: matching takes time linear in the topic's name, so that no expression can hang a broker. A
large expression takes milliseconds for each topic all the same, so `resolve` belongs on a thread; RE2 releases the
interpreter's lock while it compiles and matches. Source: Kafka's `TopicRegexResolver`, `ResolvedRegularExpression`,
`GroupMetadataManager.maybeUpdateRegularExpressions`. Kafka uses RE2/J, which accepts expressions of any size and nested
repetitions of more than 1,000 in all, but no two capture groups of one name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import ErrorCode, KafkaError
from headrace.limits import REGULAR_EXPRESSION_CHARS_MAX, REGULAR_EXPRESSION_PROGRAM_BYTES_MAX

if TYPE_CHECKING:
    import re2

REFRESH_MIN_INTERVAL_MS = 10_000
"""A group resolves its expressions no more often, however many topics are created. Kafka's number."""

NEVER_RESOLVED = -1
"""A version of the topics that is older than any."""

_DESCRIPTIONS = {
    "missing )": "missing closing )",
    "unexpected )": "unexpected )",
    "missing ]": "missing closing ]",
    "bad repetition operator": "invalid nested repetition operator",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "trailing \\": "trailing backslash at end of expression",
    "invalid named capture group": "invalid named capture",
    "invalid character class range": "invalid character class range",
    "invalid escape sequence": "invalid escape sequence",
    "invalid perl operator": "invalid or unsupported Perl syntax",
}
"""RE2's words for an error, and RE2/J's, which clients of Kafka see."""


class ResolvedRegularExpression(NamedTuple):
    """The topics that an expression matched."""

    topics: frozenset[str]
    version: int
    """The version of the topics that were looked at. It means something only to the coordinator that resolved the
    expression: one that was loaded has NEVER_RESOLVED."""
    timestamp_ms: int


def check_regular_expression(text: str) -> None:
    """Raises INVALID_REGULAR_EXPRESSION, with Kafka's message, unless RE2 can match the expression."""
    if len(text) > REGULAR_EXPRESSION_CHARS_MAX:
        raise KafkaError(
            f"SubscribedTopicRegex of {len(text)} characters is too long: at most {REGULAR_EXPRESSION_CHARS_MAX}.",
            ErrorCode.INVALID_REGULAR_EXPRESSION,
        )
    import re2  # a library of its own, which few groups need

    try:
        _compile(text)
    except re2.error as error:
        raise KafkaError(
            f"SubscribedTopicRegex `{text}` is not a valid regular expression: {_description(error)}.",
            ErrorCode.INVALID_REGULAR_EXPRESSION,
        ) from None


def resolve(expressions: Iterable[str], topic_names: Collection[str]) -> dict[str, frozenset[str]]:
    """The topics whose whole name each expression matches. An expression that is not valid matches nothing: a broker
    with other limits may have accepted it."""
    return {expression: frozenset(filter(_matcher(expression), topic_names)) for expression in expressions}


def is_refresh_due(
    subscribed: Collection[str],
    resolved: Mapping[str, ResolvedRegularExpression],
    *,
    newest_topics_version: int,
    refresh_interval_ms: int,
    now_ms: int,
    tried_at_ms: int | None = None,
) -> bool:
    """Whether a group has to resolve its expressions, all of them at once, so that one rebalance follows.

    `subscribed`: the expressions of its members, with those of the member that is being heard. `newest_topics_version`:
    the version of the topics in which a topic was created last; deleted topics leave the group by themselves.
    `tried_at_ms`: when they were last to be resolved, whether that succeeded or not.
    """
    if not subscribed:
        return False
    if tried_at_ms is not None and now_ms <= tried_at_ms + REFRESH_MIN_INTERVAL_MS:
        return False
    if not resolved:
        return True
    latest = next(iter(resolved.values()))
    if now_ms <= latest.timestamp_ms + REFRESH_MIN_INTERVAL_MS:
        return False
    return (
        len(subscribed) != len(resolved)
        or latest.version < newest_topics_version
        or now_ms > latest.timestamp_ms + refresh_interval_ms
    )


def _compile(text: str) -> re2._Regexp[str]:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = REGULAR_EXPRESSION_PROGRAM_BYTES_MAX
    return re2.compile(text, options)


def _matcher(text: str) -> Callable[[str], bool]:
    import re2

    try:
        compiled = _compile(text)
    except re2.error:
        return lambda _: False
    return lambda name: compiled.fullmatch(name) is not None


def _description(error: Exception) -> str:
    """What is wrong, in RE2/J's words."""
    (raw,) = error.args
    text = raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
    for prefix, description in _DESCRIPTIONS.items():
        if text.startswith(prefix):
            return description
    return text
