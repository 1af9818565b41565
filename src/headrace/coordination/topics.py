"""May this topic be made, and with which replicas; may it be deleted: decisions without IO.

    name         1 to 249 of [a-zA-Z0-9._-], not `.` or `..`; `a.b` and `a_b` exclude each other, because
                 metrics write both as `a_b`
    counts       -1 takes the broker's default; else from 1; not together with an assignment
    assignment   partitions 0..n-1, the same number of replicas each, none twice, every broker alive
    settings     names and values as in `headrace.config`

Each refusal carries the code and, in substance, the words of Apache Kafka.
Source: Kafka's `Topic`, `ZkAdminManager`, `AdminZkClient.validateTopicCreate`.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.config import validate_topic_overrides
from headrace.coordination.assignment import Assignment, assign_replicas
from headrace.coordination.model import Broker
from headrace.errors import ErrorCode, InvalidRequest, InvalidTopic, KafkaError
from headrace.limits import PARTITIONS_PER_TOPIC_MAX, TOPIC_NAME_CHARS_MAX
from headrace.types import BrokerId

UNSET = -1
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A wish. `num_partitions` and `replication_factor` of -1 ask for the defaults."""

    name: str
    num_partitions: int = UNSET
    replication_factor: int = UNSET
    assignments: Mapping[int, tuple[BrokerId, ...]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


class TopicOutcome(NamedTuple):
    """A wish that was granted; `topic_id` is zero when it was only validated."""

    topic_id: bytes
    num_partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """What a wish that does not say gets."""

    num_partitions: int = 1
    replication_factor: int = 1


@dataclass(frozen=True, slots=True)
class TopicsView:
    """What exists: topic names, those marked for deletion among them, and live brokers. Good until the next await."""

    names: Collection[str]
    deleting: Collection[str]
    brokers: Mapping[BrokerId, Broker]


def validate_name(name: str) -> None:
    """Raises `InvalidTopic` on a name that Kafka does not allow."""
    if not name:
        raise InvalidTopic("Topic name is invalid: the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopic(f"Topic name is invalid: {name!r} is not allowed")
    if len(name) > TOPIC_NAME_CHARS_MAX:
        raise InvalidTopic(
            f"Topic name is invalid: the length of {name[:TOPIC_NAME_CHARS_MAX]!r}... is longer than the max allowed "
            f"length {TOPIC_NAME_CHARS_MAX}"
        )
    if not _LEGAL.issuperset(name):
        raise InvalidTopic(
            f"Topic name is invalid: {name!r} contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )


def colliding_names(name: str, existing: Iterable[str]) -> list[str]:
    """Which of the names would be one with `name` in metrics."""
    if "." not in name and "_" not in name:
        return []
    flat = name.replace(".", "_")
    return [other for other in existing if other.replace(".", "_") == flat]


def plan_topic(wish: NewTopic, view: TopicsView, defaults: TopicDefaults, start_index: int) -> Assignment:
    """The replicas of each partition of a topic that may be made. Raises `KafkaError` with Kafka's code."""
    validate_name(wish.name)
    _check_is_new(wish.name, view)
    if wish.assignments:
        if wish.num_partitions != UNSET or wish.replication_factor != UNSET:
            raise InvalidRequest(
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time."
            )
        assignment = _check_assignment(wish.assignments, view.brokers)
    else:
        partitions = defaults.num_partitions if wish.num_partitions == UNSET else wish.num_partitions
        factor = defaults.replication_factor if wish.replication_factor == UNSET else wish.replication_factor
        _check_partition_count(partitions)
        racks = {broker.id: broker.rack for broker in view.brokers.values()}
        assignment = assign_replicas(racks, partitions, factor, start_index=start_index)
    validate_topic_overrides(wish.configs)
    return assignment


def check_deletable(name: str, view: TopicsView, *, enabled: bool) -> None:
    """Raises `KafkaError` when the topic cannot be deleted."""
    if not enabled:
        raise KafkaError("Topic deletion is disabled.", ErrorCode.TOPIC_DELETION_DISABLED)
    if name not in view.names:
        raise KafkaError("This server does not host this topic-partition.", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _check_is_new(name: str, view: TopicsView) -> None:
    if name in view.deleting:
        raise KafkaError(f"Topic '{name}' is marked for deletion.", ErrorCode.TOPIC_ALREADY_EXISTS)
    if name in view.names:
        raise KafkaError(f"Topic '{name}' already exists.", ErrorCode.TOPIC_ALREADY_EXISTS)
    colliding = colliding_names(name, view.names)
    if colliding:
        raise InvalidTopic(f"Topic '{name}' collides with existing topics: {', '.join(sorted(colliding))}")


def _check_partition_count(count: int) -> None:
    if count > PARTITIONS_PER_TOPIC_MAX:
        raise KafkaError(
            f"Number of partitions {count} is above the limit of {PARTITIONS_PER_TOPIC_MAX}.",
            ErrorCode.INVALID_PARTITIONS,
        )


def _check_assignment(wished: Mapping[int, tuple[BrokerId, ...]], brokers: Mapping[BrokerId, Broker]) -> Assignment:
    _check_partition_count(len(wished))
    if sorted(wished) != list(range(len(wished))):
        raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
    if len({len(replicas) for replicas in wished.values()}) != 1 or not wished[0]:
        raise _bad_assignment("All partitions should have the same number of replicas")
    for partition, replicas in wished.items():
        if len(set(replicas)) != len(replicas):
            raise _bad_assignment(f"Duplicate replica assignment found: partition {partition} -> {list(replicas)}")
        for broker in replicas:
            if broker not in brokers:
                raise _bad_assignment(f"Partition {partition} names broker {broker}, which is not registered")
    return dict(wished)


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(message, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
