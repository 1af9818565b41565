"""The names and ids of one instance: what its clients say, and what the cluster has.

Ids of topics are random, so an instance's own may be shown as they are. An id that is not its own, whether another's
or nobody's, becomes in a request one that does not exist, and again itself in the response: both take the same path and
have the same answer. The map is an exclusive or with a secret of the process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from headrace.instances.names import Namespace
from headrace.limits import REGULAR_EXPRESSION_CHARS_MAX, REGULAR_EXPRESSION_PROGRAM_BYTES_MAX
from headrace.metadata.model import NO_UUID

ENTITIES = ("user", "client-id")
"""The entities with quotas whose names are qualified."""
ANY_DIRECTORY = "log-dir"
"""What stands for a data directory in a text; DescribeLogDirs numbers them."""
_UUID_BYTES = 16
_REMEMBERED_IDS_MAX = 10_000


class InstanceNames:
    """The names of an instance, as the generated translations use them."""

    __slots__ = ("_in_texts", "_places", "_remembered", "_secret", "namespace", "own_ids", "prefix", "regex_prefix")

    def __init__(self, namespace: Namespace, directories: Sequence[str] = ()) -> None:
        """`directories`: the broker's data directories, which no text may name."""
        self.namespace, self.prefix = namespace, namespace.prefix
        self.regex_prefix = f"{namespace.instance}\\.(?:"
        self._in_texts = re.compile(rf"(?<![\w.-]){re.escape(self.prefix)}(?=\S)")  # `d.` of `failed.` is no prefix
        by_length = sorted(directories, key=len, reverse=True)  # one may lie within another
        ends = [re.escape(each) + (r"(?![\w.-])" if each.startswith("/") else "(?=/)") for each in by_length]
        self._places = re.compile(rf"(?<![\w./-])(?:{'|'.join(ends)})") if ends else None
        self._secret = int.from_bytes(os.urandom(_UUID_BYTES))
        self.own_ids: dict[bytes, str] = {}
        """The ids of the instance's topics, and of those that it had, with their qualified names."""
        self._remembered: dict[bytes, None] = {}

    def has_id(self, topic_id: bytes, qualified: str) -> None:
        """A topic of the instance was created."""
        self.own_ids[topic_id] = qualified
        self._remembered.pop(topic_id, None)

    def had_id(self, topic_id: bytes) -> None:
        """A topic of the instance was deleted. A request that names it may be under way, so its id is remembered."""
        if topic_id in self.own_ids:
            self._remembered[topic_id] = None
        while len(self._remembered) > _REMEMBERED_IDS_MAX:
            oldest = next(iter(self._remembered))
            del self._remembered[oldest], self.own_ids[oldest]

    def masked(self, topic_id: bytes) -> bytes:
        """The id that stands for one that is not the instance's, and the other way round."""
        if topic_id == NO_UUID:
            return topic_id
        return (int.from_bytes(topic_id) ^ self._secret).to_bytes(_UUID_BYTES)

    def local(self, qualified: str) -> str | None:
        """What the instance's clients call a topic, group or transactional id; None for another's."""
        return self.namespace.local(qualified) if qualified else qualified

    def qualified(self, name: str) -> str:
        """The cluster's name of what the instance's clients call so."""
        return self.prefix + name if name else name

    def has_entity(self, entity: Any) -> bool:
        """Whether an entity with quotas, of a response, is the instance's. The defaults for all are the cluster's."""
        return entity.entity_type in ENTITIES and (entity.entity_name or "").startswith(self.prefix)

    def text(self, text: str) -> str:
        """The text of an error as the instance's clients see it."""
        if self._places is not None:
            text = self._places.sub(ANY_DIRECTORY, text)
        return self._in_texts.sub("", text.replace(self.regex_prefix, "(?:"))

    def regex(self, expression: str) -> str:
        """A regular expression over qualified names, for one over the names that the instance's clients use.

        One that is not valid by itself stays as it is, and is refused: with something before and behind it, it could
        be valid, and match another's names. One that is valid only by itself, as `.*\\Q` is, or that is too large to
        tell, becomes one that is refused. The beginning of the text, which many expressions ask for, is behind the
        prefix here: so `^` may match nothing.
        """
        if expression:
            try:
                if not _is_valid(expression):
                    return _REFUSED + expression
            except ValueError:
                return expression
        return f"{self.regex_prefix}{_TOKENS.sub(_without_beginning, expression)})"

    def local_regex(self, expression: str) -> str:
        """The regular expression that the instance's clients know."""
        if expression.startswith(self.regex_prefix) and expression.endswith(")"):
            return _BEGINNING.sub(r"\1", expression[len(self.regex_prefix) : -1])
        return ""


_REFUSED = "*"
"""No expression begins so, whatever follows: there is nothing to repeat."""
_TOKENS = re.compile(r"\\Q.*?(?:\\E|\Z)|\\A|\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\^", re.DOTALL)
"""Quoted text, the beginning of the text, other escapes, classes, and the beginning of the text again."""
_TOO_LARGE = "too large"
"""What RE2 says of an expression whose program would take too much memory."""
_BEGINNING = re.compile(r"\(\?:(\^|\\A)\)\?")


def _without_beginning(token: re.Match[str]) -> str:
    return f"(?:{token[0]})?" if token[0] in ("^", "\\A") else token[0]


def _is_valid(expression: str) -> bool:
    """Whether an expression is valid between parentheses, too. Raises `ValueError` if its syntax is wrong."""
    if len(expression) > REGULAR_EXPRESSION_CHARS_MAX:
        return False
    import re2  # a library of its own, which few requests need

    options = re2.Options()
    options.log_errors = False
    options.max_mem = REGULAR_EXPRESSION_PROGRAM_BYTES_MAX
    try:
        re2.compile(expression, options)
    except re2.error as error:
        if _TOO_LARGE in str(error):  # one with other limits could accept it
            return False
        raise ValueError(expression) from None
    try:
        re2.compile(f"(?:{expression})", options)
    except re2.error:
        return False
    return True
