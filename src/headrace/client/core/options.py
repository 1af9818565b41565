"""The settings of producers, consumers and all clients: Kafka's names, ours, and the values that each accepts.

One table, from which everything about a setting follows: which names are accepted, which values are in range, and the
page in the docs. A setting has up to three names, and each works wherever settings are given by name:

    batch.size      Kafka's, as in properties and in confluent-kafka
    batch_size      the same in Python's style, as in kafka-python and aiokafka
    batch_bytes     ours, the field of `ProducerSettings`; it says the unit

Numbers and booleans may be text, as in properties. An unknown name is refused, and the error suggests the nearest one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from headrace.errors import InvalidConfig
from headrace.limits import INT32_MAX

_TRUTH = {"true": True, "false": False}


class Option(NamedTuple):
    """One setting. `field` is ours; `times.x` is the field `x` of the field `times`."""

    kafka: str
    field: str
    least: float | None = None
    most: float = INT32_MAX
    kind: type = int
    is_optional: bool = False
    doc: str = ""

    @property
    def ours(self) -> str:
        """Our name, which says the unit."""
        return self.field.rpartition(".")[2]

    @property
    def names(self) -> tuple[str, ...]:
        """Every accepted name, without repetition."""
        return tuple(dict.fromkeys((self.kafka, self.kafka.replace(".", "_"), self.ours)))


CLIENT = (
    Option("client.id", "client_id", kind=str, doc="the name of this client in the brokers' logs, quotas and metrics"),
    Option("socket.connection.setup.timeout.ms", "connect_timeout_ms", 1, doc="the longest a connection may take"),
    Option("request.timeout.ms", "request_timeout_ms", 1, doc="the longest that one request waits for its answer"),
    Option("default.api.timeout.ms", "api_timeout_ms", 1, doc="the longest that a call repeats its requests"),
    Option("retry.backoff.ms", "retry_backoff_ms", 1, doc="the wait before the first repetition; it doubles"),
    Option("retry.backoff.max.ms", "retry_backoff_max_ms", 1, doc="the longest wait before a repetition"),
    Option("metadata.max.age.ms", "metadata_max_age_ms", 1, doc="after it, topics and leaders are asked for again"),
)
PRODUCER = (
    Option(
        "acks",
        "acks",
        kind=object,
        doc="which replicas have a record when it counts as delivered: all in sync, 1 (the leader), or 0 (none)",
    ),
    Option("compression.type", "compression", kind=str, doc="none, gzip, snappy, lz4 or zstd"),
    Option(
        "compression.level",
        "compression_level",
        -INT32_MAX,
        is_optional=True,
        doc="the level of the codec; its own default if not set",
    ),
    Option(
        "enable.idempotence",
        "idempotence",
        kind=bool,
        is_optional=True,
        doc="no record twice and none out of order; on where acks is all",
    ),
    Option("linger.ms", "linger_ms", 0, kind=float, doc="how long a batch waits for more records"),
    Option("batch.size", "batch_bytes", 1, doc="a batch of this many bytes is sent at once; Java's default is 16 KiB"),
    Option("max.request.size", "request_bytes", 1, doc="the bytes of one request with several batches"),
    Option(
        "buffer.memory",
        "buffer_memory_bytes",
        1,
        1 << 40,
        doc="the bytes that may wait for delivery; then `send` waits",
    ),
    Option("max.block.ms", "max_block_ms", 0, doc="the longest that `send` waits, for a topic or for the buffer"),
    Option("delivery.timeout.ms", "delivery_timeout_ms", 1, doc="the longest that a record is tried"),
    Option(
        "max.in.flight.requests.per.connection",
        "max_in_flight",
        1,
        doc="requests to one broker without an answer; at most 5 with idempotence",
    ),
    Option(
        "transactional.id",
        "transactional_id",
        kind=str,
        is_optional=True,
        doc="the name under which the producer's transactions survive it",
    ),
    Option("transaction.timeout.ms", "transaction_timeout_ms", 1, doc="after it, the coordinator aborts a transaction"),
    Option(
        "key.serializer",
        "key_serializer",
        kind=object,
        is_optional=True,
        doc="what makes bytes of keys: a function, an object, or a name such as string; without one, keys are bytes",
    ),
    Option(
        "value.serializer",
        "value_serializer",
        kind=object,
        is_optional=True,
        doc="what makes bytes of values: a function, an object, or a name such as json; without one, values are bytes",
    ),
    Option(
        "interceptor.classes",
        "interceptors",
        kind=object,
        is_optional=True,
        doc="objects, or classes, with `on_send`, which may change a record, and `on_acknowledgement`",
    ),
    Option(
        "enable.metrics.push",
        "metrics_push",
        kind=bool,
        doc="push the metrics to brokers that ask for them (KIP-714); Kafka's default is on",
    ),
)
CONSUMER = (
    Option(
        "group.id",
        "group_id",
        kind=str,
        is_optional=True,
        doc="the group that shares the partitions and keeps the offsets",
    ),
    Option(
        "group.instance.id",
        "group_instance_id",
        kind=str,
        is_optional=True,
        doc="the name of a static member, which returns to its partitions",
    ),
    Option(
        "group.protocol",
        "group_protocol",
        kind=str,
        doc="classic: a member assigns; consumer: the broker does (KIP-848), and no rebalance stops the group",
    ),
    Option(
        "group.remote.assignor",
        "group_remote_assignor",
        kind=str,
        is_optional=True,
        doc="with the protocol `consumer`: uniform or range; the broker's first one if not set",
    ),
    Option(
        "partition.assignment.strategy",
        "assignors",
        kind=object,
        doc="range, roundrobin, sticky or cooperative-sticky; several in the order of preference",
    ),
    Option(
        "client.rack",
        "client_rack",
        kind=str,
        is_optional=True,
        doc="where this consumer is: it reads from a replica in the same rack, and `range` prefers such partitions",
    ),
    Option(
        "session.timeout.ms",
        "times.session_timeout_ms",
        1,
        doc="a member without heartbeats for so long is taken for dead",
    ),
    Option("heartbeat.interval.ms", "times.heartbeat_interval_ms", 1, doc="how often a member says that it lives"),
    Option(
        "max.poll.interval.ms",
        "times.max_poll_interval_ms",
        1,
        doc="a member that does not poll for so long leaves the group",
    ),
    Option(
        "auto.offset.reset",
        "auto_offset_reset",
        kind=str,
        doc="where to begin without a committed offset: earliest, latest, or none (an error)",
    ),
    Option("enable.auto.commit", "auto_commit", kind=bool, doc="False: only `commit` commits"),
    Option(
        "auto.commit.interval.ms", "auto_commit_interval_ms", 1, doc="how often `poll` commits what it returned before"
    ),
    Option(
        "isolation.level",
        "isolation_level",
        kind=str,
        doc="read_committed leaves out records of aborted and open transactions",
    ),
    Option("max.poll.records", "max_poll_records", 1, doc="the most records that one `poll` returns"),
    Option("fetch.max.wait.ms", "sizes.max_wait_ms", 0, doc="how long a broker waits for `fetch.min.bytes`"),
    Option("fetch.min.bytes", "sizes.min_bytes", 0, doc="a broker waits for so many bytes"),
    Option("fetch.max.bytes", "sizes.max_bytes", 1, doc="the bytes of one answer"),
    Option(
        "max.partition.fetch.bytes",
        "sizes.partition_max_bytes",
        1,
        doc="the bytes of one partition in an answer; Java's default is 1 MiB",
    ),
    Option(
        "key.deserializer",
        "key_deserializer",
        kind=object,
        is_optional=True,
        doc="what `poll` makes of keys: a function, an object, or a name such as string; without one, keys are bytes",
    ),
    Option(
        "value.deserializer",
        "value_deserializer",
        kind=object,
        is_optional=True,
        doc="what `poll` makes of values: a function, an object, a class, or a name such as json",
    ),
    Option(
        "deserialization.exception.handler",
        "on_deserialization_error",
        kind=object,
        is_optional=True,
        doc="called with the error of a record that cannot be deserialized, which is then left out",
    ),
    Option(
        "interceptor.classes",
        "interceptors",
        kind=object,
        is_optional=True,
        doc="objects, or classes, with `on_consume`, which may change what `poll` returns, and `on_commit`",
    ),
    Option(
        "enable.metrics.push",
        "metrics_push",
        kind=bool,
        doc="push the metrics to brokers that ask for them (KIP-714); Kafka's default is on",
    ),
)
_SHARED_OPTIONS = (
    "group.id",
    "client.rack",
    "max.poll.records",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "fetch.max.bytes",
)
SHARE_CONSUMER = (
    *(option for option in CONSUMER if option.kafka in _SHARED_OPTIONS),
    Option(
        "share.acknowledgement.mode",
        "acknowledgement_mode",
        kind=str,
        doc="implicit: the next poll or commit accepts what the last poll gave; explicit: `acknowledge` each record",
    ),
    Option(
        "share.acquire.mode",
        "acquire_mode",
        kind=str,
        doc="batch_optimized: whole batches, which may be more records than max.poll.records; record_limit: never more",
    ),
)
KINDS: Mapping[str, tuple[Option, ...]] = {
    "client": CLIENT,
    "producer": PRODUCER,
    "consumer": CONSUMER,
    "share_consumer": SHARE_CONSUMER,
}


def numbers(options: Iterable[Option]) -> dict[str, str]:
    """The settings that are whole numbers: Kafka's name and our field."""
    return {option.kafka: option.field for option in options if option.kind is int}


