"""Keys go where Java's clients send them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from headrace.client.producer.delivery import ColumnSlice
from headrace.client.producer.partition_rows import scatter
from headrace.client.producer.partitioner import StickyPartition, partition_for_key
from headrace.records.binary import column_of, int64s

# From org.apache.kafka.common.utils.UtilsTest.testMurmur2, as Java's signed ints.
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", JAVA)
def test_hashes_as_java_does(key: bytes) -> None:
    assert partition_for_key(key, 1 << 31) == JAVA[key] & 0x7FFFFFFF


@given(st.binary(max_size=70), st.integers(1, 1000))
def test_chooses_the_partition_that_kafka_python_chooses(key: bytes, count: int) -> None:
    assert partition_for_key(key, count) == (kafka_python_murmur2(key) & 0x7FFFFFFF) % count


@given(st.lists(st.one_of(st.none(), st.binary(max_size=9)), min_size=1, max_size=40), st.integers(1, 5))
def test_columns_are_scattered_to_the_partitions_of_their_keys_in_order(keys: list[bytes | None], count: int) -> None:
    values = [b"%d" % row for row in range(len(keys))]
    rows = ColumnSlice(column_of(keys), column_of(values), int64s(len(keys)), None, 0, len(keys))
    found: dict[int, list[bytes | None]] = {}
    for partition, part in scatter(rows, count, count - 1):
        assert part.values is not None
        places = range(part.start, part.stop)
        found[partition] = [part.values.value(place if part.order is None else part.order[place]) for place in places]
    expected: dict[int, list[bytes | None]] = {}
    for key, value in zip(keys, values, strict=True):
        chosen = count - 1 if key is None else partition_for_key(key, count)
        expected.setdefault(chosen, []).append(value)
    assert found == expected


def test_keyless_records_stick_until_moved_on_and_then_go_elsewhere() -> None:
    sticky = StickyPartition(random.Random(5).choice)
    first = sticky.current(range(3))
    assert [sticky.current(range(3)) for _ in range(10)] == [first] * 10
    sticky.move_on(range(3))
    assert sticky.current(range(3)) != first


def test_keyless_records_leave_a_partition_that_lost_its_leader() -> None:
    sticky = StickyPartition(random.Random(5).choice)
    first = sticky.current([0, 1])
    assert sticky.current([1 - first]) == 1 - first


def test_a_topic_of_one_partition_has_nowhere_else_to_go() -> None:
    sticky = StickyPartition()
    sticky.move_on([0])
    assert sticky.current([0]) == 0
