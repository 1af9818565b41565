"""What the members of a group read, as the consumer id registry has it.

    /consumers/[group]/ids/[consumer_id] -> {"version":1,"subscription":{TOPIC:STREAMS,...},"pattern":"static",
                                             "timestamp":"MILLISECONDS"}
    with a filter:                           "subscription":{REGEX:STREAMS}, "pattern" "white_list" or "black_list"

    consumer id    GROUP_HOST-MILLISECONDS-8 HEX DIGITS         one for each connector
    thread id      CONSUMER_ID-NUMBER                           one for each stream; owns partitions

Every member resolves the filters of all members, so all must understand a filter in the same way. A filter is a regular
expression of Java that matches whole names, with `,` for `|`. Here it is one of Python with ASCII classes, which is the
same for what topic names need. Source: Kafka 0.8.2's `TopicCount`, `TopicFilter`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from headrace.errors import InvalidConfig, KafkaError
from headrace.topics import INTERNAL_TOPICS

STATIC, WHITE_LIST, BLACK_LIST = "static", "white_list", "black_list"
_PATTERNS = (STATIC, WHITE_LIST, BLACK_LIST)
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class TopicFilter:
    """Topics chosen by a regular expression; use `Whitelist` or `Blacklist`."""

    pattern = ""

    def __init__(self, regex: str) -> None:
        self.regex: str = regex.strip().replace(",", "|").replace(" ", "").strip("\"'")
        try:
            self._matches = re.compile(self.regex, re.ASCII).fullmatch
        except re.error as error:
            raise InvalidConfig(f"the filter {regex!r} is not a regular expression: {error}") from None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.regex!r})"

    def allows(self, topic: str) -> bool:
        """Whether the filter lets a topic through."""
        return (self._matches(topic) is not None) is (self.pattern == WHITE_LIST)


class Whitelist(TopicFilter):
    """The topics whose whole name matches, such as `Whitelist("clicks,views-.*")`."""

    pattern = WHITE_LIST


class Blacklist(TopicFilter):
    """The topics whose whole name does not match."""

    pattern = BLACK_LIST


class ThreadId(NamedTuple):
    """One stream of one consumer, which owns partitions."""

    consumer_id: str
    number: int

    def __str__(self) -> str:
        return f"{self.consumer_id}-{self.number}"


class StreamSubscription(NamedTuple):
    """What one consumer reads: numbers of streams by topic, or by its filter's regular expression."""

    pattern: str
    counts: Mapping[str, int]

    @classmethod
    def to_topics(cls, counts: Mapping[str, int]) -> StreamSubscription:
        """Named topics. Raises InvalidConfig."""
        if not counts:
            raise InvalidConfig("no topic is given: expected {topic: number of streams}")
        for topic, count in counts.items():
            _check_count(count, f"topic {topic!r}")
        return cls(STATIC, dict(counts))

    @classmethod
    def to_filter(cls, chosen: TopicFilter, count: int) -> StreamSubscription:
        """The topics that a filter allows. Raises InvalidConfig."""
        _check_count(count, repr(chosen))
        return cls(chosen.pattern, {chosen.regex: count})

    def streams(self, topics: Iterable[str], *, has_internal: bool = False) -> dict[str, int]:
        """The number of streams by topic, where `topics` are those that exist. Named topics need not exist."""
        if self.pattern == STATIC:
            return dict(self.counts)
        ((regex, count),) = self.counts.items()
        chosen = Whitelist(regex) if self.pattern == WHITE_LIST else Blacklist(regex)
        return {name: count for name in topics if chosen.allows(name) and (has_internal or name not in INTERNAL_TOPICS)}

    def encode(self, now_ms: int) -> bytes:
        """The node of a consumer that registers now."""
        value = {"version": 1, "subscription": self.counts, "pattern": self.pattern, "timestamp": str(now_ms)}
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode_subscription(consumer_id: str, data: bytes) -> StreamSubscription:
    """The inverse of `encode`. Raises KafkaError, which names the consumer."""
    try:
        value = json.loads(data)
        counts, pattern = value["subscription"], value["pattern"]
        if pattern not in _PATTERNS or not all(isinstance(count, int) for count in counts.values()):
            raise ValueError
        if pattern != STATIC and len(counts) != 1:
            return StreamSubscription(STATIC, counts)  # as Kafka takes a filter without a regular expression
        return StreamSubscription(pattern, counts)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise KafkaError(
            f"consumer {consumer_id} is registered with {data[:200]!r}, which is no subscription"
        ) from None


def make_consumer_id(group: str, host: str, now_ms: int, uuid_hex: str) -> str:
    """The id of a new consumer."""
    return f"{group}_{host}-{now_ms}-{uuid_hex[:8]}"


def check_group(group: str) -> None:
    """Raises InvalidConfig if a group cannot be a node of ZooKeeper."""
    if not _NAME.fullmatch(group) or group in (".", ".."):
        raise InvalidConfig(f"group {group!r}: expected letters, digits, '.', '_' and '-'")


def thread_ids(streams: Mapping[str, Mapping[str, int]], topic: str) -> list[ThreadId]:
    """The threads that consume a topic, in the order of their names. `streams` are the numbers by consumer id."""
    found = [ThreadId(name, number) for name, counts in streams.items() for number in range(counts.get(topic, 0))]
    return sorted(found, key=in_java_order)


def in_java_order(thread: ThreadId) -> bytes:
    """Sorts as Java's String does: by UTF-16 code units; so `c-10` comes before `c-2`."""
    return str(thread).encode("utf-16-be", "surrogatepass")


def has_filters(members: Collection[StreamSubscription]) -> bool:
    """Whether the topics that exist matter."""
    return any(member.pattern != STATIC for member in members)


def _check_count(count: int, what: str) -> None:
    if count < 1:
        raise InvalidConfig(f"{what}: {count!r} is not a number of streams; expected 1 or more")
