"""The configuration of a topology against the topics that exist: tasks, partition counts, missing internal topics.

    1. every source topic exists                              else MISSING_SOURCE_TOPICS
    2. a repartition topic without a count gets the largest count of what its writer reads
    3. copartitioned topics have equal counts; repartition topics without one of their own adopt it
                                                              else INCORRECTLY_PARTITIONED_TOPICS
    4. a changelog has as many partitions as its subtopology has tasks: the largest count that it reads
    5. internal topics that exist have the decided count      else INCORRECTLY_PARTITIONED_TOPICS
    6. internal topics that do not exist are to be created:   MISSING_INTERNAL_TOPICS, until they exist

Tasks are assigned when nothing is missing. Sources: Kafka's `InternalTopicManager`, `RepartitionTopics`,
`CopartitionedTopicsEnforcer`, `ChangelogTopics`. Kafka visits subtopologies in the order of a hash map, here they are
sorted; where both orders give a count, the counts may differ only for topologies with several writers of one topic.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from headrace.coordinators.groups.streams.topology import Subtopology, Topology, TopologyTopic
from headrace.errors import ErrorCode, KafkaError
from headrace.limits import STREAMS_TASKS_MAX

PartitionCount: TypeAlias = Callable[[str], int | None]
"""The number of partitions of a topic; None if the topic does not exist."""

_TOPICS_SHOWN_MAX = 3


class Status(IntEnum):
    """A status of StreamsGroupHeartbeat's answer."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class StatusDetail(NamedTuple):
    """A status with its text."""

    status: Status
    detail: str


class TopologyInternalTopic(NamedTuple):
    """An internal topic with its decided number of partitions. A replication factor of 0 is the broker's default."""

    name: str
    partition_count: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...]


class ConfiguredSubtopology(NamedTuple):
    """A subtopology whose number of tasks is known. Topics are sorted by name."""

    subtopology_id: str
    task_count: int
    source_topics: tuple[str, ...]
    repartition_sources: tuple[TopologyInternalTopic, ...]
    repartition_sinks: tuple[str, ...]
    changelogs: tuple[TopologyInternalTopic, ...]

    @property
    def is_stateful(self) -> bool:
        return bool(self.changelogs)


class ConfiguredTopology(NamedTuple):
    """A topology, and what stands against assigning its tasks. `subtopologies` are by id, sorted; empty after a fault
    in the counts."""

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology]
    to_create: tuple[TopologyInternalTopic, ...] = ()
    fault: StatusDetail | None = None

    @property
    def is_ready(self) -> bool:
        return self.fault is None


class _Fault(Exception):
    """The topics do not fit the topology."""


def configure(topology: Topology, partition_count: PartitionCount) -> ConfiguredTopology:
    """Configures a topology. Raises STREAMS_INVALID_TOPOLOGY if no topics could fit it."""
    try:
        decided = _decide(topology, partition_count)
        subtopologies = {
            each.subtopology_id: _configured(each, decided, partition_count) for each in topology.subtopologies
        }
        missing = _missing(subtopologies.values(), partition_count)
    except _Fault as fault:
        return ConfiguredTopology(topology.epoch, {}, fault=StatusDetail(*fault.args))
    if not missing:
        _check_task_count(subtopologies.values())
        return ConfiguredTopology(topology.epoch, subtopologies)
    detail = f"Internal topics are missing: {_some(each.name for each in missing)}"
    return ConfiguredTopology(
        topology.epoch, subtopologies, missing, StatusDetail(Status.MISSING_INTERNAL_TOPICS, detail)
    )


def _decide(topology: Topology, partition_count: PartitionCount) -> dict[str, int]:
    """The partition count of every internal topic."""
    sources = {topic for each in topology.subtopologies for topic in each.source_topics}
    missing = sorted(topic for topic in sources if partition_count(topic) is None)
    if missing:
        raise _Fault(Status.MISSING_SOURCE_TOPICS, f"Source topics {_some(missing)} are missing.")
    decided = _repartition_counts(topology.subtopologies, partition_count)

    def count_of(topic: str) -> int:
        known = partition_count(topic)
        return decided[topic] if known is None else known

    infos = [info for each in topology.subtopologies for info in each.repartition_sources]
    fixed = dict.fromkeys(info.name for info in infos if info.partitions)
    flexible = {info.name for info in infos if not info.partitions}
    for subtopology in topology.subtopologies:
        for group in subtopology.copartitioned():
            decided.update(_copartitioned(group, fixed, flexible, count_of))
    for subtopology in topology.subtopologies:
        read = subtopology.read_topics
        if not read:
            raise _invalid(f"No source topics found for subtopology {subtopology.subtopology_id}")
        task_count = max(map(count_of, read))
        decided.update((each.name, task_count) for each in subtopology.changelogs)
    return decided


