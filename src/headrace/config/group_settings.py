"""The settings of the group coordinator beside those of classic groups. Source: Kafka's GroupCoordinatorConfig."""

from dataclasses import dataclass

from headrace.config.setting import Settings, declare
from headrace.limits import INT32_MAX

APACHE_KAFKA_ASSIGNORS = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
"""Kafka's classes of assignors, which `group.consumer.assignors` may name, and their names."""


# fmt: off
@dataclass(frozen=True, kw_only=True, eq=False, repr=False, init=False)
class GroupSettings(Settings):
    """Settings of a broker that coordinates consumer groups (KIP-848). `BrokerConfig` has its slots."""

    __slots__ = ()

    consumer_group_assignment_interval_ms: int = declare(
        1000, "group.consumer.assignment.interval.ms", "int",
        "The minimum time between two assignments of a consumer group.", unit="ms", low=0, dynamic=True)
    consumer_group_assignment_interval_max_ms: int = declare(
        15_000, "group.consumer.max.assignment.interval.ms", "int",
        "The maximum of consumer.assignment.interval.ms of a group.", unit="ms", low=0)
    consumer_group_assignment_interval_min_ms: int = declare(
        0, "group.consumer.min.assignment.interval.ms", "int",
        "The minimum of consumer.assignment.interval.ms of a group.", unit="ms", low=0)
    consumer_group_assignor_offload_enable: bool = declare(
        True, "group.consumer.assignor.offload.enable", "boolean",
        "Whether the assignments of large consumer groups are computed on a thread.")
    consumer_group_assignors: tuple[str, ...] = declare(
        ("uniform", "range"), "group.consumer.assignors", "list",
        "The assignors that members of consumer groups may choose. The first is for groups whose members choose none.",
        choices=("uniform", "range", *APACHE_KAFKA_ASSIGNORS))
    consumer_group_heartbeat_interval_ms: int = declare(
        5000, "group.consumer.heartbeat.interval.ms", "int",
        "The time between two heartbeats of a member of a consumer group.", unit="ms", low=1)
    consumer_group_heartbeat_interval_max_ms: int = declare(
        15_000, "group.consumer.max.heartbeat.interval.ms", "int",
        "The maximum of consumer.heartbeat.interval.ms of a group.", unit="ms", low=1)
    consumer_group_heartbeat_interval_min_ms: int = declare(
        5000, "group.consumer.min.heartbeat.interval.ms", "int",
        "The minimum of consumer.heartbeat.interval.ms of a group.", unit="ms", low=1)
    consumer_group_max_size: int = declare(
        INT32_MAX, "group.consumer.max.size", "int", "The maximum number of members of a consumer group.", low=1)
    consumer_group_migration_policy: str = declare(
        "bidirectional", "group.consumer.migration.policy", "string",
        "Whether a group with members changes between the classic and the consumer protocol: upgrade and downgrade "
        "name the one direction that is permitted. Empty groups always change.",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"))
    consumer_group_regex_refresh_interval_ms: int = declare(
        600_000, "group.consumer.regex.refresh.interval.ms", "int",
        "How often the topics that match the regular expressions of consumer groups are determined anew.", unit="ms",
        low=10_000)
    consumer_group_session_timeout_ms: int = declare(
        45_000, "group.consumer.session.timeout.ms", "int",
        "The time without heartbeat after which a member of a consumer group is removed.", unit="ms", low=1)
    consumer_group_session_timeout_max_ms: int = declare(
        60_000, "group.consumer.max.session.timeout.ms", "int",
        "The maximum of consumer.session.timeout.ms of a group.", unit="ms", low=1)
    consumer_group_session_timeout_min_ms: int = declare(
        45_000, "group.consumer.min.session.timeout.ms", "int",
        "The minimum of consumer.session.timeout.ms of a group.", unit="ms", low=1)
