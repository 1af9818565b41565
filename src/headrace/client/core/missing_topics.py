"""What to say of a topic that does not exist: its name, and names that are nearly the same. Does no IO."""

from collections.abc import Iterable

WARN_AFTER_MS = 1_500
"""A broker that creates topics by itself needs less; after that a waiting user is told what is missing."""


def missing_text(topic: str, existing: Iterable[str]) -> str:
    """Says that there is no such topic. `existing`: the topics that there are."""
    near = near_names(topic, existing)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"topic {topic} does not exist{hint}"


def near_names(topic: str, existing: Iterable[str]) -> list[str]:
    """Up to three names that a user may have meant."""
    from difflib import get_close_matches  # for mistakes alone: an import of the client is to be quick

    by_lower = {name.lower(): name for name in existing if not name.startswith("__")}
    return [by_lower[each] for each in get_close_matches(topic.lower(), by_lower, n=3, cutoff=0.7)]
