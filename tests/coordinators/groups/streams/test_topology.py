"""Topologies of streams groups, and their configuration against the topics that exist."""

from collections.abc import Mapping

import pytest

from headrace.coordinators.groups.streams.configured_topology import (
    ConfiguredTopology,
    Status,
    TopologyInternalTopic,
    configure,
)
from headrace.coordinators.groups.streams.topology import Topology, record_of, topology_of_record, topology_of_request
from headrace.errors import CorruptMessage, ErrorCode, KafkaError
from headrace.limits import STREAMS_TASKS_MAX, STREAMS_TOPOLOGY_ELEMENTS_MAX
from tests.coordinators.groups.streams.samples import requested, subtopology, topology, word_count


def configured(subject: Topology, topics: Mapping[str, int]) -> ConfiguredTopology:
    return configure(subject, topics.get)


def fault_of(subject: Topology, topics: Mapping[str, int]) -> tuple[Status, str]:
    fault = configured(subject, topics).fault
    assert fault is not None
    return fault.status, fault.detail


def test_a_topology_survives_its_record() -> None:
    ours = topology_of_request(word_count())
    assert topology_of_record(record_of(ours)) == ours


def test_a_record_whose_copartition_group_names_no_source_is_corrupt() -> None:
    outside: list[tuple[list[int], list[int]]] = [([1], []), ([], [-1])]
    for positions in outside:
        record = record_of(topology(subtopology("0", ["a"])))
        record = record_of(topology(subtopology("0", ["a"], copartitioned=[([0], [])])))
        (group,) = record.subtopologies[0].copartition_groups
        group.source_topics, group.repartition_source_topics = positions
        with pytest.raises(CorruptMessage, match="subtopology 0"):
            topology_of_record(record)


def test_the_order_of_subtopologies_does_not_matter() -> None:
    some, others = subtopology("0", ["a"]), subtopology("1", ["b"])
    assert topology(some, others) == topology(others, some)


def test_internal_topics_are_to_be_created_with_the_partitions_of_the_source() -> None:
    found = configured(topology_of_request(word_count()), {"lines": 3})
    assert found.fault is not None and found.fault.status is Status.MISSING_INTERNAL_TOPICS
    assert found.fault.detail == "Internal topics are missing: counts-changelog, words-repartition"
    assert found.to_create == (
        TopologyInternalTopic("counts-changelog", 3, 0, (("cleanup.policy", "compact"),)),
        TopologyInternalTopic("words-repartition", 3, 0, ()),
    )


def test_tasks_are_as_many_as_partitions_once_all_topics_exist() -> None:
    topics = {"lines": 3, "words-repartition": 3, "counts-changelog": 3}
    found = configured(topology_of_request(word_count()), topics)
    assert found.is_ready and found.to_create == ()
    assert {name: (each.task_count, each.is_stateful) for name, each in found.subtopologies.items()} == {
        "0": (3, False),
        "1": (3, True),
    }


def test_missing_source_topics_are_named() -> None:
    subject = topology(subtopology("0", ["d", "c", "b", "a", "e"]))
    assert fault_of(subject, {"e": 1}) == (
        Status.MISSING_SOURCE_TOPICS,
        "Source topics a, b, c and 1 additional topics are missing.",
    )


def test_an_internal_topic_with_another_number_of_partitions_is_a_fault() -> None:
    topics = {"lines": 3, "words-repartition": 2, "counts-changelog": 3}
    status, detail = fault_of(topology_of_request(word_count()), topics)
    assert status is Status.INCORRECTLY_PARTITIONED_TOPICS
    assert "counts-changelog" in detail or "words-repartition" in detail


def test_a_repartition_topic_of_a_chain_gets_its_count_from_the_first_source() -> None:
    subject = topology(
        subtopology("2", repartitions=["second"]),
        subtopology("1", repartitions=["first"], sinks=["second"]),
        subtopology("0", ["lines", "more"], sinks=["first"]),
    )
    found = configured(subject, {"lines": 2, "more": 5})
    assert {each.name: each.partition_count for each in found.to_create} == {"first": 5, "second": 5}


