"""The settings of share groups and of the share coordinator. Source: Kafka's ShareGroupConfig, ShareCoordinatorConfig.

Apache Kafka's `group.share.persister.class.name` and the buffers of its coordinator's threads have no meaning here.
"""

from dataclasses import dataclass

from headrace.config.setting import Settings, declare
from headrace.limits import INT32_MAX


# fmt: off
@dataclass(frozen=True, kw_only=True, eq=False, repr=False, init=False)
class ShareSettings(Settings):
    """Settings of a broker that leads share partitions, or coordinates their state. `BrokerConfig` has its slots."""

    __slots__ = ()

    share_delivery_count_limit: int = declare(
        5, "group.share.delivery.count.limit", "int",
        "The maximum number of times that a record is delivered to a share group.", low=2, high=10)
    share_delivery_count_limit_max: int = declare(
        10, "group.share.max.delivery.count.limit", "int",
        "The maximum of share.delivery.count.limit of a group.", low=5, high=25)
    share_delivery_count_limit_min: int = declare(
        2, "group.share.min.delivery.count.limit", "int",
        "The minimum of share.delivery.count.limit of a group.", low=2, high=5)
    share_partition_max_record_locks: int = declare(
        2000, "group.share.partition.max.record.locks", "int",
        "The maximum number of records of one partition that are in flight for a share group.", low=100, high=10_000)
    share_partition_max_record_locks_max: int = declare(
        4000, "group.share.max.partition.max.record.locks", "int",
        "The maximum of share.partition.max.record.locks of a group.", low=2000, high=10_000)
    share_partition_max_record_locks_min: int = declare(
        100, "group.share.min.partition.max.record.locks", "int",
        "The minimum of share.partition.max.record.locks of a group.", low=100, high=2000)
    share_record_lock_duration_ms: int = declare(
        30_000, "group.share.record.lock.duration.ms", "int",
        "How long a consumer of a share group holds an acquired record before it is delivered again.", unit="ms",
        low=1000, high=3_600_000)
    share_record_lock_duration_max_ms: int = declare(
        60_000, "group.share.max.record.lock.duration.ms", "int",
        "The maximum of share.record.lock.duration.ms of a group.", unit="ms", low=30_000, high=3_600_000)
    share_record_lock_duration_min_ms: int = declare(
        15_000, "group.share.min.record.lock.duration.ms", "int",
        "The minimum of share.record.lock.duration.ms of a group.", unit="ms", low=1000, high=30_000)
    share_sessions_max: int = declare(
        2000, "group.share.max.share.sessions", "int",
        "The maximum number of share sessions on this broker, of each instance and of the other groups.", low=1)
    share_state_topic_num_partitions: int = declare(
        50, "share.coordinator.state.topic.num.partitions", "int",
        "The number of partitions of __share_group_state.", low=1)
    share_state_topic_replication_factor: int = declare(
        3, "share.coordinator.state.topic.replication.factor", "short",
        "The replication factor of __share_group_state. The topic is created once that many brokers are alive. A "
        "broker without ZooKeeper creates it with one replica.", low=1)
    share_state_topic_min_insync_replicas: int = declare(
        2, "share.coordinator.state.topic.min.isr", "int",
        "min.insync.replicas of __share_group_state when it is created. At most its replication factor.", low=1)
    share_state_topic_segment_bytes: int = declare(
        100 << 20, "share.coordinator.state.topic.segment.bytes", "int", "The segment size of __share_group_state.",
        unit="bytes", low=1)
    share_state_updates_per_snapshot: int = declare(
        500, "share.coordinator.snapshot.update.records.per.snapshot", "int",
        "The number of updates of a share partition that the share coordinator writes between two snapshots.", low=0,
        high=500)
    share_state_write_timeout_ms: int = declare(
        5000, "share.coordinator.write.timeout.ms", "int",
        "How long the share coordinator waits for the replicas of __share_group_state to have a record.", unit="ms",
        low=1, high=INT32_MAX)
    share_state_prune_interval_ms: int = declare(
        300_000, "share.coordinator.state.topic.prune.interval.ms", "int",
        "How often the share coordinator deletes records of __share_group_state that are not needed any more.",
        unit="ms", low=1)
    share_state_cold_snapshot_interval_ms: int = declare(
        300_000, "share.coordinator.cold.partition.snapshot.interval.ms", "int",
        "The time after which the share coordinator writes a new snapshot of a share partition that does not change, "
        "so that older records can be deleted.", unit="ms", low=1)
    share_group_assignment_interval_ms: int = declare(
        1000, "group.share.assignment.interval.ms", "int",
        "The minimum time between two assignments of a share group.", unit="ms", low=0, dynamic=True)
    share_group_assignment_interval_max_ms: int = declare(
        15_000, "group.share.max.assignment.interval.ms", "int",
        "The maximum of share.assignment.interval.ms of a group.", unit="ms", low=0)
    share_group_assignment_interval_min_ms: int = declare(
        0, "group.share.min.assignment.interval.ms", "int",
        "The minimum of share.assignment.interval.ms of a group.", unit="ms", low=0)
    share_group_assignors: tuple[str, ...] = declare(
        ("simple",), "group.share.assignors", "list", "The assignor of share groups.", choices=("simple",))
    share_group_heartbeat_interval_ms: int = declare(
        5000, "group.share.heartbeat.interval.ms", "int",
        "The time between two heartbeats of a member of a share group.", unit="ms", low=1)
    share_group_heartbeat_interval_max_ms: int = declare(
        15_000, "group.share.max.heartbeat.interval.ms", "int",
        "The maximum of share.heartbeat.interval.ms of a group.", unit="ms", low=1)
    share_group_heartbeat_interval_min_ms: int = declare(
        5000, "group.share.min.heartbeat.interval.ms", "int",
        "The minimum of share.heartbeat.interval.ms of a group.", unit="ms", low=1)
    share_group_initialize_retry_interval_ms: int = declare(
        30_000, "group.share.initialize.retry.interval.ms", "int",
        "The time after which the group coordinator asks again for the state of share partitions to be initialized.",
        unit="ms", low=1)
    share_group_max_size: int = declare(
        200, "group.share.max.size", "int", "The maximum number of members of a share group.", low=1, high=1000)
    share_group_session_timeout_ms: int = declare(
        45_000, "group.share.session.timeout.ms", "int",
        "The time without heartbeat after which a member of a share group is removed.", unit="ms", low=1)
    share_group_session_timeout_max_ms: int = declare(
        60_000, "group.share.max.session.timeout.ms", "int",
        "The maximum of share.session.timeout.ms of a group.", unit="ms", low=1)
    share_group_session_timeout_min_ms: int = declare(
        45_000, "group.share.min.session.timeout.ms", "int",
        "The minimum of share.session.timeout.ms of a group.", unit="ms", low=1)
