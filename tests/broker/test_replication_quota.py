"""The bucket that holds replication back."""

import pytest

from headrace.broker.replication.replication_quota import ReplicationQuota
from headrace.config.throttled_replicas import check_entry
from headrace.types import BrokerId, TopicPartition

KEY = TopicPartition("t", 3)


def quota(*replicas: str, rate: float = 1000) -> ReplicationQuota:
    return ReplicationQuota(BrokerId(7), lambda: rate, lambda topic: replicas if topic == "t" else ())


@pytest.mark.parametrize(
    ("replicas", "is_throttled"),
    [(("*",), True), (("3:7",), True), (("3:*",), True), (("3:8", "4:7"), False), ((), False)],
)
def test_which_partitions_are_named(replicas: tuple[str, ...], is_throttled: bool) -> None:
    assert quota(*replicas).is_throttled(KEY) is is_throttled
    assert not quota(*replicas).is_throttled(TopicPartition("u", 3))


def test_it_is_exceeded_until_as_much_time_has_passed_as_the_bytes_take() -> None:
    bucket = quota("*")
    assert not bucket.is_exceeded(100.0)
    bucket.record(KEY, 3000)  # a second's worth was there
    assert bucket.is_exceeded(100.0)
    assert bucket.is_exceeded(101.9)
    assert not bucket.is_exceeded(102.1)
    assert bucket.bytes_passed == 3000


def test_what_is_not_named_is_not_counted() -> None:
    bucket = quota("4:7")
    bucket.record(KEY, 1 << 30)
    assert not bucket.is_exceeded(0.0)
    assert bucket.bytes_passed == 0


@pytest.mark.parametrize("entry", ["", "3", "3:", ":7", "a:7", "3:b", "3:7:1"])
def test_what_is_no_entry(entry: str) -> None:
    with pytest.raises(ValueError, match="PARTITION:BROKER"):
        check_entry(entry)
