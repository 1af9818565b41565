"""How many members of a group subscribe to a topic by its name, and how many regular expressions match it.

Source: Kafka's `SubscriptionCount`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet

from headrace.errors import ErrorCode, KafkaError
from headrace.limits import SUBSCRIBED_TOPICS_MAX


def check_subscription(names: Collection[str] | None) -> None:
    """Raises INVALID_REQUEST for a subscription that would hold up other requests."""
    if names is not None and len(names) > SUBSCRIBED_TOPICS_MAX:
        text = f"{len(names)} topics are subscribed by name; a member may subscribe to {SUBSCRIBED_TOPICS_MAX}."
        raise KafkaError(text, ErrorCode.INVALID_REQUEST)


class Subscriptions:
    """The topics to which the members of a group subscribe."""

    __slots__ = ("_by_name", "_by_regex")

    def __init__(self) -> None:
        self._by_name: Counter[str] = Counter()
        self._by_regex: Counter[str] = Counter()

    def __contains__(self, topic: object) -> bool:
        return topic in self._by_name or topic in self._by_regex

    def has_any(self, topics: AbstractSet[str]) -> bool:
        """Whether one of these topics is subscribed. Costs no more than one look at each of the fewer: subscriptions or
        topics."""
        return not (self._by_name.keys().isdisjoint(topics) and self._by_regex.keys().isdisjoint(topics))

    def __len__(self) -> int:
        return len(self._by_name) + sum(each not in self._by_name for each in self._by_regex)

    def __iter__(self) -> Iterator[str]:
        yield from self._by_name
        yield from (each for each in self._by_regex if each not in self._by_name)

    def replace_names(self, old: Collection[str], new: Collection[str]) -> None:
        """A member's topics are `new` instead of `old`."""
        if old is not new:
            _add(self._by_name, new)
            _subtract(self._by_name, old)

    def replace_matches(self, old: Collection[str], new: Collection[str]) -> None:
        """A regular expression matches `new` instead of `old`."""
        _add(self._by_regex, new)
        _subtract(self._by_regex, old)

    def copy(self) -> Subscriptions:
        copied = Subscriptions()
        copied._by_name.update(self._by_name)
        copied._by_regex.update(self._by_regex)
        return copied


def _add(counts: Counter[str], topics: Iterable[str]) -> None:
    counts.update(topics)


def _subtract(counts: Counter[str], topics: Iterable[str]) -> None:
    for topic in topics:
        counts[topic] -= 1
        if not counts[topic]:
            del counts[topic]
