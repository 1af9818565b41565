"""What an instance is: the limits, brokers, listener, addresses and rules that a tenant of the cluster was given.

A limit that is None does not limit. The name is a label of a host name, since clients may reach an instance as
`NAME.DOMAIN`; it cannot change, since names on the disk begin with it (`names`).

    state       ACTIVE      serves its clients
                DELETING    serves nobody; its data goes after `deleted_at_ms`, and until then `alter` can bring it back
                REMOVING    serves nobody; its data is being removed, and nothing brings it back

The node of an instance in the metadata store holds it as JSON (`encode_instance`); versions say which fields there are.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any

from headrace.config.topic_bounds import TopicBounds
from headrace.errors import InvalidConfig
from headrace.instances.address_list import check_networks

VERSION = 1
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", re.ASCII)
"""What an instance may be called: at most 32 characters, so that 216 of a topic's 249 are left for its own name."""

ENTITY_LIMITS = (
    "users_max",
    "acls_max",
    "quotas_max",
    "group_configs_max",
    "transactional_ids_max",
    "member_bytes_max",
    "producers_max",
)
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
INT64_MAX = (1 << 63) - 1
BROKERS_MAX, ADDRESSES_MAX, ADMINS_MAX, PRINCIPALS_MAX = 1000, 10_000, 1000, 100
BURST_SECONDS_MAX = 3600.0
TEXT_CHARS_MAX = 300
"""Characters of an address, or of the name of a user."""


class InstanceState(Enum):
    """Whether an instance serves its clients."""

    ACTIVE = "active"
    DELETING = "deleting"
    REMOVING = "removing"


class WhenFull(Enum):
    """What becomes of a produce when the capacity is used up."""

    REFUSE = "refuse"
    """It is answered with POLICY_VIOLATION."""
    THROTTLE = "throttle"
    """It is answered with an error that clients retry, and the connection is held."""


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance, as the metadata store keeps it."""

    name: str
    id: str
    """A UUID as Kafka writes it: the cluster id that the instance's clients see."""
    created_ms: int = 0
    bytes_in: int | None = None
    """Bytes of Produce requests a second, over all brokers."""
    bytes_out: int | None = None
    """Bytes of records in Fetch responses a second, over all brokers."""
    burst_seconds: float = 1.0
    """What may flow at once, in seconds of the limit."""
    capacity: int | None = None
    """Bytes that its topics may hold."""
    counts_replicas: bool = True
    """Whether each replica counts towards the capacity; otherwise each partition counts once."""
    when_full: WhenFull = WhenFull.REFUSE
    topics_max: int | None = None
    partitions_max: int | None = None
    groups_max: int | None = None
    connections_max: int | None = None
    """Connections to each broker."""
    users_max: int | None = 1000
    """Users with a SCRAM credential. This and the next have defaults, since every broker has them in memory."""
    acls_max: int | None = 10_000
    quotas_max: int | None = 1000
    """Users and client ids with quotas."""
    group_configs_max: int | None = 1000
    """Groups that set configs."""
    transactional_ids_max: int | None = 10_000
    """On each broker that coordinates some."""
    member_bytes_max: int | None = 64 << 20
    """Bytes of what members of groups say of themselves, on each broker that coordinates some."""
    producers_max: int | None = 100_000
    """Producers that each broker remembers, of all partitions; others are forgotten, not refused."""
    retention_ms_min: int | None = None
    retention_ms_max: int | None = None
    """Bounds of a topic's `retention.ms`. With an upper bound no topic keeps its records for ever, also not a compacted
    one (`config.topic_bounds`)."""
    retention_bytes_max: int | None = None
    """The upper bound of a topic's `retention.bytes`, for each partition."""
    brokers: tuple[int, ...] = ()
    """The brokers that hold its partitions; empty for all."""
    protocol: str = "PLAINTEXT"
    """The security protocol of its own listener."""
    port: int | None = 0
    """The port of its own listener on each broker; 0 for any free one; None for no listener of its own: its clients
    come through the shared one, by the server name of TLS or by the name of their user."""
    addresses: tuple[str, ...] = ()
    """`ID=HOST:PORT` for a broker whose listener binds, or is advertised as, something else."""
    allow: tuple[str, ...] = ()
    """Networks from which clients may connect; empty for all."""
    deny: tuple[str, ...] = ()
    """Networks from which they may not, whatever `allow` says."""
    admins: tuple[str, ...] = ()
    """Its users that may do everything in it."""
    principals: tuple[str, ...] = ()
    """Who may enter by a certificate, a token or a ticket, beside `admins`; see `principals`. If there are any, clients
    without one enter only if they name ANONYMOUS."""
    reliable: bool = False
    """Whether its topics are reliable (`headrace.reliable`), whatever they set."""
    state: InstanceState = InstanceState.ACTIVE
    deleted_at_ms: int | None = None
    """When the data goes, if the state is DELETING."""

    def __post_init__(self) -> None:
        """Raises `InvalidConfig` for a value that is not allowed."""
        _check(self)

    @property
    def is_limited(self) -> bool:
        """Whether what flows is limited."""
        return self.bytes_in is not None or self.bytes_out is not None

    @property
    def topic_bounds(self) -> TopicBounds:
        """What holds for its topics, whatever they set."""
        return TopicBounds(self.reliable, self.retention_ms_max, self.retention_bytes_max)

    def altered(self, changes: Mapping[str, object]) -> "Instance":
        """The instance with other values of some fields. Raises `InvalidConfig`."""
        for name in changes:
            if name not in _FIELDS:
                raise InvalidConfig(f"an instance has no {name!r:.100}: it has {', '.join(sorted(_ALTERABLE))}")
            if name not in _ALTERABLE:
                raise InvalidConfig(f"{name} of an instance cannot be altered")
        return replace(self, **{name: _read(name, value) for name, value in changes.items()})


