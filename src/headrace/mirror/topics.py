"""Which topics are mirrored, and their counterparts in the target.

A counterpart is created with the source's number of partitions and its settings, and gets more partitions when the
source has more. What exists is not changed otherwise, so that the target's retention may differ. Topics that begin with
`__` belong to the brokers, and are not mirrored.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from headrace.client.operations.admin import RESOURCE_TOPIC, SOURCE_TOPIC, Admin, NewTopic
from headrace.errors import ErrorCode, InvalidConfig, KafkaError
from headrace.mirror.failures import MirrorStopped
from headrace.types import TopicPartition

log = logging.getLogger(__name__)

_NOT_COPIED = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})
_ALREADY = frozenset({ErrorCode.TOPIC_ALREADY_EXISTS})


@dataclass(frozen=True, slots=True)
class Selection:
    """The topics to mirror, and what they are called in the target."""

    names: Sequence[str] = ()
    pattern: re.Pattern[str] | None = None
    prefix: str = ""
    replication_factor: int = -1
    """Of new topics; -1 is the target's default."""

    def __post_init__(self) -> None:
        if not self.names and self.pattern is None:
            raise InvalidConfig("nothing to mirror: name topics, or a pattern of their names")

    def wants(self, name: str) -> bool:
        """Whether the source's topic is mirrored."""
        return not name.startswith("__") and (
            name in self.names or (self.pattern is not None and self.pattern.fullmatch(name) is not None)
        )

    def counterpart(self, partition: TopicPartition) -> TopicPartition:
        """The partition of the target that has the records of one of the source."""
        return TopicPartition(self.prefix + partition.topic, partition.partition)


class Mirrored(NamedTuple):
    """What is mirrored, in the source."""

    partitions: Sequence[TopicPartition] = ()
    topic_ids: Mapping[str, bytes] = {}


def topics_to_mirror(source: Admin, target: Admin, selection: Selection) -> Mirrored:
    """What is mirrored. Counterparts exist when this returns. Raises `MirrorStopped` for a topic that the source does
    not have, and `KafkaError`."""
    found = [each for each in source.list_topics() if selection.wants(each.name)]
    wanted = {each.name: len(each.partitions) for each in found}
    for name in selection.names:
        if name not in wanted:
            raise MirrorStopped(f"the source has no topic {name}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    there = {each.name: len(each.partitions) for each in target.list_topics()}
    for name, count in wanted.items():
        counterpart = selection.prefix + name
        if counterpart not in there:
            _create(source, target, name, NewTopic(counterpart, count, selection.replication_factor))
        elif there[counterpart] < count:
            log.info("the target's topic gets more partitions", extra={"topic": counterpart, "partitions": count})
            target.create_partitions(counterpart, count)
    partitions = [TopicPartition(name, number) for name, count in sorted(wanted.items()) for number in range(count)]
    return Mirrored(partitions, {each.name: each.topic_id for each in found})


def _create(source: Admin, target: Admin, name: str, new: NewTopic) -> None:
    try:
        target.create_topics([new._replace(configs=_settings(source, name))])
        log.info("a topic is created in the target", extra={"topic": new.name, "partitions": new.partitions})
    except KafkaError as error:
        if error.code not in _ALREADY:  # another mirror was faster
            raise


def _settings(source: Admin, name: str) -> Mapping[str, str]:
    """What is set for the topic itself. Nothing, if the source does not tell."""
    found: dict[str, str] = {}
    with suppress(KafkaError):
        for each in source.describe_configs(RESOURCE_TOPIC, name):
            if each.source == SOURCE_TOPIC and each.value is not None and each.name not in _NOT_COPIED:
                found[each.name] = each.value
    return found
