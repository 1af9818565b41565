"""The configs that a group may set over the broker's settings. Source: Kafka's `GroupConfig`.

Each kind of group declares its own in one tuple. A config's default is the value of the broker's setting of that name,
and its bounds are those of two other broker settings, if it has any.
"""

from typing import NamedTuple

from headrace.config.durations import duration_ms
from headrace.config.setting import Setting

BY_DURATION = "by_duration:"


def check_offset_reset(text: str) -> None:
    """Raises ValueError unless it is a share.auto.offset.reset."""
    if text.startswith(BY_DURATION):
        duration_ms(text.removeprefix(BY_DURATION))
    elif text not in ("earliest", "latest"):
        raise ValueError("it must be latest, earliest or by_duration: with a duration such as PT6H")


class GroupSetting(NamedTuple):
    """One config of groups."""

    setting: Setting
    broker_name: str = ""
    """The broker's setting that is the default; without one, `setting.default` is."""
    least: str = ""
    """The broker's setting that is the lower bound."""
    most: str = ""
    """The broker's setting that is the upper bound."""
    more_than: str = ""
    """The config of the same group that this one must exceed: a session timeout its heartbeat interval."""


CONSUMER: tuple[GroupSetting, ...] = (
    GroupSetting(
        Setting(
            "consumer.assignment.interval.ms",
            "int",
            1000,
            "The minimum time between two assignments of a consumer group.",
            "ms",
            0,
        ),
        "group.consumer.assignment.interval.ms",
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
    GroupSetting(
        Setting(
            "consumer.assignor.offload.enable",
            "boolean",
            True,
            "Whether large assignments of a consumer group are computed on a thread.",
        ),
        "group.consumer.assignor.offload.enable",
    ),
    GroupSetting(
        Setting(
            "consumer.heartbeat.interval.ms",
            "int",
            5000,
            "The time between two heartbeats of a member of a consumer group.",
            "ms",
            1,
        ),
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    GroupSetting(
        Setting(
            "consumer.session.timeout.ms",
            "int",
            45_000,
            "The time without heartbeat after which a member of a consumer group is removed.",
            "ms",
            1,
        ),
        "group.consumer.session.timeout.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
        "consumer.heartbeat.interval.ms",
    ),
)
SHARE: tuple[GroupSetting, ...] = (
    GroupSetting(
        Setting(
            "share.assignment.interval.ms",
            "int",
            1000,
            "The minimum time between two assignments of a share group.",
            "ms",
            0,
        ),
        "group.share.assignment.interval.ms",
        "group.share.min.assignment.interval.ms",
        "group.share.max.assignment.interval.ms",
    ),
    GroupSetting(
        Setting(
            "share.heartbeat.interval.ms",
            "int",
            5000,
            "The time between two heartbeats of a member of a share group.",
            "ms",
            1,
        ),
        "group.share.heartbeat.interval.ms",
        "group.share.min.heartbeat.interval.ms",
        "group.share.max.heartbeat.interval.ms",
    ),
    GroupSetting(
        Setting(
            "share.session.timeout.ms",
            "int",
            45_000,
            "The time without heartbeat after which a member of a share group is removed.",
            "ms",
            1,
        ),
        "group.share.session.timeout.ms",
        "group.share.min.session.timeout.ms",
        "group.share.max.session.timeout.ms",
        more_than="share.heartbeat.interval.ms",
    ),
    GroupSetting(
        Setting(
            "share.record.lock.duration.ms",
            "int",
            30_000,
            "How long a member holds an acquired record before it is delivered again.",
            "ms",
            low=1000,
        ),
        "group.share.record.lock.duration.ms",
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    GroupSetting(
        Setting(
            "share.delivery.count.limit", "int", 5, "The maximum number of times that a record is delivered.", low=2
        ),
        "group.share.delivery.count.limit",
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
    ),
    GroupSetting(
        Setting(
            "share.partition.max.record.locks",
            "int",
            2000,
            "The maximum number of records of one partition that are in flight.",
            low=100,
        ),
        "group.share.partition.max.record.locks",
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
    GroupSetting(
        Setting(
            "share.auto.offset.reset",
            "string",
            "latest",
            "Where the group begins in a partition: latest, earliest, or by_duration:P1D for the records of the last "
            "day.",
            check=check_offset_reset,
        )
    ),
    GroupSetting(
        Setting(
            "share.isolation.level",
            "string",
            "read_uncommitted",
            "Whether the group gets records of transactions only when they are committed.",
            choices=("read_committed", "read_uncommitted"),
        )
    ),
    GroupSetting(
        Setting("share.renew.acknowledge.enable", "boolean", True, "Whether members may renew the locks of records.")
    ),
)
STREAMS: tuple[GroupSetting, ...] = (
    GroupSetting(
        Setting(
            "streams.session.timeout.ms",
            "int",
            45_000,
            "How long a member of the streams group may be silent before it is removed.",
            unit="ms",
            low=1,
        ),
        "group.streams.session.timeout.ms",
        "group.streams.min.session.timeout.ms",
        "group.streams.max.session.timeout.ms",
        more_than="streams.heartbeat.interval.ms",
    ),
    GroupSetting(
        Setting(
            "streams.heartbeat.interval.ms",
            "int",
            5000,
            "The time between two heartbeats of a member of the streams group, which the broker tells it.",
            unit="ms",
            low=1,
        ),
        "group.streams.heartbeat.interval.ms",
        "group.streams.min.heartbeat.interval.ms",
        "group.streams.max.heartbeat.interval.ms",
    ),
    GroupSetting(
        Setting(
            "streams.num.standby.replicas",
            "int",
            0,
            "The number of standby copies of each stateful task of the streams group.",
            low=0,
        ),
        "group.streams.num.standby.replicas",
        most="group.streams.max.standby.replicas",
    ),
    GroupSetting(
        Setting(
            "streams.initial.rebalance.delay.ms",
            "int",
            3000,
            "How long the streams group waits for more members before its first assignment.",
            unit="ms",
            low=0,
        ),
        "group.streams.initial.rebalance.delay.ms",
    ),
    GroupSetting(
        Setting(
            "streams.assignment.interval.ms",
            "int",
            1000,
            "The least time between two assignments of the streams group.",
            unit="ms",
            low=0,
        ),
        "group.streams.assignment.interval.ms",
        "group.streams.min.assignment.interval.ms",
        "group.streams.max.assignment.interval.ms",
    ),
)

GROUP_SETTINGS = {each.setting.name: each for each in (*CONSUMER, *SHARE, *STREAMS)}