def encode_instance(instance: Instance) -> bytes:
    """The JSON of an instance's node; fields with their default are left out."""
    value: dict[str, object] = {"version": VERSION}
    for each in fields(instance):
        found = getattr(instance, each.name)
        if found != each.default:
            value[each.name] = _written(found)
    return json.dumps(value, separators=(",", ":")).encode()


def decode_instance(data: bytes) -> Instance:
    """Raises `InvalidConfig` for bytes that are not the JSON of an instance. Unknown fields are ignored, so that a
    broker can read what a newer one has written."""
    try:
        value = json.loads(data)
        if not isinstance(value, dict) or not isinstance(value.get("version"), int):
            raise ValueError("no version")
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"this is not an instance: {error}") from None
    return read_fields(value)


def read_fields(value: Mapping[str, object]) -> Instance:
    """The instance with these fields, as `described` gives them. Others are ignored. Raises `InvalidConfig`."""
    try:
        return Instance(**{name: _read(name, each) for name, each in value.items() if name in _FIELDS})
    except TypeError as error:
        raise InvalidConfig(f"this is not an instance: {error}") from None


def described(instance: Instance) -> dict[str, object]:
    """Every field, as JSON has it."""
    return {each.name: _written(getattr(instance, each.name)) for each in fields(instance)}


