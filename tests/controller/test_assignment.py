"""Replica assignment, compared with tables worked out by Apache Kafka's own `AdminUtils` (3.9.2)."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.controller.decisions.assignment import alternate_racks, assign_replicas
from headrace.errors import ErrorCode, KafkaError
from headrace.types import BrokerId


def brokers(*ids: int) -> dict[BrokerId, str | None]:
    return {BrokerId(number): None for number in ids}


KAFKA_WITHOUT_RACKS = [
    # brokers, partitions, replicas, start index, first partition -> table
    (5, 10, 3, 0, 0, "012 123 234 340 401 023 134 240 301 412"),
    (5, 12, 3, 2, 0, "201 312 423 034 140 213 324 430 041 102 234 340"),
    (5, 3, 3, 1, 7, "301 412 023"),
    (3, 7, 2, 2, 0, "20 01 12 21 02 10 20"),
    (1, 3, 1, 0, 0, "0 0 0"),
]

SIX = ("rack1", "rack2", "rack2", "rack3", "rack3", "rack1")
KAFKA_WITH_RACKS = [
    (SIX, 12, 3, 0, 0, "013 135 352 524 240 401 024 140 301 513 235 452"),
    (SIX, 13, 3, 3, 0, "532 254 420 041 103 315 513 235 452 024 140 301 524"),
    (SIX, 4, 3, 1, 6, "154 320 541 203"),
    (("a", "a", "a", "b", "c"), 6, 2, 1, 0, "30 43 14 23 03 32"),
    (("a", "a", "a", "b", "c"), 6, 4, 4, 0, "2341 0341 3412 4132 1342 2341"),
    (("a", "a", "a", "a"), 5, 3, 2, 0, "213 320 031 102 230"),
]


def table(assignment: dict[int, tuple[BrokerId, ...]]) -> str:
    return " ".join("".join(str(broker) for broker in assignment[number]) for number in sorted(assignment))


@pytest.mark.parametrize(("count", "partitions", "replicas", "start", "first", "expected"), KAFKA_WITHOUT_RACKS)
def test_without_racks_as_apache_kafka(
    count: int, partitions: int, replicas: int, start: int, first: int, expected: str
) -> None:
    made = assign_replicas(brokers(*range(count)), partitions, replicas, start_index=start, start_partition=first)
    assert table(made) == expected
    assert sorted(made) == list(range(first, first + partitions))


@pytest.mark.parametrize(("racks", "partitions", "replicas", "start", "first", "expected"), KAFKA_WITH_RACKS)
def test_with_racks_as_apache_kafka(
    racks: tuple[str, ...], partitions: int, replicas: int, start: int, first: int, expected: str
) -> None:
    placed: dict[BrokerId, str | None] = {BrokerId(number): rack for number, rack in enumerate(racks)}
    made = assign_replicas(placed, partitions, replicas, start_index=start, start_partition=first)
    assert table(made) == expected


def test_brokers_alternate_between_racks() -> None:
    racks = {BrokerId(number): f"rack{1 + number // 3}" for number in range(9)}
    assert alternate_racks(racks) == [0, 3, 6, 1, 4, 7, 2, 5, 8]


def test_one_broker_without_a_rack_makes_racks_not_count() -> None:
    mixed: dict[BrokerId, str | None] = {BrokerId(0): "a", BrokerId(1): "a", BrokerId(2): None}
    assert assign_replicas(mixed, 3, 2, start_index=0) == assign_replicas(brokers(0, 1, 2), 3, 2, start_index=0)


@pytest.mark.parametrize(
    ("partitions", "replicas", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-5, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 3, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_impossible_counts_are_refused(partitions: int, replicas: int, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        assign_replicas(brokers(0, 1), partitions, replicas, start_index=0)
    assert caught.value.code is code


@given(
    racks=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=9),
    partitions=st.integers(1, 40),
    data=st.data(),
)
def test_replicas_are_distinct_spread_over_racks_and_leaders_are_balanced(
    racks: list[str | None], partitions: int, data: st.DataObject
) -> None:
    replicas = data.draw(st.integers(1, len(racks)))
    start = data.draw(st.integers(0, 100))
    placed = {BrokerId(number): rack for number, rack in enumerate(racks)}
    made = assign_replicas(placed, partitions, replicas, start_index=start)
    for chosen in made.values():
        assert len(set(chosen)) == replicas
        if None not in racks:
            assert len({placed[broker] for broker in chosen}) == min(replicas, len(set(racks)))
    led = Counter(chosen[0] for chosen in made.values())
    assert max(led.values()) - min(led.get(broker, 0) for broker in placed) <= 1