def test_an_applications_own_count_of_a_repartition_topic_counts() -> None:
    subject = topology(subtopology("0", ["lines"], sinks=["r"]), subtopology("1", repartitions={"r": 7}))
    assert [each.partition_count for each in configured(subject, {"lines": 2}).to_create] == [7]


def test_a_copartitioned_repartition_topic_adopts_the_count_of_the_external_topic() -> None:
    subject = topology(
        subtopology("0", ["lines"], sinks=["r"]),
        subtopology("1", ["table"], repartitions=["r"], copartitioned=[([0], [0])]),
    )
    found = configured(subject, {"lines": 2, "table": 6})
    assert [(each.name, each.partition_count) for each in found.to_create] == [("r", 6)]


@pytest.mark.parametrize(
    ("repartitions", "topics", "detail"),
    [
        ({}, {"a": 2, "b": 3}, "Following topics do not have the same number of partitions: [{a=2, b=3}]"),
        (
            {"r": 4},
            {"a": 2, "b": 2},
            "Number of partitions [4] of repartition topic [r] doesn't match number of partitions [2] of the source "
            "topic.",
        ),
    ],
)
def test_copartitioned_topics_must_have_equal_counts(
    repartitions: dict[str, int], topics: dict[str, int], detail: str
) -> None:
    subject = topology(
        subtopology("0", ["a"], sinks=list(repartitions)),
        subtopology(
            "1", ["a", "b"], repartitions=repartitions, copartitioned=[([0, 1], list(range(len(repartitions))))]
        ),
    )
    assert fault_of(subject, topics) == (Status.INCORRECTLY_PARTITIONED_TOPICS, detail)


def test_copartitioned_repartition_topics_take_the_largest_count() -> None:
    subject = topology(
        subtopology("0", ["a"], sinks=["r"]),
        subtopology("1", ["b"], sinks=["s"]),
        subtopology("2", repartitions=["r", "s"], copartitioned=[([], [0, 1])]),
    )
    found = configured(subject, {"a": 2, "b": 5})
    assert {each.name: each.partition_count for each in found.to_create} == {"r": 5, "s": 5}


@pytest.mark.parametrize(
    "subject",
    [
        topology(subtopology("0", repartitions=["r"], sinks=["r"])),
        topology(subtopology("0", ["a"]), subtopology("1", repartitions=["r"])),
        topology(subtopology("0")),
    ],
    ids=["loop", "without a writer", "without a source"],
)
def test_a_topology_that_no_topics_could_fit_is_refused(subject: Topology) -> None:
    with pytest.raises(KafkaError) as caught:
        configured(subject, {"a": 1})
    assert caught.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_positions_outside_the_sources_and_equal_ids_are_refused() -> None:
    for wrong in (
        requested(subtopology("0", ["a"], copartitioned=[([1], [])])),
        requested(subtopology("0", ["a"], copartitioned=[([], [-1])])),
        requested(subtopology("0", ["a"]), subtopology("0", ["b"])),
    ):
        with pytest.raises(KafkaError) as caught:
            topology_of_request(wrong)
        assert caught.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_a_topology_beyond_the_limits_is_refused() -> None:
    with pytest.raises(KafkaError, match="Split the application"):
        topology(subtopology("0", [f"t{each}" for each in range(STREAMS_TOPOLOGY_ELEMENTS_MAX)]))
    count = STREAMS_TASKS_MAX // 2 + 1
    with pytest.raises(KafkaError, match="tasks"):
        configured(topology(subtopology("0", ["a"]), subtopology("1", ["a"])), {"a": count})


def test_the_largest_chain_of_repartitions_is_configured_in_one_pass() -> None:
    """Sorted against its direction, so that a pass over all subtopologies would decide one count only."""
    count = STREAMS_TOPOLOGY_ELEMENTS_MAX // 4
    chain = [
        subtopology(f"{count - each:05}", repartitions=[f"r{each}"], sinks=[f"r{each + 1}"]) for each in range(count)
    ]
    end = subtopology("99999", repartitions=[f"r{count}"])
    subject = topology(subtopology("zzz", ["a"], sinks=["r0"]), *chain, end)
    looked_up = []

    def partition_count(topic: str) -> int | None:
        looked_up.append(topic)
        return {"a": 2}.get(topic)

    assert len(configure(subject, partition_count).to_create) == count + 1
    assert len(looked_up) < 20 * count
