"""The memory that clients take by what they say of themselves as members of groups: about, and never less than half."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_MEMBER_BYTES = 1000
"""Of the objects of one member."""
_NAME_BYTES = 128
"""Of one name in a set, which is not looked at: there may be ten thousand."""
_TOPIC_BYTES = 300
"""Of one topic in an assignment: its id, and the mapping of its partitions."""
_PARTITION_BYTES = 64
"""Of one partition in an assignment."""


def bytes_of(member: Iterable[object]) -> int:
    """The bytes of a member of any kind, given as the tuple of its fields."""
    return _MEMBER_BYTES + _texts(member)


def _texts(fields: Iterable[object]) -> int:
    size = 0
    for each in fields:
        if isinstance(each, str | bytes):
            size += len(each)
        elif isinstance(each, frozenset):
            size += _NAME_BYTES * len(each)
        elif isinstance(each, Mapping):  # topics, each with its partitions
            size += _TOPIC_BYTES * len(each) + _PARTITION_BYTES * sum(map(len, each.values()))
        elif isinstance(each, tuple):
            size += _texts(each)
    return size
