"""The upper bound of an instance's retention holds, whatever a topic sets and its records are stamped."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from headrace.config import TopicConfig
from headrace.config.topic_bounds import TopicBounds
from headrace.controller.decisions.topics import RequestedTopic
from headrace.errors import ErrorCode
from headrace.instances.definition import Instance
from headrace.limits import INT64_MAX
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.broker.instances.houses import Houses
from tests.broker.instances.test_abuse import create
from tests.eventually import eventually
from tests.wire import batch

MOST_MS = 600_000
HOUR_MS = 3_600_000
SET, REMOVE, APPEND, SUBTRACT = range(4)


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Houses]:
    instances = (
        Instance("acme", "AAAAAAAAQACAAAAAAAAAAA", retention_ms_max=MOST_MS, retention_bytes_max=1 << 20),
        Instance("beta", "BBBBBBBBQBCBBBBBBBBBBA"),
    )
    settings = {"log.retention.check.interval.ms": "50"}
    with Houses(tmp_path_factory.mktemp("retention") / "data", instances, settings) as found:
        yield found


def alter(wire: Asker, topic: str, name: str, value: str | None, operation: int = SET) -> int:
    """The error of a changed config."""
    kind = m.IncrementalAlterConfigsRequest
    config = kind.AlterableConfig(name=name, config_operation=operation, value=value)
    resource = kind.AlterConfigsResource(resource_type=2, resource_name=topic, configs=[config])
    return int(wire.ask(kind(resources=[resource]), 1).responses[0].error_code)


def configs(wire: Asker, topic: str) -> Mapping[str, str]:
    """What is in force."""
    kind = m.DescribeConfigsRequest
    resource = kind.DescribeConfigsResource(resource_type=2, resource_name=topic)
    return {each.name: each.value for each in wire.ask(kind(resources=[resource]), 4).results[0].configs}


def produce(wire: Asker, topic: str, stamp_ms: int) -> int:
    """The error of a record with a timestamp."""
    kind = m.ProduceRequest
    part = kind.PartitionProduceData(index=0, records=batch([b"x"], keys=[b"k"], timestamp_ms=stamp_ms))
    data = kind.TopicProduceData(name=topic, partition_data=[part])
    answer: Any = wire.ask(kind(acks=1, timeout_ms=10_000, topic_data=[data]), 9)
    return int(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize(("name", "value", "code"), [
    ("cleanup.policy", "compact", ErrorCode.POLICY_VIOLATION),
    ("cleanup.policy", "compact, delete", ErrorCode.NONE),
    ("message.timestamp.after.max.ms", str(MOST_MS + 1), ErrorCode.POLICY_VIOLATION),
    ("message.timestamp.after.max.ms", str(MOST_MS), ErrorCode.NONE),
    ("retention.ms", "-1", ErrorCode.POLICY_VIOLATION),
])  # fmt: skip
def test_a_topic_that_would_keep_records_for_longer_is_refused(
    houses: Houses, name: str, value: str, code: ErrorCode
) -> None:
    topic = f"made-{name}-{value}".replace(", ", "-")
    with houses.ask("acme") as wire:
        assert create(wire, (topic, 1), configs={name: value}) == [code]
        assert create(wire, (f"plain-{topic}", 1)) == [0]
        assert alter(wire, f"plain-{topic}", name, value) == code
    with houses.ask("beta") as wire:
        assert create(wire, (topic, 1), configs={name: value}) == [0], "it has no bound"


def test_delete_cannot_be_taken_from_a_list(houses: Houses) -> None:
    with houses.ask("acme") as wire:
        assert create(wire, ("listed", 1), configs={"cleanup.policy": "compact,delete"}) == [0]
        assert alter(wire, "listed", "cleanup.policy", "delete", SUBTRACT) == ErrorCode.POLICY_VIOLATION
        assert alter(wire, "listed", "cleanup.policy", "compact", SUBTRACT) == 0
        assert alter(wire, "listed", "cleanup.policy", "compact", APPEND) == 0
        assert alter(wire, "listed", "cleanup.policy", None, REMOVE) == 0
        assert configs(wire, "listed")["cleanup.policy"] == "delete"


def test_records_of_the_future_are_refused(houses: Houses) -> None:
    """They would stay until then, and for the retention."""
    now_ms = int(time.time() * 1000)
    with houses.ask("acme") as wire, houses.ask("beta") as other:
        for each in (wire, other):
            assert create(each, ("ahead", 1)) == [0]
        assert alter(wire, "ahead", "message.timestamp.difference.max.ms", str(INT64_MAX - 1)) == 0
        assert produce(wire, "ahead", now_ms + 2 * MOST_MS) == ErrorCode.INVALID_TIMESTAMP
        assert produce(wire, "ahead", now_ms + MOST_MS // 2) == 0
        assert produce(other, "ahead", now_ms + 2 * MOST_MS) == 0


@pytest.mark.slow
def test_topics_that_are_there_keep_within_a_bound_too(houses: Houses) -> None:
    own = {"cleanup.policy": "compact", "retention.ms": "-1"}
    houses.run(lambda: houses.broker.controller.create_topics([RequestedTopic("beta.kept", 1, 1, {}, own)]))
    instances = houses.broker.instances
    with houses.ask("beta") as wire:
        eventually(lambda: produce(wire, "kept", int(time.time() * 1000) - 2 * MOST_MS) == 0, "the leader")
        assert configs(wire, "kept")["cleanup.policy"] == "compact"
        houses.run(lambda: instances.change("beta", lambda each: each.altered({"retention_ms_max": MOST_MS})))
        eventually(lambda: configs(wire, "kept")["cleanup.policy"] == "compact,delete", "the bound")
        now = configs(wire, "kept")
        assert (now["retention.ms"], now["segment.ms"]) == (str(MOST_MS), str(MOST_MS))
        log = next(each.log for each in houses.broker.replicas if each.key.topic == "beta.kept")
        eventually(lambda: log.log_start_offset == log.log_end_offset, "the old record to be deleted")
        houses.run(lambda: instances.change("beta", lambda each: each.altered({"retention_ms_max": None})))
        eventually(lambda: configs(wire, "kept")["cleanup.policy"] == "compact", "the end of the bound")


@pytest.mark.parametrize("after_ms", [0, HOUR_MS - 1, HOUR_MS, HOUR_MS + 1, INT64_MAX])
@pytest.mark.parametrize("both_ms", [0, HOUR_MS - 1, HOUR_MS, HOUR_MS + 1, INT64_MAX])
@pytest.mark.parametrize("most_ms", [0, 1, HOUR_MS, 2 * HOUR_MS, INT64_MAX])
def test_the_three_limits_of_timestamps_keep_within_the_bound(after_ms: int, both_ms: int, most_ms: int) -> None:
    """One that is equal to its default gives way to the deprecated one."""
    given = TopicConfig(message_timestamp_after_max_ms=after_ms, message_timestamp_difference_max_ms=both_ms)
    bounded = TopicBounds(retention_ms_max=most_ms).applied(given, TopicConfig())
    assert bounded.after_max_ms == min(given.after_max_ms, most_ms, HOUR_MS)
    assert bounded.before_max_ms == given.before_max_ms