def _repartition_counts(subtopologies: tuple[Subtopology, ...], partition_count: PartitionCount) -> dict[str, int]:
    """A count for every repartition topic: the application's own, or the largest that one of its writers reads."""
    decided = {
        info.name: info.partitions for each in subtopologies for info in each.repartition_sources if info.partitions
    }
    readers: defaultdict[str, list[Subtopology]] = defaultdict(list)
    for each in subtopologies:
        for info in each.repartition_sources:
            readers[info.name].append(each)
    # A decided topic lets its readers decide theirs: each subtopology is visited once for every topic that it reads.
    waiting = deque(subtopologies)
    while waiting:
        writer = waiting.popleft()
        undecided = [topic for topic in writer.repartition_sinks if topic not in decided]
        if not undecided:
            continue
        known = [decided.get(info.name) for info in writer.repartition_sources]
        known += [partition_count(topic) for topic in writer.source_topics]
        count = max((each for each in known if each is not None), default=None)
        if count is not None:
            decided.update(dict.fromkeys(undecided, count))
            waiting.extend(reader for topic in undecided for reader in readers[topic])
    if any(topic not in decided for each in subtopologies for topic in each.repartition_sinks):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics. "
            "There may be loops in the topology that cannot be resolved."
        )
    if any(topic not in decided for topic in readers):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics, because "
            "a repartition source topic is never used as a sink topic."
        )
    return decided


def _copartitioned(
    group: set[str], fixed: Collection[str], flexible: set[str], count_of: Callable[[str], int]
) -> dict[str, int]:
    """The common count of the repartition topics of a copartition group."""
    if not group:
        return {}
    repartition = {topic: count_of(topic) for topic in sorted(group) if topic in flexible or topic in fixed}
    others = {topic: count_of(topic) for topic in sorted(group) if topic not in repartition}
    if others:
        counts, compared = others, others.values()
    elif fixed:
        # Kafka compares the fixed topics of the whole topology here, not those of the group.
        counts, compared = repartition, {topic: count_of(topic) for topic in fixed}.values()
    else:
        return dict.fromkeys(repartition, max(repartition.values()))
    common = next(iter(compared))
    if any(each != common for each in compared):
        told = ", ".join(f"{topic}={count}" for topic, count in counts.items())
        raise _Fault(
            Status.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{told}}}]",
        )
    for topic, count in repartition.items():
        if count != common and topic in fixed:
            raise _Fault(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{count}] of repartition topic [{topic}] doesn't match number of partitions "
                f"[{common}] of the source topic.",
            )
    return dict.fromkeys(repartition, common)


def _configured(
    subtopology: Subtopology, decided: Mapping[str, int], partition_count: PartitionCount
) -> ConfiguredSubtopology:
    counts = [partition_count(topic) or decided[topic] for topic in subtopology.read_topics]
    return ConfiguredSubtopology(
        subtopology.subtopology_id,
        max(counts),
        tuple(sorted(set(subtopology.source_topics))),
        _internal(subtopology.repartition_sources, decided),
        tuple(sorted(set(subtopology.repartition_sinks))),
        _internal(subtopology.changelogs, decided),
    )


def _internal(topics: Iterable[TopologyTopic], decided: Mapping[str, int]) -> tuple[TopologyInternalTopic, ...]:
    return tuple(
        TopologyInternalTopic(each.name, each.partitions or decided[each.name], each.replication_factor, each.configs)
        for each in sorted(topics)
    )


def _missing(
    subtopologies: Iterable[ConfiguredSubtopology], partition_count: PartitionCount
) -> tuple[TopologyInternalTopic, ...]:
    """The internal topics that do not exist. Raises `_Fault` for one that exists with another number of partitions."""
    internal = {topic.name: topic for each in subtopologies for topic in (*each.repartition_sources, *each.changelogs)}
    missing = []
    for name in sorted(internal):
        count = partition_count(name)
        if count is None:
            missing.append(internal[name])
        elif count != internal[name].partition_count:
            raise _Fault(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected "
                f"{internal[name].partition_count}, found {count}",
            )
    return tuple(missing)


def _check_task_count(subtopologies: Iterable[ConfiguredSubtopology]) -> None:
    """A bound of this broker: an assignment is computed between two requests, for all tasks of the group."""
    count = sum(each.task_count for each in subtopologies)
    if count > STREAMS_TASKS_MAX:
        raise _invalid(
            f"The topology has {count} tasks; at most {STREAMS_TASKS_MAX} are served. Split the application, or read "
            "topics with fewer partitions."
        )


def _some(topics: Iterable[str]) -> str:
    names = list(topics)
    more = len(names) - _TOPICS_SHOWN_MAX
    shown = ", ".join(names[:_TOPICS_SHOWN_MAX])
    return f"{shown} and {more} additional topics" if more > 0 else shown


def _invalid(message: str) -> KafkaError:
    return KafkaError(message, ErrorCode.STREAMS_INVALID_TOPOLOGY)
