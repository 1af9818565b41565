"""Settings: names, units, bounds, and what is said of a wrong one."""

import pytest

from headrace.config import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    TopicConfig,
    format_value,
    parse_broker,
    parse_value,
    read_properties,
    topic_config,
    validate_topic_overrides,
)
from headrace.errors import InvalidConfig
from headrace.limits import INT64_MAX


def test_defaults_are_kafkas() -> None:
    config = TopicConfig()
    assert config.segment_bytes == 1073741824
    assert config.retention_ms == 604800000
    assert config.max_message_bytes == 1048588
    assert config.index_interval_bytes == 4096


def test_a_broker_level_name_sets_the_default_of_every_topic() -> None:
    config = parse_broker({"log.segment.bytes": "1000", "num.partitions": "7"})
    assert (config.topic_defaults.segment_bytes, config.num_partitions) == (1000, 7)


def test_the_finest_unit_wins_whatever_the_order() -> None:
    for names in (["log.retention.hours", "log.retention.ms"], ["log.retention.ms", "log.retention.hours"]):
        assert parse_broker(dict.fromkeys(names, "5")).topic_defaults.retention_ms == 5


def test_the_flush_settings_of_a_broker_are_those_of_its_topics() -> None:
    given = {
        "log.flush.interval.messages": "7",
        "log.flush.interval.ms": "8",
        "headrace.log.flush.acks": "true",
        "log.flush.scheduler.interval.ms": "9",
        "log.flush.offset.checkpoint.interval.ms": "10",
        "log.flush.start.offset.checkpoint.interval.ms": "11",
    }
    config = parse_broker(given)
    topic = config.topic_defaults
    assert (topic.flush_messages, topic.flush_ms, topic.flush_acks, topic.flush_count) == (7, 8, True, 1)
    assert config.log_flush_scheduler_interval_ms == 9
    assert config.log_flush_offset_checkpoint_interval_ms == 10
    assert config.log_flush_start_offset_checkpoint_interval_ms == 11
    own = topic_config(topic, {"headrace.flush.acks": "false", "flush.messages": "3", "flush.ms": "4"})
    assert (own.flush_count, own.flush_ms, own.stores_what_is_sent) == (3, 4, False)


def test_nothing_is_flushed_by_default() -> None:
    config = TopicConfig()
    assert config.flush_messages == config.flush_count == config.flush_ms == INT64_MAX
    assert config.stores_what_is_sent
    assert not config.flush_acks
    assert parse_broker({}).log_flush_start_offset_checkpoint_interval_ms == 60_000


def test_without_a_flush_interval_the_schedulers_is_taken_as_in_apache_kafka() -> None:
    scheduler = {"log.flush.scheduler.interval.ms": "500"}
    assert parse_broker(scheduler).topic_defaults.flush_ms == 500
    assert parse_broker({**scheduler, "log.flush.interval.ms": "70"}).topic_defaults.flush_ms == 70
    assert parse_broker({"log.flush.interval.ms": "70"}).log_flush_scheduler_interval_ms == 1000


def test_log_dirs_wins_over_log_dir_whatever_the_order() -> None:
    for names in (["log.dir", "log.dirs"], ["log.dirs", "log.dir"]):
        assert parse_broker({name: f"/{name}" for name in names}).log_dirs == ("/log.dirs",)
    assert parse_broker({"log.dir": "/one"}).log_dirs == ("/one",)


def test_minus_one_stays_minus_one_in_every_unit() -> None:
    assert parse_broker({"log.retention.hours": "-1"}).topic_defaults.retention_ms == -1


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"log.segmnt.bytes": "1"}, ["log.segmnt.bytes", "did you mean", "log.segment.bytes"]),
        ({"num.partitions": "many"}, ["num.partitions", "'many'", "int"]),
        ({"num.partitions": "0"}, ["num.partitions=0", "1 to"]),
        ({"log.cleanup.policy": "shred"}, ["'shred'", "delete, compact"]),
        ({"auto.create.topics.enable": "yes"}, ["'yes'", "boolean"]),
        ({"broker.id": "99999999999"}, ["broker.id"]),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(properties: dict[str, str], words: list[str]) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_broker(properties)
    for word in words:
        assert word in caught.value.message


