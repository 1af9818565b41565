"""CreateTopics and DeleteTopics: checks requests and assigns the replicas of new topics. Pure.

    name         1 to 249 of [a-zA-Z0-9._-], not `.` or `..`; `a.b` and `a_b` exclude each other, because
                 metrics write both as `a_b`
    counts       -1 means the broker's default, else at least 1; not together with an assignment
    assignment   partitions 0..n-1, the same number of replicas each, no broker twice, every broker alive
    configs      names and values as in `headrace.config`

Each refusal has the code and, in substance, the message of Apache Kafka.
Source: Kafka's `Topic`, `ZkAdminManager`, `AdminZkClient.validateTopicCreate`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.config import validate_topic_overrides
from headrace.config.topic import RELIABLE_REPLICAS_MIN
from headrace.controller.decisions.assignment import Assignment, assign_replicas
from headrace.errors import ErrorCode, InvalidRequest, InvalidTopic, KafkaError
from headrace.limits import PARTITIONS_PER_TOPIC_MAX, TOPIC_NAME_CHARS_MAX
from headrace.metadata.model import Broker
from headrace.types import BrokerId

UNSET = -1
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@dataclass(frozen=True, slots=True)
class RequestedTopic:
    """A request to create a topic. -1 for `num_partitions` and `replication_factor` means the defaults."""

    name: str
    num_partitions: int = UNSET
    replication_factor: int = UNSET
    assignments: Mapping[int, tuple[BrokerId, ...]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


class TopicOutcome(NamedTuple):
    """A request that was granted. `topic_id` is zero if it was only validated."""

    topic_id: bytes
    num_partitions: int
    replication_factor: int


class CollidingTopic(InvalidTopic):
    """A new topic whose name metrics could not tell from those of `others`."""

    def __init__(self, name: str, others: Iterable[str]) -> None:
        self.others = tuple(sorted(others))
        super().__init__(f"Topic '{name}' collides with existing topics: {', '.join(self.others)}")


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """`num.partitions` and `default.replication.factor`; what the names of topics say."""

    num_partitions: int = 1
    replication_factor: int = 1
    is_reliable: Callable[[str], bool] = lambda _topic: False
    owner_of: Callable[[str], str] = lambda _topic: ""
    """The instance that has a topic of the name; empty for the operator's."""


@dataclass(frozen=True, slots=True)
class ClusterTopics:
    """Topic names, those marked for deletion among them, and live brokers. Valid until the next await."""

    names: Collection[str]
    flat_names: Mapping[str, Collection[str]]
    """For each `flat_name`, the topics that have it."""
    deleting: Collection[str]
    brokers: Mapping[BrokerId, Broker]


def validate_name(name: str) -> None:
    """Raises `InvalidTopic` for a name that Kafka does not allow."""
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


def is_legal(name: str) -> bool:
    """Whether a topic may have this name."""
    try:
        validate_name(name)
    except InvalidTopic:
        return False
    return True


def flat_name(name: str) -> str:
    """A topic's name as metrics write it."""
    return name.replace(".", "_")


def plan_topic(request: RequestedTopic, view: ClusterTopics, defaults: TopicDefaults, start_index: int) -> Assignment:
    """Checks a new topic and assigns its replicas, by partition. Raises `KafkaError` with Kafka's code."""
    validate_name(request.name)
    _check_is_new(request.name, view, defaults.owner_of)
    if request.assignments:
        if request.num_partitions != UNSET or request.replication_factor != UNSET:
            raise InvalidRequest(
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time."
            )
        assignment = _check_assignment(request.assignments, view.brokers)
    else:
        partitions = defaults.num_partitions if request.num_partitions == UNSET else request.num_partitions
        factor = defaults.replication_factor if request.replication_factor == UNSET else request.replication_factor
        _check_partition_count(partitions)
        racks = {broker.id: broker.rack for broker in view.brokers.values()}
        assignment = assign_replicas(racks, partitions, factor, start_index=start_index)
    validate_topic_overrides(request.configs)
    if defaults.is_reliable(request.name) or is_reliable(request.configs):
        check_reliable(request.name, assignment)
    return assignment


def is_reliable(configs: Mapping[str, str | None]) -> bool:
    """Whether these overrides make a topic reliable."""
    return (configs.get("headrace.reliable") or "").strip().lower() == "true"


def check_reliable(name: str, assignment: Mapping[int, Sequence[BrokerId]]) -> None:
    """Raises INVALID_REPLICATION_FACTOR for a reliable topic without the replicas that it needs."""
    for partition, replicas in assignment.items():
        if len(replicas) < RELIABLE_REPLICAS_MIN:
            raise KafkaError(
                f"{name}-{partition} has {len(replicas)} replica, but a reliable topic (headrace.reliable=true) takes "
                f"{RELIABLE_REPLICAS_MIN} at least: give it more replicas, or leave the setting out.",
                ErrorCode.INVALID_REPLICATION_FACTOR,
            )


def check_deletable(name: str, view: ClusterTopics, *, enabled: bool) -> None:
    """Raises `KafkaError` if the topic cannot be deleted."""
    if not enabled:
        raise KafkaError("Topic deletion is disabled.", ErrorCode.TOPIC_DELETION_DISABLED)
    if name not in view.names:
        raise KafkaError("This server does not host this topic-partition.", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _check_is_new(name: str, view: ClusterTopics, owner_of: Callable[[str], str]) -> None:
    """Raises `KafkaError` for a name that is not free.

    Names of different owners do not collide. A tenant must not learn of the operator's `acme_orders` by its own
    `orders`, which is `acme.orders`, nor give way to it; and headrace's metrics have both names as they are.
    """
    if name in view.deleting:
        raise KafkaError(f"Topic '{name}' is marked for deletion.", ErrorCode.TOPIC_ALREADY_EXISTS)
    if name in view.names:
        raise KafkaError(f"Topic '{name}' already exists.", ErrorCode.TOPIC_ALREADY_EXISTS)
    owner = owner_of(name)
    colliding = [each for each in view.flat_names.get(flat_name(name), ()) if owner_of(each) == owner]
    if colliding:
        raise CollidingTopic(name, colliding)


def _check_partition_count(count: int) -> None:
    if count > PARTITIONS_PER_TOPIC_MAX:
        raise KafkaError(
            f"Number of partitions {count} is above the limit of {PARTITIONS_PER_TOPIC_MAX}.",
            ErrorCode.INVALID_PARTITIONS,
        )


def _check_assignment(requested: Mapping[int, tuple[BrokerId, ...]], brokers: Mapping[BrokerId, Broker]) -> Assignment:
    _check_partition_count(len(requested))
    if sorted(requested) != list(range(len(requested))):
        raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
    if len({len(replicas) for replicas in requested.values()}) != 1 or not requested[0]:
        raise _bad_assignment("All partitions should have the same number of replicas")
    for partition, replicas in requested.items():
        if len(set(replicas)) != len(replicas):
            raise _bad_assignment(f"Duplicate replica assignment found: partition {partition} -> {list(replicas)}")
        for broker in replicas:
            if broker not in brokers:
                raise _bad_assignment(f"Partition {partition} names broker {broker}, which is not registered")
    return dict(requested)


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(message, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
