"""Topologies, as a Kafka Streams application would send them."""

from collections.abc import Mapping, Sequence

from headrace.coordinators.groups.streams.topology import Topology, topology_of_request
from headrace.protocol import messages as m

Request = m.StreamsGroupHeartbeatRequest


def info(name: str, partitions: int = 0, **configs: str) -> Request.TopicInfo:
    """An internal topic."""
    pairs = [Request.KeyValue(key=key.replace("_", "."), value=value) for key, value in configs.items()]
    return Request.TopicInfo(name=name, partitions=partitions, replication_factor=0, topic_configs=pairs)


def subtopology(
    name: str,
    sources: Sequence[str] = (),
    *,
    sinks: Sequence[str] = (),
    repartitions: Mapping[str, int] | Sequence[str] = (),
    changelogs: Sequence[str] = (),
    copartitioned: Sequence[tuple[Sequence[int], Sequence[int]]] = (),
) -> Request.Subtopology:
    """One subtopology. `repartitions` are its repartition sources, with their partition counts or without."""
    counts = repartitions if isinstance(repartitions, Mapping) else dict.fromkeys(repartitions, 0)
    return Request.Subtopology(
        subtopology_id=name,
        source_topics=list(sources),
        repartition_sink_topics=list(sinks),
        repartition_source_topics=[info(topic, count) for topic, count in counts.items()],
        state_changelog_topics=[info(topic, cleanup_policy="compact") for topic in changelogs],
        copartition_groups=[
            Request.CopartitionGroup(source_topics=list(some), repartition_source_topics=list(others))
            for some, others in copartitioned
        ],
    )


def requested(*subtopologies: Request.Subtopology, epoch: int = 0) -> Request.Topology:
    return Request.Topology(epoch=epoch, subtopologies=list(subtopologies))


def topology(*subtopologies: Request.Subtopology, epoch: int = 0) -> Topology:
    return topology_of_request(requested(*subtopologies, epoch=epoch))


def word_count() -> Request.Topology:
    """Lines are split into words, which go through a repartition topic to a counter with a store."""
    return requested(
        subtopology("0", ["lines"], sinks=["words-repartition"]),
        subtopology("1", repartitions=["words-repartition"], changelogs=["counts-changelog"]),
    )
