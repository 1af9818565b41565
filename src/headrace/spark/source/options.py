"""The options of a read, batch or stream: text from the user in, one checked value out.

Every option of Spark's own Kafka connector is accepted under its name (names are not case-sensitive):

    kafka.bootstrap.servers                 host:port, comma-separated; needed
    assign | subscribe | subscribePattern   exactly one: {"t":[0,1]} | t,u | a regular expression for whole names
    startingTimestamp        > startingOffsetsByTimestamp > startingOffsets     where to begin
                                            earliest in a batch; in a stream latest, and only when it is new
    endingTimestamp          > endingOffsetsByTimestamp   > endingOffsets       batch: where to stop, exclusive (latest)
    startingOffsetsByTimestampStrategy      error | latest: when no record is at or after a starting time
    maxOffsetsPerTrigger, minOffsetsPerTrigger, maxTriggerDelay                 stream: see `admission`
    kafka.group.id                          stream: the group whose offsets show the progress
    fetchOffset.numRetries, .retryIntervalMs  stream: how often and soon to ask again for ends that lie behind (3, 1000)
    failOnDataLoss, minPartitions, maxRecordsPerPartition, includeHeaders, kafka.*
    kafkaConsumer.pollTimeoutMs, groupIdPrefix   checked, and without effect: there is no Java consumer

and five of our own:

    columns     the columns of Spark's Kafka schema to read. Spark does not tell a Python source which columns a query
                uses. Columns not listed here are not built in Arrow and not sent to the JVM
    path        segment files instead of a broker (see `files`); then there is no kafka.bootstrap.servers, and
                what to read is everything below unless assign, subscribe or subscribePattern says less
    segments    closed | all: with `path`, without or with each partition's newest segment
    lake        read one topic with its lake table, as that table's rows (see `lake_stream`): a path or a URI,
                or `true` for the one of `headrace lake add`
    lakeJob     with `lake`: the name of the table's progress (load)

In the JSON forms {"t":{"0":23,"1":-2}} -2 is earliest and -1 latest, as in Kafka's ListOffsets. In a batch the
options that only streams have do nothing, as with the connector.

kafka.security.protocol, kafka.ssl.* and kafka.sasl.* are those of Kafka's clients (`headrace.client.security`). A value
such as ${file:/run/secrets/kafka.properties:jaas} or ${env:KAFKA_JAAS} is read by the process that connects, so that no
plan has the secret; each worker needs the file or the variable.

Two differences from the connector: an unknown option is an error, because it is most often a misspelling; and a
security setting that the client does not support is refused, not ignored.
Source: Spark's KafkaSourceProvider and JsonUtils.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from headrace.client.security.secrets import SecretOptions
from headrace.spark.option_values import (
    OptionError,
    boolean,
    bootstrap_servers,
    by_partition,
    duration_ms,
    json_object,
    one_of,
    positive,
    sort_out,
    timestamp_ms,
    whole,
)
from headrace.spark.source.admission import AdmissionLimits
from headrace.types import TopicPartition

__all__ = [
    "COLUMNS",
    "EARLIEST_OFFSET",
    "KNOWN_OPTIONS",
    "LAKE_OF_TOPIC",
    "LATEST_OFFSET",
    "Assign",
    "AtOffsets",
    "AtTimestamp",
    "AtTimestamps",
    "Boundary",
    "Earliest",
    "Latest",
    "OptionError",
    "Selection",
    "SourceOptions",
    "Subscribe",
    "SubscribePattern",
    "parse_columns",
    "parse_options",
    "selects",
]

EARLIEST_OFFSET: Final = -2
LATEST_OFFSET: Final = -1

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")

LAKE_OF_TOPIC: Final = "true"
"""The value of `lake` for the table that the topic's definition names."""
_SELECTIONS: Final = ("assign", "subscribe", "subscribePattern")
_ENDINGS: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
KNOWN_OPTIONS: Final = (
    *_SELECTIONS,
    *("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets", "startingOffsetsByTimestampStrategy"),
    *_ENDINGS,
    *("failOnDataLoss", "minPartitions", "maxRecordsPerPartition", "includeHeaders", "columns", "path", "segments"),
    *("lake", "lakeJob"),
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
    *("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs", "groupIdPrefix"),
)

_REFUSED_KAFKA: Final = MappingProxyType(
    {
        "auto.offset.reset": "say where to start with startingOffsets",
        "key.deserializer": "keys arrive as binary; convert them with DataFrame functions",
        "value.deserializer": "values arrive as binary; convert them with DataFrame functions",
        "enable.auto.commit": "the offsets of a read belong to the query, not to a group; remove it",
        "interceptor.classes": "interceptors are Java classes; remove it",
    }
)


@dataclass(frozen=True, slots=True)
class Assign:
    """These partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of the topics whose whole name matches."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Earliest:
    """The log start offset of every partition."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end of every partition at the time of planning."""


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for every partition; -2 is earliest, -1 latest."""

    offsets: Mapping[TopicPartition, int]
    option: str


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record at or after one time (ms since 1970) in every partition."""

    timestamp_ms: int
    option: str


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """The first record at or after a time (ms since 1970) of each partition's own."""

    timestamps_ms: Mapping[TopicPartition, int]
    option: str


