"""The settings of brokers and topics: name, type, default, unit, bounds and description of each, declared once.

`TopicConfig` holds what a topic may override (`segment.bytes` …), `BrokerConfig` the rest, with topic defaults under
`topic_defaults`. A broker setting that is the default of a topic setting carries Kafka's broker-level name
(`log.segment.bytes`), also in its older units (`log.retention.hours`). Values arrive as strings and are parsed once; a
bad one raises `InvalidConfig`, which names the setting and the value. `apache_kafka.py` says which settings of Apache
Kafka are ignored, and which may not be. Defaults are Apache Kafka's unless the line says why not. May know `errors` and
`limits` only. Begin with `setting`, then `broker` and `topic`.
"""

from headrace.config.broker import BrokerConfig
from headrace.config.properties import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerProperties,
    parse_broker,
    read_broker,
    topic_config,
    validate_topic_overrides,
)
from headrace.config.properties_file import decode_properties, read_properties
from headrace.config.setting import Setting, format_value, parse_value
from headrace.config.topic import TopicConfig

__all__ = [
    "BROKER_SETTINGS",
    "TOPIC_SETTINGS",
    "BrokerConfig",
    "BrokerProperties",
    "Setting",
    "TopicConfig",
    "decode_properties",
    "format_value",
    "parse_broker",
    "parse_value",
    "read_broker",
    "read_properties",
    "topic_config",
    "validate_topic_overrides",
]
