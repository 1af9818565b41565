"""The settings of streams groups (KIP-1071). Source: Kafka's GroupCoordinatorConfig and GroupConfig.

Apache Kafka's `group.streams.assignor.offload.enable` has no meaning here: there is one event loop, and a group's
assignment is one turn of it.
"""

from dataclasses import dataclass

from headrace.config.setting import Settings, declare
from headrace.limits import INT32_MAX


# fmt: off
@dataclass(frozen=True, kw_only=True, eq=False, repr=False, init=False)
class StreamsGroupSettings(Settings):
    """Settings of a broker that coordinates streams groups. `BrokerConfig` has its slots."""

    __slots__ = ()

    streams_session_timeout_ms: int = declare(
        45_000, "group.streams.session.timeout.ms", "int",
        "How long a member of a streams group may be silent before it is removed.", unit="ms", low=1)
    streams_session_timeout_min_ms: int = declare(
        45_000, "group.streams.min.session.timeout.ms", "int",
        "The minimum of streams.session.timeout.ms of a group.", unit="ms", low=1)
    streams_session_timeout_max_ms: int = declare(
        60_000, "group.streams.max.session.timeout.ms", "int",
        "The maximum of streams.session.timeout.ms of a group.", unit="ms", low=1)
    streams_heartbeat_interval_ms: int = declare(
        5000, "group.streams.heartbeat.interval.ms", "int",
        "The time between two heartbeats of a member of a streams group, which the broker tells it.", unit="ms", low=1)
    streams_heartbeat_interval_min_ms: int = declare(
        5000, "group.streams.min.heartbeat.interval.ms", "int",
        "The minimum of streams.heartbeat.interval.ms of a group.", unit="ms", low=1)
    streams_heartbeat_interval_max_ms: int = declare(
        15_000, "group.streams.max.heartbeat.interval.ms", "int",
        "The maximum of streams.heartbeat.interval.ms of a group.", unit="ms", low=1)
    streams_group_max_size: int = declare(
        INT32_MAX, "group.streams.max.size", "int", "The maximum number of members of a streams group.", low=1)
    streams_standby_replicas: int = declare(
        0, "group.streams.num.standby.replicas", "int",
        "The number of standby copies of each stateful task of a streams group.", low=0)
    streams_standby_replicas_max: int = declare(
        2, "group.streams.max.standby.replicas", "int", "The maximum of streams.num.standby.replicas of a group.",
        low=0)
    streams_initial_rebalance_delay_ms: int = declare(
        3000, "group.streams.initial.rebalance.delay.ms", "int",
        "How long a new streams group waits for more members before its first assignment.", unit="ms", low=0)
    streams_assignment_interval_ms: int = declare(
        1000, "group.streams.assignment.interval.ms", "int",
        "The least time between two assignments of a streams group.", unit="ms", low=0, dynamic=True)
    streams_assignment_interval_min_ms: int = declare(
        0, "group.streams.min.assignment.interval.ms", "int",
        "The minimum of streams.assignment.interval.ms of a group.", unit="ms", low=0)
    streams_assignment_interval_max_ms: int = declare(
        15_000, "group.streams.max.assignment.interval.ms", "int",
        "The maximum of streams.assignment.interval.ms of a group.", unit="ms", low=0)
