"""Every setting of the broker and of a topic: Kafka's name, type, default, unit, bounds and meaning, once.

`TopicConfig` holds what a topic may override (`segment.bytes` …), `BrokerConfig` the rest, with the topic
defaults under `topic_defaults`. A broker setting that is the default of a topic setting carries Kafka's
broker-level name (`log.segment.bytes`), also in its older units (`log.retention.hours`). Values arrive as
strings and are parsed once; a name that does not exist or a value out of bounds raises `InvalidConfig`,
which names both. Defaults are Apache Kafka's unless the line says why not.
"""

from headrace.config.broker import BrokerConfig
from headrace.config.properties import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    parse_broker,
    read_properties,
    topic_config,
    validate_topic_overrides,
)
from headrace.config.setting import Setting, format_value, parse_value
from headrace.config.topic import TopicConfig

__all__ = [
    "BROKER_SETTINGS",
    "TOPIC_SETTINGS",
    "BrokerConfig",
    "Setting",
    "TopicConfig",
    "format_value",
    "parse_broker",
    "parse_value",
    "read_properties",
    "topic_config",
    "validate_topic_overrides",
]
