"""The settings of one streams group: the broker's, unless the group has its own in its GROUP config."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headrace.config import BrokerConfig
    from headrace.coordinators.groups.registry import GroupNumber

STANDBY_REPLICAS = "num.standby.replicas"
"""The name of the number of standby replicas in the group's record."""


class StreamsSettings(NamedTuple):
    """What applies to one group now."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = (1 << 31) - 1
    standby_replicas: int = 0
    initial_rebalance_delay_ms: int = 3_000
    assignment_interval_ms: int = 1_000

    @classmethod
    def of(cls, group_id: str, number: GroupNumber, config: BrokerConfig) -> StreamsSettings:
        """The settings of a group."""
        return cls(
            number(group_id, "streams.session.timeout.ms"),
            number(group_id, "streams.heartbeat.interval.ms"),
            config.streams_group_max_size,
            number(group_id, "streams.num.standby.replicas"),
            number(group_id, "streams.initial.rebalance.delay.ms"),
            number(group_id, "streams.assignment.interval.ms"),
        )

    @property
    def assignment_configs(self) -> dict[str, str]:
        """The settings on which an assignment depends: the group's record has those of the last one."""
        return {STANDBY_REPLICAS: str(self.standby_replicas)}