def test_a_topic_takes_what_it_does_not_override_from_the_broker() -> None:
    defaults = parse_broker({"log.segment.bytes": "1000", "log.retention.ms": "5"}).topic_defaults
    config = topic_config(defaults, {"retention.ms": "-1"})
    assert (config.segment_bytes, config.retention_ms) == (1000, -1)


def test_a_topic_setting_without_a_value_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="retention.ms"):
        validate_topic_overrides({"retention.ms": None})


def test_every_default_can_be_written_down_and_read_back() -> None:
    for owner, settings in ((TopicConfig(), TOPIC_SETTINGS), (BrokerConfig(), BROKER_SETTINGS)):
        for name, (attribute, setting) in settings.items():
            value = getattr(owner, attribute)
            assert value == setting.default
            assert parse_value(setting, format_value(value), name) == value
            assert setting.doc.endswith(".") or ":" in setting.doc


def test_a_properties_file_has_comments_and_continued_lines() -> None:
    text = "# a comment\n! another\nlog.dirs=/a,\\\n  /b\nbroker.id : 3\n\n"
    assert read_properties(text) == {"log.dirs": "/a,/b", "broker.id": "3"}


@pytest.mark.parametrize(
    ("version", "magic"),
    [
        ("0.8.0", 0),
        ("0.8.2.2", 0),
        ("0.9.0", 0),
        ("0.10.0-IV0", 1),
        ("0.10.2-IV0", 1),
        ("0.10.2", 1),
        ("0.11.0-IV0", 2),
        ("1.1", 2),
        ("2.8-IV1", 2),
        ("3.0-IV1", 2),
        ("3.9", 2),
    ],
)
def test_each_release_has_its_message_format(version: str, magic: int) -> None:
    assert topic_config(TopicConfig(), {"message.format.version": version}).magic == magic
    assert parse_broker({"log.message.format.version": version}).topic_defaults.magic == magic


@pytest.mark.parametrize("version", ["", "0.8", "0.7.2", "2.9", "0.9.0-IV1", "v2", "0.10.0\n", "٠.٨.٢", "-1"])
def test_what_is_no_release_is_no_message_format(version: str) -> None:
    with pytest.raises(InvalidConfig, match=r"message\.format\.version"):
        topic_config(TopicConfig(), {"message.format.version": version.replace("\n", "x")})


@pytest.mark.parametrize(
    ("overrides", "window"),
    [
        ({}, (INT64_MAX, 3_600_000)),
        ({"difference": "7"}, (7, 7)),
        ({"difference": "7", "before": "5"}, (5, 7)),
        ({"difference": "7", "after": "5"}, (7, 5)),
        ({"before": "3", "after": "5"}, (3, 5)),
    ],
)
def test_the_newer_timestamp_bounds_win_over_the_older_one(overrides: dict[str, str], window: tuple[int, int]) -> None:
    config = topic_config(TopicConfig(), {f"message.timestamp.{k}.max.ms": v for k, v in overrides.items()})
    assert (config.before_max_ms, config.after_max_ms) == window


def test_settings_are_equal_by_their_values() -> None:
    one, same, other = (parse_broker({"num.partitions": text, "log.segment.bytes": "99"}) for text in "334")
    assert one == same and hash(one) == hash(same) and one.topic_defaults == same.topic_defaults
    assert one != other and one.topic_defaults != TopicConfig() and one != "settings"
    assert one != parse_broker({"num.partitions": "3"})


def test_settings_are_shown_without_passwords() -> None:
    shown = repr(parse_broker({"headrace.zookeeper.digest": "user:secret", "num.partitions": "7"}))
    assert shown.startswith("BrokerConfig(")
    assert "topic_defaults=TopicConfig(cleanup_policy=('delete',), " in shown
    assert "num_partitions=7" in shown
    assert "secret" not in shown and "zookeeper_digest" not in shown
