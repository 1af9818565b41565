"""Checks the topics, partitions and offsets that a caller gives to a consumer. Pure.

What is nearly right, such as `("orders", 0)` for a TopicPartition, is taken; what would mean something else than its
writer thought, such as text where a list is expected, is refused with what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any, TypeAlias

from headrace.client.consumer.fetched_batches import ConsumerRecord
from headrace.client.core.group_metadata import OffsetAndMetadata
from headrace.client.core.record_times import shown
from headrace.types import Offset, TopicPartition

Offsets: TypeAlias = Mapping[TopicPartition, int | OffsetAndMetadata] | ConsumerRecord | Sequence[ConsumerRecord]
"""What can be committed."""

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def topics_of(given: Any) -> list[str] | re.Pattern[str]:
    """The topics of a subscription, sorted, or a pattern. Raises TypeError and ValueError."""
    if isinstance(given, re.Pattern):
        return given
    if isinstance(given, str):
        raise TypeError(f"topics={given!r} is text: give a list, [{given!r}], or a pattern, re.compile({given!r})")
    if not isinstance(given, Iterable):
        raise TypeError(f"topics={shown(given)} is a {type(given).__name__}: give a list of names")
    names = list(given)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"the topic {shown(name)} is a {type(name).__name__}: a topic's name is text")
        if not _TOPIC_NAME.fullmatch(name):
            raise ValueError(
                f"{shown(name)} is no topic's name, which has letters, digits, '.', '_' and '-': for a pattern give "
                f"re.compile({shown(name)}) alone"
            )
    return sorted(set(names))


def partitions_of(given: Any) -> list[TopicPartition]:
    """The partitions in `given`, each once. Raises TypeError."""
    if isinstance(given, str) or _is_partition(given) or not isinstance(given, Iterable):
        raise TypeError(f"partitions={shown(given)}: give a list, as [TopicPartition('orders', 0)]")
    return list(dict.fromkeys(partition_of(each) for each in given))


def partition_of(given: Any) -> TopicPartition:
    """One partition: a TopicPartition, or a pair of a topic and a number. Raises TypeError."""
    if not _is_partition(given):
        hint = f"TopicPartition({given!r}, 0), or subscribe([{given!r}])" if isinstance(given, str) else "a pair"
        raise TypeError(f"{shown(given)} is no partition: give {hint}, as TopicPartition('orders', 0)")
    return TopicPartition(given[0], index(given[1]))


def offset_of(given: Any) -> Offset:
    """An offset to read from. Raises TypeError and ValueError."""
    plain = given.offset if isinstance(given, OffsetAndMetadata) else given
    try:
        offset = index(plain)
    except TypeError:
        raise TypeError(f"offset={shown(plain)} is a {type(plain).__name__}: an offset is a whole number") from None
    if offset < 0:
        raise ValueError(f"offset={offset} is negative: for the ends use seek_to_beginning and seek_to_end")
    return Offset(offset)


def offsets_of(given: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets to commit, with or without metadata: of a mapping, or after a record or some. Raises TypeError."""
    records = [given] if isinstance(given, ConsumerRecord) else given
    if isinstance(records, Sequence) and records and all(isinstance(each, ConsumerRecord) for each in records):
        ends: dict[TopicPartition, OffsetAndMetadata] = {}
        for record in sorted(records, key=lambda each: each.offset):
            ends[TopicPartition(record.topic, record.partition)] = OffsetAndMetadata(record.offset + 1)
        return ends
    if not isinstance(given, Mapping):
        raise TypeError(f"offsets={shown(given)}: give a record, or a dict, as {{TopicPartition('orders', 0): 7}}")
    return {
        partition_of(partition): OffsetAndMetadata(offset_of(value), getattr(value, "metadata", "") or "")
        for partition, value in given.items()
    }


def _is_partition(given: Any) -> bool:
    return (
        isinstance(given, tuple)
        and len(given) == 2
        and isinstance(given[0], str)
        and not isinstance(given[1], bool)
        and hasattr(given[1], "__index__")
    )


def by_topic(partitions: Iterable[TopicPartition]) -> Iterable[tuple[str, list[int]]]:
    """Partitions in the order of their topics' first appearance."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics.items()