Selection = Assign | Subscribe | SubscribePattern
Boundary = Earliest | Latest | AtOffsets | AtTimestamp | AtTimestamps


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The checked options of a read. `client_settings` are the kafka.* options without their prefix."""

    bootstrap_servers: str
    selection: Selection
    starting: Boundary
    ending: Boundary
    start_at_latest_when_no_time_matches: bool
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    columns: tuple[str, ...]
    limits: AdmissionLimits
    behind_retries: int
    behind_retry_ms: int
    path: str | None
    with_newest_segment: bool
    client_settings: Mapping[str, str]
    lake: str | None = None
    """The lake table to read with the topic, or LAKE_OF_TOPIC."""
    lake_job: str = "load"
    lake_columns: tuple[str, ...] | None = None
    """With `lake`: the columns of the table that are wanted, as given; None for all."""

    @property
    def include_headers(self) -> bool:
        return "headers" in self.columns

    @property
    def group_id(self) -> str | None:
        """The group that a stream's progress is committed to."""
        return self.client_settings.get("group.id") or None


def selects(selection: Selection, partition: TopicPartition) -> bool:
    """Whether the partition is one of those that are read."""
    match selection:
        case Assign(partitions):
            return partition in partitions
        case Subscribe(topics):
            return partition.topic in topics
        case SubscribePattern(pattern):
            return re.fullmatch(pattern, partition.topic) is not None


def parse_options(given: Mapping[str, str], *, streaming: bool = False) -> SourceOptions:
    """Check the options. The OptionError names the first error."""
    options, kafka = sort_out(given, KNOWN_OPTIONS, _REFUSED_KAFKA)
    path = _path(options, kafka, streaming)
    lake = _lake(options)
    columns = {key: value for key, value in options.items() if key != "columns"} if lake else options
    whole(options, "kafkaConsumer.pollTimeoutMs", 0)
    return SourceOptions(
        bootstrap_servers="" if path else bootstrap_servers(kafka),
        selection=_selection(options, default=SubscribePattern(".*") if path else None),
        starting=_boundary(options, "starting", Latest()) if streaming else _starting(options),
        ending=_no_ending(options) if streaming else _ending(options),
        start_at_latest_when_no_time_matches=(
            one_of(options, "startingOffsetsByTimestampStrategy", ("error", "latest"), "error") == "latest"
        ),
        fail_on_data_loss=boolean(options, "failOnDataLoss", default=True),
        min_partitions=positive(options, "minPartitions"),
        max_records_per_partition=positive(options, "maxRecordsPerPartition"),
        columns=_columns(columns),
        limits=_limits(options),
        behind_retries=whole(options, "fetchOffset.numRetries", 3),
        behind_retry_ms=whole(options, "fetchOffset.retryIntervalMs", 1_000),
        path=path,
        with_newest_segment=one_of(options, "segments", ("closed", "all"), "closed") == "all",
        client_settings=SecretOptions({key: value for key, value in kafka.items() if key != "bootstrap.servers"}),
        lake=lake,
        lake_job=options.get("lakeJob", "load").strip(),
        lake_columns=_lake_columns(options) if lake else None,
    )