def fields_of(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` by our fields, with text as the values that it stands for. Raises InvalidConfig for other names."""
    by_name = {name: option for option in KINDS[kind] for name in option.names}
    found: dict[str, Any] = {}
    said: dict[str, str] = {}
    for name, value in given.items():
        option = by_name.get(name)
        if option is None:
            raise unknown(name, (kind,))
        if option.field in said:
            raise InvalidConfig(f"{said[option.field]} and {name} are two names of one setting: give one of them")
        said[option.field] = name
        found[option.field] = _value(option, name, value)
    return found


def names_of(kind: str) -> frozenset[str]:
    """Every name of the settings of a kind."""
    return frozenset(name for option in KINDS[kind] for name in option.names)


def unknown(name: str, kinds: Iterable[str], others: Iterable[str] = ()) -> InvalidConfig:
    """The error about a name that no setting of these kinds has."""
    from headrace.client.core.other_names import advice  # for mistakes alone: an import of the client is to be quick

    wanted = tuple(kinds)
    for kind in KINDS:
        if kind not in wanted and name in names_of(kind):
            return InvalidConfig(f"{name} is a setting of a {kind}, not of a {wanted[-1]}")
    if instead := advice(name):
        return InvalidConfig(f"{name} is not a setting of this client: {instead}")
    known = {known: known for kind in wanted for known in names_of(kind)} | {each: each for each in others}
    styled = {other: other for other in known if ("." in other) == ("." in name)} or known
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), styled, n=1, cutoff=0.5)
    return InvalidConfig(f"{name} is no setting of a {wanted[-1]}{f'; did you mean {near[0]}?' if near else ''}")


def check(options: Iterable[Option], settings: object) -> None:
    """Checks the type and range of each field. Raises InvalidConfig, which names the setting and what it accepts."""
    for option in options:
        value = attrgetter(option.field)(settings)
        if value is None and option.is_optional:
            continue
        _check(option, option.ours, value)


def _value(option: Option, name: str, value: Any) -> Any:
    """The value that text stands for; another value as it is."""
    if not isinstance(value, str) or option.kind in (str, object):
        return value
    text = value.strip()
    if option.kind is bool:
        return _TRUTH.get(text.lower(), value)
    try:
        return option.kind(text)
    except ValueError:
        raise InvalidConfig(f"{name}={value!r}: expected {_expected(option)}") from None


def _check(option: Option, name: str, value: Any) -> None:
    if option.kind is object:
        return
    is_fitting = isinstance(value, option.kind) or (option.kind is float and isinstance(value, int))
    if isinstance(value, bool) and option.kind is not bool:
        is_fitting = False
    if is_fitting and option.least is not None:
        is_fitting = option.least <= value <= option.most
    if not is_fitting:
        raise InvalidConfig(f"{name}={value!r}: expected {_expected(option)}")


def _expected(option: Option) -> str:
    if option.least is None:
        return {str: "text", bool: "True or False"}[option.kind]
    noun = "a whole number" if option.kind is int else "a number"
    if option.least <= -INT32_MAX:
        return noun
    return f"{noun} of at least {option.least:g}, and at most {option.most:,}"
