"""Which broker settings are dynamic, what they come to, and which changes are refused."""

import pytest

from headrace.config import BROKER_SETTINGS, BrokerConfig, TopicConfig
from headrace.config.dynamic import DYNAMIC, WITHOUT_EFFECT, check_change, check_names, effective, usable, value_of
from headrace.errors import InvalidConfig, InvalidRequest

STATIC = BrokerConfig(topic_defaults=TopicConfig(retention_ms=5000), log_cleaner_threads=4)

DYNAMIC_IN_APACHE_KAFKA = """
follower.replication.throttled.rate leader.replication.throttled.rate replica.alter.log.dirs.io.max.bytes.per.second
compression.type log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms
log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second
log.cleaner.max.compaction.lag.ms log.cleaner.min.cleanable.ratio log.cleaner.min.compaction.lag.ms log.cleaner.threads
log.cleanup.policy log.flush.interval.messages log.flush.interval.ms log.index.interval.bytes log.index.size.max.bytes
log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms log.message.timestamp.type log.preallocate
log.retention.bytes log.retention.ms log.roll.jitter.ms log.roll.ms log.segment.bytes log.segment.delete.delay.ms
group.consumer.assignment.interval.ms group.share.assignment.interval.ms group.streams.assignment.interval.ms
max.connections max.connections.per.ip max.connections.per.ip.overrides message.max.bytes
min.insync.replicas num.recovery.threads.per.data.dir
num.replica.fetchers producer.id.expiration.ms transaction.partition.verification.enable
unclean.leader.election.enable
""".split()  # noqa: SIM905 - a list of many names
"""Of Apache Kafka 4.3's DynamicBrokerConfig, those that have a meaning here."""


@pytest.mark.parametrize("name", DYNAMIC_IN_APACHE_KAFKA)
def test_a_setting_that_apache_kafka_changes_while_it_runs_is_dynamic(name: str) -> None:
    assert name in DYNAMIC


def test_no_setting_is_both_dynamic_and_without_effect() -> None:
    assert not WITHOUT_EFFECT & (DYNAMIC.keys() | BROKER_SETTINGS.keys())


def test_the_last_layer_takes_precedence_and_the_start_is_below_all() -> None:
    for_all, own = {"log.retention.ms": "7000", "max.connections": "9"}, {"log.retention.ms": "8000"}
    assert effective(STATIC).topic_defaults.retention_ms == 5000
    assert effective(STATIC, for_all).topic_defaults.retention_ms == 7000
    found = effective(STATIC, for_all, own)
    assert (found.topic_defaults.retention_ms, found.max_connections, found.log_cleaner_threads) == (8000, 9, 4)
    assert value_of(found, "log.retention.ms") == "8000"


def test_fixed_and_unknown_settings_are_refused_by_name() -> None:
    check_names(["log.retention.ms", "num.io.threads"])
    with pytest.raises(InvalidRequest, match=r"\[broker.rack\].*when the broker starts"):
        check_names(["log.retention.ms", "broker.rack"])
    with pytest.raises(InvalidRequest, match=r"no setting 'log.retentoin.ms'.*did you mean 'log.retention.ms'"):
        check_names(["log.retentoin.ms"])
    with pytest.raises(InvalidRequest, match=r"\[log.retention.hours\]"):  # as in Apache Kafka: the first name alone
        check_names(["log.retention.hours"])


def test_a_value_that_cannot_be_applied_does_not_hold_up_the_others() -> None:
    known, refused = usable(
        {"log.retention.ms": "soon", "max.connections": "7", "broker.rack": "x", "num.io.threads": "4"}
    )
    assert known == {"max.connections": "7", "num.io.threads": "4"}
    assert len(refused) == 2


@pytest.mark.parametrize(
    ("threads", "reason"),
    [("1", "at least half the current value 4"), ("9", "greater than double"), ("0", "at least 1")],
)
def test_numbers_of_threads_change_by_half_or_double_at_most(threads: str, reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        check_change(STATIC, effective(STATIC, {"log.cleaner.threads": threads}))
    check_change(STATIC, effective(STATIC, {"log.cleaner.threads": "8"}))


def test_values_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="min.compaction.lag.ms"):
        effective(STATIC, {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"})