def _written(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def _read(name: str, value: object) -> Any:
    """A field's value from JSON. Raises `InvalidConfig`."""
    kind = _FIELDS[name]
    try:
        return kind(value)
    except (ValueError, TypeError):
        raise InvalidConfig(f"{name} of an instance cannot be {value!r:.100}") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(value)
    return value


def _optional_number(value: object) -> int | None:
    return None if value is None else _number(value)


def _seconds(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(value)
    return float(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _numbers(value: object) -> tuple[int, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError(value)
    return tuple(_number(each) for each in value)


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError(value)
    return tuple(_text(each) for each in value)


_FIELDS: dict[str, Callable[[object], Any]] = {
    "name": _text,
    "id": _text,
    "created_ms": _number,
    "bytes_in": _optional_number,
    "bytes_out": _optional_number,
    "burst_seconds": _seconds,
    "capacity": _optional_number,
    "counts_replicas": _flag,
    "when_full": WhenFull,
    "topics_max": _optional_number,
    "partitions_max": _optional_number,
    "groups_max": _optional_number,
    "connections_max": _optional_number,
    **dict.fromkeys(ENTITY_LIMITS, _optional_number),
    "retention_ms_min": _optional_number,
    "retention_ms_max": _optional_number,
    "retention_bytes_max": _optional_number,
    "brokers": _numbers,
    "protocol": _text,
    "port": _optional_number,
    "addresses": _texts,
    "allow": _texts,
    "deny": _texts,
    "admins": _texts,
    "principals": _texts,
    "reliable": _flag,
    "state": InstanceState,
    "deleted_at_ms": _optional_number,
}
_ALTERABLE = _FIELDS.keys() - {"name", "id", "created_ms"}
_POSITIVE = (
    "bytes_in", "bytes_out", "capacity", "topics_max", "partitions_max", "groups_max", "connections_max",
    *ENTITY_LIMITS,
)  # fmt: skip
_NOT_NEGATIVE = ("created_ms", "retention_ms_min", "retention_ms_max", "retention_bytes_max", "deleted_at_ms")


def _check(instance: Instance) -> None:
    if not NAME.fullmatch(instance.name):
        raise InvalidConfig(
            f"an instance cannot be called {instance.name!r}: use at most 32 of a-z, 0-9 and '-', not '-' at an end"
        )
    for names, least in ((_POSITIVE, 1), (_NOT_NEGATIVE, 0)):
        for name in names:
            value = getattr(instance, name)
            if value is not None and not least <= value <= INT64_MAX:
                raise InvalidConfig(f"{name} of an instance cannot be {value}: it is at least {least}")
    if not 0 < instance.burst_seconds <= BURST_SECONDS_MAX:
        raise InvalidConfig(f"burst_seconds cannot be {instance.burst_seconds}: it is above 0, at most 3600")
    if instance.protocol not in PROTOCOLS:
        raise InvalidConfig(f"the protocol of an instance cannot be {instance.protocol!r}: {', '.join(PROTOCOLS)}")
    if instance.port is not None and not 0 <= instance.port <= 65535:
        raise InvalidConfig(f"the port of an instance cannot be {instance.port}: it is 0 to 65535")
    if any(each < 0 for each in instance.brokers) or len(set(instance.brokers)) < len(instance.brokers):
        raise InvalidConfig(f"the brokers of an instance cannot be {list(instance.brokers)}: list each id once")
    if instance.protocol == "PLAINTEXT" and instance.port is not None and instance.principals:
        raise InvalidConfig("principals need a listener with TLS or SASL, but the protocol is PLAINTEXT")
    bounds = instance.retention_ms_min, instance.retention_ms_max
    if bounds[0] is not None and bounds[1] is not None and bounds[0] > bounds[1]:
        raise InvalidConfig(f"retention_ms_min {bounds[0]} is above retention_ms_max {bounds[1]}")
    _check_lists(instance)


_LISTS_MAX = (
    ("brokers", BROKERS_MAX), ("addresses", BROKERS_MAX), ("admins", ADMINS_MAX), ("principals", PRINCIPALS_MAX),
)  # fmt: skip


def _check_lists(instance: Instance) -> None:
    for name, most in _LISTS_MAX:
        if len(getattr(instance, name)) > most:
            raise InvalidConfig(f"{name} of an instance has {len(getattr(instance, name))} entries, at most {most}")
    if len(instance.allow) + len(instance.deny) > ADDRESSES_MAX:
        raise InvalidConfig(f"allow and deny of an instance have more than {ADDRESSES_MAX} networks")
    for name in ("addresses", "admins", "principals"):
        for each in getattr(instance, name):
            if not 0 < len(each) <= TEXT_CHARS_MAX or not each.isprintable():
                raise InvalidConfig(f"{each!r:.100} is none of the {name} of an instance: use printable characters")
    for networks in (instance.allow, instance.deny):
        try:
            check_networks(networks)
        except ValueError as error:
            raise InvalidConfig(str(error)) from None
    for each in instance.addresses:
        broker, equals, address = each.partition("=")
        host, colon, port = address.rpartition(":")
        if not (equals and broker.isdecimal() and host and colon and port.isdecimal() and int(port) <= 65535):
            raise InvalidConfig(f"{each!r} is not an address such as 1=kafka.example:9092")
