"""The topology of a Kafka Streams application: its subtopologies, and the topics between them. Immutable values.

    subtopology        tasks that read the same partition of each of its source topics
    source topics      topics of the user, which exist
    repartition        internal topics: a subtopology writes its sinks, another one reads them as sources
    changelog          internal topics that back up state stores
    copartition group  sources whose partition counts must be equal, as positions in the lists of sources

A member sends the topology when it joins; a record keeps it. Source: Kafka's `StreamsTopology`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from headrace.errors import CorruptMessage, ErrorCode, KafkaError
from headrace.limits import STREAMS_TOPOLOGY_ELEMENTS_MAX
from headrace.protocol import messages as m

Request = m.StreamsGroupHeartbeatRequest
Value = m.StreamsGroupTopologyValue


class TopologyTopic(NamedTuple):
    """An internal topic as the application asks for it; 0 leaves a number to the broker."""

    name: str
    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...]


class CopartitionGroup(NamedTuple):
    """Positions in the subtopology's `source_topics`, `source_topic_regex` and `repartition_sources`."""

    source_topics: tuple[int, ...]
    source_topic_regex: tuple[int, ...]
    repartition_sources: tuple[int, ...]


class Subtopology(NamedTuple):
    """One subtopology."""

    subtopology_id: str
    source_topics: tuple[str, ...]
    source_topic_regex: tuple[str, ...]
    changelogs: tuple[TopologyTopic, ...]
    repartition_sinks: tuple[str, ...]
    repartition_sources: tuple[TopologyTopic, ...]
    copartition_groups: tuple[CopartitionGroup, ...]

    @property
    def read_topics(self) -> list[str]:
        """The topics whose records its tasks process."""
        return [*self.source_topics, *(each.name for each in self.repartition_sources)]

    def copartitioned(self) -> list[set[str]]:
        """The names of the topics in each copartition group."""
        return [
            {self.source_topics[each] for each in group.source_topics}
            | {self.repartition_sources[each].name for each in group.repartition_sources}
            for group in self.copartition_groups
        ]