def parse_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of a read; also checks the options that batch and stream both need."""
    options, kafka = sort_out(given, KNOWN_OPTIONS, _REFUSED_KAFKA)
    has_path = bool(options.get("path", "").strip())
    if not has_path:
        bootstrap_servers(kafka)
    _selection(options, default=SubscribePattern(".*") if has_path else None)
    return _columns(options)


def _lake(options: Mapping[str, str]) -> str | None:
    lake = options.get("lake", "").strip()
    if not lake:
        if "lakeJob" in options:
            raise OptionError("lakeJob", options["lakeJob"], "is for reading a lake table; give lake, or remove it")
        return None
    topics = [name for name in options.get("subscribe", "").split(",") if name.strip()]
    if len(topics) != 1:
        raise OptionError("lake", lake, "reads one topic with its table; name it with subscribe")
    return LAKE_OF_TOPIC if lake.lower() == LAKE_OF_TOPIC else lake


def _lake_columns(options: Mapping[str, str]) -> tuple[str, ...] | None:
    if "columns" not in options:
        return None
    return tuple(name.strip() for name in options["columns"].split(",") if name.strip())


def _path(options: Mapping[str, str], kafka: Mapping[str, str], streaming: bool) -> str | None:
    path = options.get("path", "").strip()
    if not path:
        if "segments" in options:
            raise OptionError("segments", options["segments"], "is for reading files; give their path, or remove it")
        return None
    if streaming:
        raise OptionError("path", path, "files are read in a batch; give kafka.bootstrap.servers for a stream")
    if "bootstrap.servers" in kafka:
        raise OptionError("path", path, "reads files without a broker; remove it, or kafka.bootstrap.servers")
    if kafka.get("isolation.level", "read_uncommitted").strip().lower() != "read_uncommitted":
        raise OptionError("kafka.isolation.level", kafka["isolation.level"], "files are read_uncommitted; remove it")
    return path


def _limits(options: Mapping[str, str]) -> AdmissionLimits:
    limits = AdmissionLimits(
        max_offsets=positive(options, "maxOffsetsPerTrigger"),
        min_offsets=positive(options, "minOffsetsPerTrigger"),
        max_delay_ms=duration_ms(options, "maxTriggerDelay", "15m"),
    )
    if limits.max_offsets and limits.min_offsets and limits.min_offsets > limits.max_offsets:
        raise OptionError(
            "minOffsetsPerTrigger",
            options["minOffsetsPerTrigger"],
            f"must not be above maxOffsetsPerTrigger, which is {limits.max_offsets}",
        )
    return limits


def _selection(options: Mapping[str, str], default: Selection | None) -> Selection:
    given = [name for name in _SELECTIONS if name in options]
    if default is not None and not given:
        return default
    if len(given) != 1:
        problem = f"{len(given)} of them are set" if given else "none is set"
        raise OptionError(" | ".join(_SELECTIONS), None, f"exactly one says what to read; {problem}")
    name, value = given[0], options[given[0]]
    match name:
        case "assign":
            return Assign(_assigned(value))
        case "subscribe":
            topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
            if not topics:
                raise OptionError(name, value, "name at least one topic, comma-separated")
            return Subscribe(topics)
        case _:
            return SubscribePattern(_pattern(name, value.strip()))


def _assigned(value: str) -> tuple[TopicPartition, ...]:
    form = 'write JSON like {"topic":[0,1]}'
    parsed = json_object("assign", value, form)
    chosen: list[TopicPartition] = []
    for topic, partitions in parsed.items():
        if not isinstance(partitions, list) or not all(_is_index(index) for index in partitions):
            raise OptionError("assign", value, f"{form}: {topic!r} has no list of partition numbers")
        chosen += [TopicPartition(topic, index) for index in partitions]
    if not chosen:
        raise OptionError("assign", value, f"name at least one partition; {form}")
    return tuple(dict.fromkeys(chosen))


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _pattern(name: str, value: str) -> str:
    if not value:
        raise OptionError(name, value, "give a regular expression that matches whole topic names")
    try:
        re.compile(value)
    except re.error as wrong:
        raise OptionError(name, value, f"is not a regular expression ({wrong})") from wrong
    return value


def _starting(options: Mapping[str, str]) -> Boundary:
    boundary = _boundary(options, "starting", Earliest())
    if isinstance(boundary, Latest):
        name = "startingOffsets"
        raise OptionError(name, options[name], "a batch read cannot start at latest; use earliest, JSON or a time")
    if isinstance(boundary, AtOffsets) and LATEST_OFFSET in boundary.offsets.values():
        raise OptionError(
            boundary.option, options[boundary.option], "a batch read cannot start at -1 (latest); use -2 or an offset"
        )
    return boundary


def _ending(options: Mapping[str, str]) -> Boundary:
    boundary = _boundary(options, "ending", Latest())
    if isinstance(boundary, Earliest):
        name = "endingOffsets"
        raise OptionError(name, options[name], "a batch read cannot end at earliest; use latest, JSON or a time")
    if isinstance(boundary, AtOffsets) and EARLIEST_OFFSET in boundary.offsets.values():
        raise OptionError(
            boundary.option, options[boundary.option], "a batch read cannot end at -2 (earliest); use -1 or an offset"
        )
    return boundary


def _no_ending(options: Mapping[str, str]) -> Boundary:
    for name in _ENDINGS:
        if name in options:
            raise OptionError(name, options[name], "a stream has no end; remove it, or read in a batch")
    return Latest()


def _boundary(options: Mapping[str, str], side: str, default: Boundary) -> Boundary:
    """One side of the range: a time takes precedence over times by partition, which take precedence over offsets."""
    name = f"{side}Timestamp"
    if name in options:
        return AtTimestamp(timestamp_ms(name, options[name]), name)
    name = f"{side}OffsetsByTimestamp"
    if name in options:
        return AtTimestamps(by_partition(name, options[name], lowest=0), name)
    name = f"{side}Offsets"
    text = options.get(name, "").strip()
    match text.lower():
        case "":
            return default
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
        case _:
            return AtOffsets(by_partition(name, text, lowest=EARLIEST_OFFSET), name)


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    has_headers = boolean(options, "includeHeaders", default=False)
    if "columns" not in options:
        return (*COLUMNS, "headers") if has_headers else COLUMNS
    known = {column.lower(): column for column in (*COLUMNS, "headers")}
    wanted = [column.strip().lower() for column in options["columns"].split(",") if column.strip()]
    unknown = [column for column in wanted if column not in known]
    if unknown or not wanted or len(set(wanted)) < len(wanted):
        raise OptionError("columns", options["columns"], f"name some of {','.join(known.values())}, each once")
    if has_headers and "headers" not in wanted:
        wanted.append("headers")
    return tuple(known[column] for column in wanted)
