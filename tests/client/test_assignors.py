"""Assignments are Java's: the examples of `RangeAssignorTest` and `RoundRobinAssignorTest`."""

from headrace.client.consumer.assignors.member import Member
from headrace.client.consumer.assignors.range_assignor import assign_range
from headrace.client.consumer.assignors.round_robin import assign_round_robin
from headrace.types import TopicPartition


def member(member_id: str, *topics: str, instance: str | None = None) -> Member:
    return Member(member_id, frozenset(topics), instance)


def partitions(*names: str) -> list[TopicPartition]:
    return [TopicPartition(topic, int(index)) for topic, _, index in (name.rpartition("-") for name in names)]


def test_range_gives_the_first_members_one_more() -> None:
    assert assign_range([member("a", "t"), member("b", "t")], {"t": 3}) == {
        "a": partitions("t-0", "t-1"),
        "b": partitions("t-2"),
    }


def test_range_shares_each_topic_among_its_own_subscribers() -> None:
    members = [member("a", "t1"), member("b", "t1", "t2"), member("c", "t1")]
    assert assign_range(members, {"t1": 3, "t2": 2}) == {
        "a": partitions("t1-0"),
        "b": partitions("t1-1", "t2-0", "t2-1"),
        "c": partitions("t1-2"),
    }


def test_range_starts_anew_with_the_first_member_for_every_topic() -> None:
    assert assign_range([member("a", "t1", "t2"), member("b", "t1", "t2")], {"t1": 3, "t2": 3}) == {
        "a": partitions("t1-0", "t1-1", "t2-0", "t2-1"),
        "b": partitions("t1-2", "t2-2"),
    }


def test_members_without_a_topic_or_a_partition_get_an_empty_assignment() -> None:
    assert assign_range([member("a", "gone"), member("b", "t"), member("c", "t")], {"t": 1}) == {
        "a": [],
        "b": partitions("t-0"),
        "c": [],
    }


def test_static_members_come_first_in_the_order_of_their_own_ids() -> None:
    members = [member("a", "t"), member("z", "t", instance="2"), member("y", "t", instance="1")]
    assert assign_range(members, {"t": 3}) == {
        "y": partitions("t-0"),
        "z": partitions("t-1"),
        "a": partitions("t-2"),
    }


def test_round_robin_deals_across_topics() -> None:
    assert assign_round_robin([member("a", "t1", "t2"), member("b", "t1", "t2")], {"t1": 3, "t2": 3}) == {
        "a": partitions("t1-0", "t1-2", "t2-1"),
        "b": partitions("t1-1", "t2-0", "t2-2"),
    }


def test_round_robin_passes_over_members_that_do_not_subscribe() -> None:
    members = [member("a", "t1"), member("b", "t1", "t2"), member("c", "t1")]
    assert assign_round_robin(members, {"t1": 3, "t2": 2}) == {
        "a": partitions("t1-0"),
        "b": partitions("t1-1", "t2-0", "t2-1"),
        "c": partitions("t1-2"),
    }