class Topology(NamedTuple):
    """A topology; two with the same subtopologies are equal. `subtopologies` are sorted by id."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]

    def readers(self) -> dict[str, str]:
        """The subtopology that reads a topic: topic -> subtopology id."""
        return {topic: each.subtopology_id for each in self.subtopologies for topic in each.read_topics}

    def required_topics(self) -> set[str]:
        """Every topic that must exist before tasks can be assigned."""
        return {
            topic
            for each in self.subtopologies
            for topic in (*each.read_topics, *(log.name for log in each.changelogs))
        }


def topology_of_request(requested: Request.Topology) -> Topology:
    """Raises STREAMS_INVALID_TOPOLOGY for one that no application can have, or that is too large."""
    size = sum(_size(each) for each in requested.subtopologies)
    if size > STREAMS_TOPOLOGY_ELEMENTS_MAX:
        raise _invalid(
            f"The topology has {size} subtopologies, topics and topic settings; at most "
            f"{STREAMS_TOPOLOGY_ELEMENTS_MAX} are served. Split the application."
        )
    topology = Topology(requested.epoch, _sorted(map(_of_request, requested.subtopologies)))
    if topology.epoch < 0:
        raise KafkaError("Topology epoch must be non-negative.", ErrorCode.INVALID_REQUEST)
    ids = [each.subtopology_id for each in topology.subtopologies]
    if len(set(ids)) < len(ids):
        raise _invalid("Two subtopologies of the topology have the same id.")
    for each in topology.subtopologies:
        _check_positions(each)
    return topology


def topology_of_record(value: Value) -> Topology:
    """The topology that a record keeps. Raises `CorruptMessage` for a copartition group that names no source."""
    topology = Topology(value.epoch, _sorted(map(_of_record, value.subtopologies)))
    try:
        for each in topology.subtopologies:
            _check_positions(each)
    except KafkaError as error:
        raise CorruptMessage(error.message) from None
    return topology


def record_of(topology: Topology) -> Value:
    """The record that keeps the topology."""
    return Value(
        epoch=topology.epoch,
        subtopologies=[
            Value.Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=list(each.source_topics),
                source_topic_regex=list(each.source_topic_regex),
                state_changelog_topics=[_info_of(info) for info in each.changelogs],
                repartition_sink_topics=list(each.repartition_sinks),
                repartition_source_topics=[_info_of(info) for info in each.repartition_sources],
                copartition_groups=[
                    Value.CopartitionGroup(
                        source_topics=list(group.source_topics),
                        source_topic_regex=list(group.source_topic_regex),
                        repartition_source_topics=list(group.repartition_sources),
                    )
                    for group in each.copartition_groups
                ],
            )
            for each in topology.subtopologies
        ],
    )


def _of_request(each: Request.Subtopology) -> Subtopology:
    return _subtopology(
        each,
        tuple(_of_request_info(info) for info in each.state_changelog_topics),
        tuple(_of_request_info(info) for info in each.repartition_source_topics),
    )


def _of_record(each: Value.Subtopology) -> Subtopology:
    return _subtopology(
        each,
        tuple(_of_record_info(info) for info in each.state_changelog_topics),
        tuple(_of_record_info(info) for info in each.repartition_source_topics),
    )


_Either: TypeAlias = "Request.Subtopology | Value.Subtopology"


def _subtopology(
    each: _Either, changelogs: tuple[TopologyTopic, ...], repartition_sources: tuple[TopologyTopic, ...]
) -> Subtopology:
    return Subtopology(
        each.subtopology_id,
        tuple(each.source_topics),
        tuple(each.source_topic_regex),
        changelogs,
        tuple(each.repartition_sink_topics),
        repartition_sources,
        tuple(
            CopartitionGroup(
                tuple(group.source_topics), tuple(group.source_topic_regex), tuple(group.repartition_source_topics)
            )
            for group in each.copartition_groups
        ),
    )


def _of_request_info(info: Request.TopicInfo) -> TopologyTopic:
    configs = tuple((each.key, each.value) for each in info.topic_configs)
    return TopologyTopic(info.name, info.partitions, info.replication_factor, configs)


def _of_record_info(info: Value.TopicInfo) -> TopologyTopic:
    configs = tuple((each.key, each.value) for each in info.topic_configs)
    return TopologyTopic(info.name, info.partitions, info.replication_factor, configs)


def _info_of(info: TopologyTopic) -> Value.TopicInfo:
    return Value.TopicInfo(
        name=info.name,
        partitions=info.partitions,
        replication_factor=info.replication_factor,
        topic_configs=[Value.TopicConfig(key=key, value=value) for key, value in info.configs],
    )


def _sorted(subtopologies: Iterable[Subtopology]) -> tuple[Subtopology, ...]:
    return tuple(sorted(subtopologies, key=lambda each: each.subtopology_id))


def _size(subtopology: Request.Subtopology) -> int:
    topics = [*subtopology.state_changelog_topics, *subtopology.repartition_source_topics]
    groups = subtopology.copartition_groups
    return (
        1
        + len(subtopology.source_topics)
        + len(subtopology.repartition_sink_topics)
        + sum(1 + len(each.topic_configs) for each in topics)
        + sum(1 + len(each.source_topics) + len(each.repartition_source_topics) for each in groups)
    )


def _check_positions(subtopology: Subtopology) -> None:
    """A copartition group names sources by position; Apache Kafka answers UNKNOWN_SERVER_ERROR for one outside."""
    counts = len(subtopology.source_topics), len(subtopology.repartition_sources)
    for group in subtopology.copartition_groups:
        for positions, count in zip((group.source_topics, group.repartition_sources), counts, strict=True):
            outside = next((each for each in positions if not 0 <= each < count), None)
            if outside is not None:
                raise _invalid(
                    f"A copartition group of subtopology {subtopology.subtopology_id} names source topic {outside}, "
                    f"but there are {count}."
                )


def _invalid(message: str) -> KafkaError:
    return KafkaError(message, ErrorCode.STREAMS_INVALID_TOPOLOGY)
