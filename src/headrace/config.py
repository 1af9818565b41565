"""Every setting of the broker and of a topic: Kafka's name, type, default, unit, bounds and meaning, once.

`TopicConfig` holds what a topic may override (`segment.bytes` …), `BrokerConfig` the rest, with the topic
defaults under `topic_defaults`. A broker setting that is the default of a topic setting carries Kafka's
broker-level name (`log.segment.bytes`), also in its older units (`log.retention.hours`). Values arrive as
strings and are parsed once; a name that does not exist or a value out of bounds raises `InvalidConfig`,
which names both. Defaults are Apache Kafka's unless the line says why not.

Source: Kafka's `TopicConfig`, `LogConfig` and `KafkaConfig`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple, TypeVar, cast

from headrace.errors import InvalidConfig
from headrace.limits import INT32_MAX, INT64_MAX

Value = bool | int | float | str | tuple[str, ...]
T = TypeVar("T", bound=Value)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Setting(NamedTuple):
    """One setting as documents, DescribeConfigs and the parser see it."""

    name: str
    kind: str  # Kafka's type names: boolean, int, long, double, string, list
    default: Value
    doc: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    broker_names: tuple[tuple[str, int], ...] = ()  # broker-level names, each with the factor to this unit


def _setting(
    default: T,
    name: str,
    kind: str,
    doc: str,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    broker: tuple[tuple[str, int], ...] = (),
) -> T:
    """A dataclass field that carries its `Setting`; typed as its value for the reader and mypy."""
    setting = Setting(name, kind, default, doc, unit, low, high, choices, broker)
    return field(default=default, metadata={"setting": setting})


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What holds for one topic: its overrides over the broker's defaults."""

    cleanup_policy: tuple[str, ...] = _setting(
        ("delete",), "cleanup.policy", "list", "What happens to old segments. A compacted topic refuses records "
        "without a key and is never deleted by age; its duplicates are kept until the cleaner exists.",
        choices=("delete", "compact"), broker=(("log.cleanup.policy", 1),))
    compression_type: str = _setting(
        "producer", "compression.type", "string", "How batches are stored: as they came, or rebuilt with this codec.",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"), broker=(("compression.type", 1),))
    delete_retention_ms: int = _setting(
        DAY_MS, "delete.retention.ms", "long", "How long a compacted topic keeps tombstones once there is a cleaner; "
        "until then for ever.", unit="ms", low=0,
        broker=(("log.cleaner.delete.retention.ms", 1),))
    file_delete_delay_ms: int = _setting(
        60_000, "file.delete.delay.ms", "long", "How long a file that was deleted stays on disk under another name.",
        unit="ms", low=0, broker=(("log.segment.delete.delay.ms", 1),))
    flush_messages: int = _setting(
        INT64_MAX, "flush.messages", "long", "Records between two forced flushes to disk. The producer of the "
        "record that fills the count is answered after the flush: with 1, every acknowledged record is on the disk.",
        low=1,
        broker=(("log.flush.interval.messages", 1),))
    flush_ms: int = _setting(
        INT64_MAX, "flush.ms", "long", "Time between two forced flushes to disk.", unit="ms", low=0,
        broker=(("log.flush.interval.ms", 1),))
    index_interval_bytes: int = _setting(
        4096, "index.interval.bytes", "int", "Log bytes between two index entries.", unit="bytes", low=0,
        broker=(("log.index.interval.bytes", 1),))
    max_message_bytes: int = _setting(
        1_048_588, "max.message.bytes", "int", "The largest batch that is accepted, its header included.",
        unit="bytes", low=0, broker=(("message.max.bytes", 1),))
    message_timestamp_after_max_ms: int = _setting(
        HOUR_MS, "message.timestamp.after.max.ms", "long", "How far ahead of the broker's clock a record may be.",
        unit="ms", low=0, broker=(("log.message.timestamp.after.max.ms", 1),))
    message_timestamp_before_max_ms: int = _setting(
        INT64_MAX, "message.timestamp.before.max.ms", "long",
        "How far behind the broker's clock a record's time may be.", unit="ms", low=0,
        broker=(("log.message.timestamp.before.max.ms", 1),))
    message_timestamp_type: str = _setting(
        "CreateTime", "message.timestamp.type", "string", "Whose clock stamps records: the producer's or the broker's.",
        choices=("CreateTime", "LogAppendTime"), broker=(("log.message.timestamp.type", 1),))
    min_insync_replicas: int = _setting(
        1, "min.insync.replicas", "int", "The least ISR with which acks=all is accepted.", low=1,
        broker=(("min.insync.replicas", 1),))
    retention_bytes: int = _setting(
        -1, "retention.bytes", "long", "Bytes a partition keeps; -1 for no limit.", unit="bytes", low=-1,
        broker=(("log.retention.bytes", 1),))
    retention_ms: int = _setting(
        7 * DAY_MS, "retention.ms", "long", "How long a record is kept; -1 for ever.", unit="ms", low=-1,
        broker=(("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", HOUR_MS)))
    segment_bytes: int = _setting(
        1 << 30, "segment.bytes", "int", "The size at which a segment is closed and a new one begun.", unit="bytes",
        low=14, broker=(("log.segment.bytes", 1),))
    segment_index_bytes: int = _setting(
        10 << 20, "segment.index.bytes", "int", "The size at which an index is full, which also rolls its segment.",
        unit="bytes", low=12, broker=(("log.index.size.max.bytes", 1),))
    segment_jitter_ms: int = _setting(
        0, "segment.jitter.ms", "long", "The most that is taken off segment.ms at random, so that rolls spread out.",
        unit="ms", low=0, broker=(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)))
    segment_ms: int = _setting(
        7 * DAY_MS, "segment.ms", "long", "The age at which a segment is closed even if it is not full.", unit="ms",
        low=1, broker=(("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)))
    unclean_leader_election_enable: bool = _setting(
        False, "unclean.leader.election.enable", "boolean",
        "Whether a replica outside the ISR may lead when no other is left, losing records.",
        broker=(("unclean.leader.election.enable", 1),))

    @property
    def is_compacted(self) -> bool:
        """Whether records need a key, and age does not delete them."""
        return "compact" in self.cleanup_policy

    @property
    def is_deleted_by_age(self) -> bool:
        """Whether `retention.ms` and `retention.bytes` apply."""
        return "delete" in self.cleanup_policy


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """One broker's settings."""

    topic_defaults: TopicConfig = TopicConfig()

    advertised_listeners: tuple[str, ...] = _setting(
        (), "advertised.listeners", "list", "What clients are told to connect to; the listeners when empty.")
    auto_create_topics_enable: bool = _setting(
        True, "auto.create.topics.enable", "boolean", "Whether asking for a topic that does not exist makes it.")
    broker_id: int = _setting(
        0, "broker.id", "int", "This broker's number. Apache Kafka hands one out where none is given; here it is 0.",
        low=0, high=INT32_MAX)
    broker_rack: str = _setting("", "broker.rack", "string", "The rack that replicas are spread over.")
    connections_max_idle_ms: int = _setting(
        600_000, "connections.max.idle.ms", "long", "An idle connection is closed after this; -1 never.", unit="ms",
        low=-1)
    default_replication_factor: int = _setting(
        1, "default.replication.factor", "int", "Replicas of a topic that does not say.", low=1, high=32767)
    delete_topic_enable: bool = _setting(True, "delete.topic.enable", "boolean", "Whether topics may be deleted.")
    fetch_max_bytes: int = _setting(
        55 << 20, "fetch.max.bytes", "int", "The most that one fetch is answered with, whatever it asks for.",
        unit="bytes", low=1024)
    group_initial_rebalance_delay_ms: int = _setting(
        3000, "group.initial.rebalance.delay.ms", "int", "How long an empty group waits for more members to join.",
        unit="ms", low=0)
    group_max_session_timeout_ms: int = _setting(
        1_800_000, "group.max.session.timeout.ms", "int", "The longest session time-out a member may ask for.",
        unit="ms", low=1)
    group_max_size: int = _setting(INT32_MAX, "group.max.size", "int", "The most members of one group.", low=1)
    group_min_session_timeout_ms: int = _setting(
        6000, "group.min.session.timeout.ms", "int", "The shortest session time-out a member may ask for.", unit="ms",
        low=1)
    listener_security_protocol_map: tuple[str, ...] = _setting(
        ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
        "listener.security.protocol.map", "list",
        "What is spoken on a listener, by its name: each of several listeners needs a name of its own. Only PLAINTEXT "
        "is served.")
    listeners: tuple[str, ...] = _setting(
        ("PLAINTEXT://127.0.0.1:9092",), "listeners", "list",
        "Where the broker listens. Apache Kafka listens on every address; here it is loopback until a listener says "
        "otherwise, because nothing is authenticated.")
    log_dirs: tuple[str, ...] = _setting(
        ("headrace-data",), "log.dirs", "list",
        "Where the log is. Apache Kafka's default is under /tmp, which a reboot empties.")
    log_flush_offset_checkpoint_interval_ms: int = _setting(
        60_000, "log.flush.offset.checkpoint.interval.ms", "int", "How often recovery points are written down.",
        unit="ms", low=0)
    log_flush_scheduler_interval_ms: int = _setting(
        1000, "log.flush.scheduler.interval.ms", "long",
        "How often logs are looked at for a flush that flush.ms makes due. Apache Kafka's default is never.",
        unit="ms", low=1)
    log_retention_check_interval_ms: int = _setting(
        300_000, "log.retention.check.interval.ms", "long", "How often old segments are looked for.", unit="ms",
        low=1)
    max_connections: int = _setting(INT32_MAX, "max.connections", "int", "The most connections at once.", low=0)
    max_connections_per_ip: int = _setting(
        INT32_MAX, "max.connections.per.ip", "int", "The most connections at once from one address.", low=0)
    max_incremental_fetch_session_cache_slots: int = _setting(
        1000, "max.incremental.fetch.session.cache.slots", "int", "The most fetch sessions that are kept.", low=0)
    max_request_partition_size_limit: int = _setting(
        2000, "max.request.partition.size.limit", "int",
        "The most partitions that one DescribeTopicPartitions is answered with.", low=1)
    num_partitions: int = _setting(1, "num.partitions", "int", "Partitions of a topic that does not say.", low=1)
    offset_metadata_max_bytes: int = _setting(
        4096, "offset.metadata.max.bytes", "int", "The longest note that a commit may carry.", unit="bytes", low=0)
    offsets_commit_timeout_ms: int = _setting(
        5000, "offsets.commit.timeout.ms", "int", "How long a commit waits for its replicas.", unit="ms", low=1)
    offsets_retention_check_interval_ms: int = _setting(
        600_000, "offsets.retention.check.interval.ms", "long", "How often expired offsets are looked for.", unit="ms",
        low=1)
    offsets_retention_minutes: int = _setting(
        10080, "offsets.retention.minutes", "int", "How long a group without members keeps its offsets.",
        unit="minutes", low=1)
    offsets_topic_num_partitions: int = _setting(
        50, "offsets.topic.num.partitions", "int", "Partitions of __consumer_offsets.", low=1)
    offsets_topic_replication_factor: int = _setting(
        1, "offsets.topic.replication.factor", "short",
        "Replicas of __consumer_offsets. Apache Kafka's default of 3 cannot be met by one broker.", low=1)
    offsets_topic_segment_bytes: int = _setting(
        100 << 20, "offsets.topic.segment.bytes", "int", "Segment size of __consumer_offsets.", unit="bytes", low=1)
    producer_id_expiration_ms: int = _setting(
        DAY_MS, "producer.id.expiration.ms", "int", "How long an idle idempotent producer is remembered.", unit="ms",
        low=1)
    log_format: str = _setting(
        "text", "headrace.log.format", "string",
        "How the broker's own log is written to stderr: lines for people, or an object of JSON on each line.",
        choices=("text", "json"))
    log_level: str = _setting(
        "info", "headrace.log.level", "string", "The least important events that are logged.",
        choices=("debug", "info", "warning", "error"))
    metrics_listen: str = _setting(
        "", "headrace.metrics.listen", "string",
        "HOST:PORT where Prometheus may ask for /metrics; nowhere when empty. Nothing is authenticated there.")
    records_check: bool = _setting(
        True, "headrace.records.check", "boolean",
        "Whether each record of a produced batch is walked. Without it only the batch's CRC is checked, as if every "
        "producer told the truth.")
    replica_high_watermark_checkpoint_interval_ms: int = _setting(
        5000, "replica.high.watermark.checkpoint.interval.ms", "long", "How often high watermarks are written down.",
        unit="ms", low=1)
    replica_lag_time_max_ms: int = _setting(
        30_000, "replica.lag.time.max.ms", "long", "A follower that is behind for longer leaves the ISR.", unit="ms",
        low=1)
    socket_listen_backlog_size: int = _setting(
        1024, "socket.listen.backlog.size", "int",
        "Connections that the kernel may hold before they are accepted. With Apache Kafka's default of 50 a crowd "
        "that connects at once waits a second for each overflow.", low=1)
    socket_receive_buffer_bytes: int = _setting(
        -1, "socket.receive.buffer.bytes", "int",
        "SO_RCVBUF of a connection; -1 leaves it to the kernel, which grows it as needed (Apache Kafka fixes 100 KiB).",
        unit="bytes", low=-1)
    socket_request_max_bytes: int = _setting(
        100 << 20, "socket.request.max.bytes", "int", "The largest request.", unit="bytes", low=1)
    socket_send_buffer_bytes: int = _setting(
        -1, "socket.send.buffer.bytes", "int",
        "SO_SNDBUF of a connection; -1 leaves it to the kernel, which grows it as needed (Apache Kafka fixes 100 KiB).",
        unit="bytes", low=-1)
    zookeeper_connect: str = _setting(
        "", "zookeeper.connect", "string", "The ensemble that coordinates the cluster; not supported yet. Empty: the "
        "tree inside this process, a cluster of one.")


def _settings_of(kind: type) -> dict[str, tuple[str, Setting]]:
    """Kafka's name -> (attribute, setting), in the order of the class."""
    found = {}
    for each in fields(kind):
        setting = each.metadata.get("setting")
        if setting is not None:
            found[setting.name] = (each.name, setting)
    return found


TOPIC_SETTINGS = _settings_of(TopicConfig)
BROKER_SETTINGS = _settings_of(BrokerConfig)
_TOPIC_BY_BROKER_NAME = {
    broker_name: (attribute, setting, factor)
    for attribute, setting in TOPIC_SETTINGS.values()
    for broker_name, factor in setting.broker_names
}
_ALIASES = {"log.dir": "log.dirs", "node.id": "broker.id"}


def parse_broker(properties: Mapping[str, str]) -> BrokerConfig:
    """A broker's configuration from Kafka-named properties. Raises `InvalidConfig` on an unknown name or bad value."""
    own: dict[str, Value] = {}
    topic: dict[str, tuple[int, Value]] = {}
    for given, text in properties.items():
        name = _ALIASES.get(given, given)
        if name in BROKER_SETTINGS:
            attribute, setting = BROKER_SETTINGS[name]
            own[attribute] = parse_value(setting, text, given)
        elif name in _TOPIC_BY_BROKER_NAME:
            attribute, setting, factor = _TOPIC_BY_BROKER_NAME[name]
            if attribute not in topic or factor < topic[attribute][0]:  # the finest unit wins, as in Kafka
                topic[attribute] = (factor, parse_value(setting, text, given, factor))
        else:
            known = [*BROKER_SETTINGS, *_TOPIC_BY_BROKER_NAME]
            raise InvalidConfig(f"unknown setting {given!r}{_nearest(given, known)}")
    defaults = replace(TopicConfig(), **{k: v for k, (_, v) in topic.items()})  # type: ignore[arg-type]
    return replace(BrokerConfig(topic_defaults=defaults), **own)  # type: ignore[arg-type]


def topic_config(defaults: TopicConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """`defaults` with a topic's own settings on top. Raises `InvalidConfig`."""
    parsed: dict[str, Value] = {}
    for name, text in overrides.items():
        if name not in TOPIC_SETTINGS:
            raise InvalidConfig(f"unknown topic setting {name!r}{_nearest(name, list(TOPIC_SETTINGS))}")
        attribute, setting = TOPIC_SETTINGS[name]
        parsed[attribute] = parse_value(setting, text, name)
    return replace(defaults, **parsed)  # type: ignore[arg-type]


def validate_topic_overrides(overrides: Mapping[str, str | None]) -> None:
    """Raises `InvalidConfig` when a topic could not be made with these settings."""
    for name, text in overrides.items():
        if text is None:
            raise InvalidConfig(f"topic setting {name!r} has no value: leave it out to take the broker's default")
    topic_config(TopicConfig(), cast(Mapping[str, str], overrides))


def parse_value(setting: Setting, text: str, given: str, factor: int = 1) -> Value:
    """The value of `text` in the setting's own unit. Raises `InvalidConfig`, which names `given` and the value."""
    try:
        value = _PARSERS[setting.kind](text.strip())
    except ValueError:
        raise InvalidConfig(f"{given}={text!r} is not a {setting.kind}") from None
    if isinstance(value, tuple):
        for each in value:
            _check_choice(setting, each, given)
    elif isinstance(value, str):
        _check_choice(setting, value, given)
    elif not isinstance(value, bool):
        if factor != 1 and value >= 0:
            value = value * factor
        _check_bounds(setting, value, given, text)
    return value


def format_value(value: Value) -> str:
    """As Kafka's tools print it, and `parse_value` reads it back."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def read_properties(text: str) -> dict[str, str]:
    """A Java properties file's `key=value` lines; `#` and `!` begin a comment, a last backslash continues a line."""
    found: dict[str, str] = {}
    pending = ""
    for raw in text.splitlines():
        line = pending + raw.strip()
        pending = ""
        if line.endswith("\\"):
            pending = line[:-1]
        elif line and line[0] not in "#!":
            cut = min((i for i in (line.find("="), line.find(":")) if i >= 0), default=-1)
            if cut < 0:
                raise InvalidConfig(f"the line {line!r} is not 'key=value'")
            found[line[:cut].strip()] = line[cut + 1 :].strip()
    return found


def _parse_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


_PARSERS: dict[str, Callable[[str], Value]] = {
    "boolean": _parse_boolean,
    "short": int,
    "int": int,
    "long": int,
    "double": float,
    "string": str,
    "list": _parse_list,
}
_WIDEST = {"short": (1 << 15) - 1, "int": INT32_MAX, "long": INT64_MAX}


def _check_choice(setting: Setting, value: str, given: str) -> None:
    if setting.choices and value not in setting.choices:
        raise InvalidConfig(f"{given}={value!r} is not one of {', '.join(setting.choices)}")


def _check_bounds(setting: Setting, value: float, given: str, text: str) -> None:
    widest = _WIDEST.get(setting.kind, float("inf"))
    low = setting.low if setting.low is not None else -widest - 1
    high = setting.high if setting.high is not None else widest
    if not low <= value <= high:
        raise InvalidConfig(f"{given}={text} is out of bounds: it takes {_bound(low)} to {_bound(high)}")


def _bound(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _nearest(name: str, known: list[str]) -> str:
    """', did you mean …?' when a known name is close; difflib is imported only for this."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1, 0.8)
    return f": did you mean {close[0]!r}?" if close else ""
