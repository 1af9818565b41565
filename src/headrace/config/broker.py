"""The settings of one broker, with the defaults of its topics. Source: Kafka's `KafkaConfig`."""

import sys
from dataclasses import dataclass

from headrace.config.authorizer_settings import AuthorizerSettings
from headrace.config.group_settings import GroupSettings
from headrace.config.instance_listener_settings import InstanceListenerSettings
from headrace.config.quota_settings import QuotaSettings
from headrace.config.sasl_settings import SaslSettings
from headrace.config.setting import DAY_MS, declare
from headrace.config.share_settings import ShareSettings
from headrace.config.ssl_settings import SslSettings
from headrace.config.streams_group_settings import StreamsGroupSettings
from headrace.config.topic import TopicConfig
from headrace.config.zookeeper_settings import ZooKeeperSettings
from headrace.limits import INT32_MAX, INT64_MAX

DEFAULTS = TopicConfig()


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class BrokerConfig(
    ShareSettings, GroupSettings, StreamsGroupSettings, QuotaSettings, AuthorizerSettings, SslSettings,
    SaslSettings, ZooKeeperSettings, InstanceListenerSettings,
):
    """One broker's settings."""

    topic_defaults: TopicConfig = DEFAULTS

    advertised_listeners: tuple[str, ...] = declare(
        (), "advertised.listeners", "list",
        "The addresses that clients are told to connect to. If empty, those of listeners.")
    add_partitions_to_txn_retry_backoff_max_ms: int = declare(
        100, "add.partitions.to.txn.retry.backoff.max.ms", "int",
        "How long a broker tries again to add a partition to a transaction while the coordinator completes the "
        "producer's previous one.", unit="ms", low=0)
    add_partitions_to_txn_retry_backoff_ms: int = declare(
        20, "add.partitions.to.txn.retry.backoff.ms", "int",
        "The time between two tries to add a partition to a transaction.", unit="ms", low=1)
    auto_create_topics_enable: bool = declare(
        True, "auto.create.topics.enable", "boolean",
        "Whether a metadata request for a topic that does not exist creates it.")
    auto_leader_rebalance_enable: bool = declare(
        True, "auto.leader.rebalance.enable", "boolean",
        "Whether the controller periodically moves leadership back to preferred replicas.")
    broker_id: int = declare(
        0, "broker.id", "int",
        "The id of this broker. -1 takes the id stored in the data directory, or else an id that the cluster assigns; "
        "this is Apache Kafka's default.", low=-1, high=INT32_MAX)
    broker_id_generation_enable: bool = declare(
        True, "broker.id.generation.enable", "boolean", "Whether the cluster may assign an id, with broker.id=-1.")
    broker_rack: str = declare(
        "", "broker.rack", "string", "The rack of this broker. Replicas of a partition are spread over racks.")
    connections_max_idle_ms: int = declare(
        600_000, "connections.max.idle.ms", "long",
        "The time after which an idle connection is closed. -1 disables it.", unit="ms", low=-1)
    control_plane_listener_name: str = declare(
        "", "control.plane.listener.name", "string",
        "The name of a listener for the controller's requests. If empty, they go to inter.broker.listener.name.")
    controlled_shutdown_enable: bool = declare(
        True, "controlled.shutdown.enable", "boolean",
        "Whether a broker moves its leaderships to other brokers before it stops.")
    controlled_shutdown_max_retries: int = declare(
        3, "controlled.shutdown.max.retries", "int",
        "The number of retries of a controlled shutdown, while the broker still leads partitions.", low=0)
    controlled_shutdown_retry_backoff_ms: int = declare(
        5000, "controlled.shutdown.retry.backoff.ms", "long", "The time between two tries of a controlled shutdown.",
        unit="ms", low=1)
    default_replication_factor: int = declare(
        1, "default.replication.factor", "int", "The replication factor of a topic that is created without one.", low=1,
        high=32767)
    delete_topic_enable: bool = declare(True, "delete.topic.enable", "boolean", "Whether topics can be deleted.")
    fencing_enable: bool = declare(
        True, "headrace.fencing.enable", "boolean",
        "Whether a broker is considered dead as soon as the controller and another broker see its connections break "
        "and new ones refused, instead of when its session expires. A broker with false is never fenced. Fencing is "
        "off in clusters that contain Apache Kafka brokers.")
    fetch_max_bytes: int = declare(
        55 << 20, "fetch.max.bytes", "int", "The maximum size of a fetch response, whatever the request asks for.",
        unit="bytes", low=1024)
    follower_replication_throttled_rate: int = declare(
        INT64_MAX, "follower.replication.throttled.rate", "long",
        "The maximum rate at which this broker, as an out-of-sync follower, fetches the partitions listed in "
        "follower.replication.throttled.replicas of their topics.", unit="bytes/s", low=1, dynamic=True)
    flow_allocator: str = declare(
        "max-min", "headrace.flow.allocator", "string",
        "How the controller shares the limit of an instance out to its brokers: by demand (max-min), or by what flows "
        "with room to grow (seed).", choices=("max-min", "seed"))
    flow_report_ms: int = declare(
        1000, "headrace.flow.report.ms", "int",
        "How often a broker reports to the controller what instances use. The controller's value counts.", unit="ms",
        low=100, high=60_000)
    group_initial_rebalance_delay_ms: int = declare(
        3000, "group.initial.rebalance.delay.ms", "int",
        "How long the coordinator waits for more members to join an empty group.", unit="ms", low=0)
    group_max_session_timeout_ms: int = declare(
        1_800_000, "group.max.session.timeout.ms", "int", "The maximum session timeout of a group member.",
        unit="ms", low=1)
    group_max_size: int = declare(
        INT32_MAX, "group.max.size", "int", "The maximum number of members of a group.", low=1)
    group_min_session_timeout_ms: int = declare(
        6000, "group.min.session.timeout.ms", "int", "The minimum session timeout of a group member.", unit="ms",
        low=1)
    inter_broker_listener_name: str = declare(
        "", "inter.broker.listener.name", "string",
        "The name of the listener for communication between brokers. If empty, the listener named PLAINTEXT, or else "
        "the first. If set, requests that only brokers may send are accepted on this listener only.")
    leader_imbalance_check_interval_seconds: int = declare(
        300, "leader.imbalance.check.interval.seconds", "long",
        "How often the controller checks the balance of leaders.", unit="s", low=1)
    leader_imbalance_per_broker_percentage: int = declare(
        10, "leader.imbalance.per.broker.percentage", "int",
        "The percentage of a broker's preferred leaderships that may be held by other brokers before the controller "
        "moves them back.", unit="%", low=0)
    leader_replication_throttled_rate: int = declare(
        INT64_MAX, "leader.replication.throttled.rate", "long",
        "The maximum rate at which this broker sends to out-of-sync followers the partitions listed in "
        "leader.replication.throttled.replicas of their topics.", unit="bytes/s", low=1, dynamic=True)
    listener_security_protocol_map: tuple[str, ...] = declare(
        ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
        "listener.security.protocol.map", "list",
        "The security protocol of each listener name: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, or KAFKA07 for "
        "clients of Kafka 0.7. Each listener needs a name of its own.")
    listeners: tuple[str, ...] = declare(
        ("PLAINTEXT://127.0.0.1:9092",), "listeners", "list",
        "The addresses the broker listens on. Apache Kafka's default is every address; here it is loopback, because "
        "clients are not authenticated.")
    log_cleaner_backoff_ms: int = declare(
        15_000, "log.cleaner.backoff.ms", "long", "How long the cleaner sleeps when no log needs cleaning.", unit="ms",
        low=0, dynamic=True)
    log_cleaner_dedupe_buffer_size: int = declare(
        128 << 20, "log.cleaner.dedupe.buffer.size", "long",
        "The memory for log deduplication across all cleaners, at 24 bytes per key. A log with more new keys is "
        "cleaned in several passes.", unit="bytes", low=1 << 10, dynamic=True)
    log_cleaner_enable: bool = declare(
        True, "log.cleaner.enable", "boolean",
        "Whether the log cleaner runs. Compacted topics, including __consumer_offsets, need it.")
    log_cleaner_io_buffer_load_factor: float = declare(
        0.9, "log.cleaner.io.buffer.load.factor", "double", "The maximum fill ratio of the dedupe buffer.", low=0.01,
        high=0.99, dynamic=True)
    log_cleaner_io_buffer_size: int = declare(
        512 << 10, "log.cleaner.io.buffer.size", "int",
        "The size of the buffer that segments are read into, across all cleaners.", unit="bytes", low=0, dynamic=True)
    log_cleaner_io_max_bytes_per_second: float = declare(
        sys.float_info.max, "log.cleaner.io.max.bytes.per.second", "double",
        "The maximum rate of reads and writes, across all cleaners.", unit="bytes/s", low=1, dynamic=True)
    log_cleaner_threads: int = declare(
        1, "log.cleaner.threads", "int",
        "The number of logs that are cleaned at once, each by a process of its own. The processes start when a log "
        "needs cleaning.", low=0, high=64, dynamic=True)
    log_dirs: tuple[str, ...] = declare(
        ("headrace-data",), "log.dirs", "list",
        "The data directories. Apache Kafka's default is a directory under /tmp, which a reboot empties.")
    log_flush_offset_checkpoint_interval_ms: int = declare(
        60_000, "log.flush.offset.checkpoint.interval.ms", "int", "How often recovery points are written to disk.",
        unit="ms", low=0)
    log_flush_scheduler_interval_ms: int = declare(
        1000, "log.flush.scheduler.interval.ms", "long",
        "How often the broker checks whether flush.ms makes a flush due. If log.flush.interval.ms is not set, it "
        "takes this value. Apache Kafka's default is never.", unit="ms", low=1)
    log_flush_start_offset_checkpoint_interval_ms: int = declare(
        60_000, "log.flush.start.offset.checkpoint.interval.ms", "int",
        "How often log start offsets are written to disk.", unit="ms", low=0)
    log_retention_check_interval_ms: int = declare(
        300_000, "log.retention.check.interval.ms", "long",
        "How often the broker checks whether segments can be deleted.", unit="ms", low=1)
    max_connections: int = declare(INT32_MAX, "max.connections", "int", "The maximum number of connections. More wait "
                                   "until others close. listener.name.NAME.max.connections is for one listener.", low=0,
                                   dynamic=True)
    max_connections_per_ip: int = declare(
        INT32_MAX, "max.connections.per.ip", "int", "The maximum number of connections from one IP address.", low=0,
        dynamic=True)
    max_incremental_fetch_session_cache_slots: int = declare(
        1000, "max.incremental.fetch.session.cache.slots", "int", "The maximum number of incremental fetch sessions.",
        low=0)
    max_request_partition_size_limit: int = declare(
        2000, "max.request.partition.size.limit", "int",
        "The maximum number of partitions in a DescribeTopicPartitions response.", low=1)
    num_partitions: int = declare(
        1, "num.partitions", "int", "The number of partitions of a topic that is created without a number.", low=1)
    num_recovery_threads_per_data_dir: int = declare(
        2, "num.recovery.threads.per.data.dir", "int",
        "The number of threads per data directory for log recovery at startup.", low=1, dynamic=True)
    num_replica_fetchers: int = declare(
        1, "num.replica.fetchers", "int",
        "The number of connections over which a follower fetches from each other broker.", low=1, high=64, dynamic=True)
    offset_metadata_max_bytes: int = declare(
        4096, "offset.metadata.max.bytes", "int", "The maximum size of the metadata of an offset commit.", unit="bytes",
        low=0)
    offsets_commit_timeout_ms: int = declare(
        5000, "offsets.commit.timeout.ms", "int",
        "How long an offset commit waits for the replicas of the offsets topic.", unit="ms", low=1)
    offsets_retention_check_interval_ms: int = declare(
        600_000, "offsets.retention.check.interval.ms", "long", "How often the broker checks for expired offsets.",
        unit="ms", low=1)
    offsets_retention_minutes: int = declare(
        10080, "offsets.retention.minutes", "int",
        "How long the offsets of a group are kept after it has lost its last member.", unit="minutes", low=1)
    offsets_topic_num_partitions: int = declare(
        50, "offsets.topic.num.partitions", "int", "The number of partitions of __consumer_offsets.", low=1)
    offsets_topic_replication_factor: int = declare(
        3, "offsets.topic.replication.factor", "short",
        "The replication factor of __consumer_offsets. The topic is created once that many brokers are alive. A "
        "broker without ZooKeeper creates it with one replica.", low=1)
    offsets_topic_segment_bytes: int = declare(
        100 << 20, "offsets.topic.segment.bytes", "int", "The segment size of __consumer_offsets.", unit="bytes", low=1)
    producer_id_expiration_ms: int = declare(
        DAY_MS, "producer.id.expiration.ms", "int", "How long a broker keeps the state of an idle idempotent "
        "producer.", unit="ms", low=1, dynamic=True)
    log_format: str = declare(
        "text", "headrace.log.format", "string",
        "The format of the broker's own log on stderr: text lines, or one JSON object per line.",
        choices=("text", "json"))
    log_level: str = declare(
        "info", "headrace.log.level", "string", "The minimum level of events that the broker logs.",
        choices=("debug", "info", "warning", "error"))
    metrics_listen: str = declare(
        "", "headrace.metrics.listen", "string",
        "The HOST:PORT of the HTTP endpoint that serves /metrics to Prometheus, without authentication. If empty, "
        "there is none.")
    queued_max_response_bytes: int = declare(
        256 << 20, "queued.max.response.bytes", "long",
        "The maximum memory of responses that wait for slow clients, across all connections. Above it, the broker "
        "reads no further requests from connections with waiting responses. -1 means no limit. Apache Kafka has no "
        "such setting.", unit="bytes", low=-1)
    records_check: bool = declare(
        True, "headrace.records.check", "boolean",
        "Whether the broker validates each record of a produced batch. If false, it checks the CRC of the batch only, "
        "and trusts the producer for the rest.")
    replica_fetch_backoff_ms: int = declare(
        1000, "replica.fetch.backoff.ms", "int",
        "How long a follower waits after a failed fetch of a partition before it tries again.", unit="ms", low=0)
    replica_fetch_max_bytes: int = declare(
        1 << 20, "replica.fetch.max.bytes", "int",
        "The maximum number of bytes per partition that a follower requests. A first batch may be larger.",
        unit="bytes", low=0)
    replica_fetch_min_bytes: int = declare(
        1, "replica.fetch.min.bytes", "int",
        "The minimum number of bytes that a leader waits for before it responds to a follower.", unit="bytes", low=0)
    replica_fetch_response_max_bytes: int = declare(
        10 << 20, "replica.fetch.response.max.bytes", "int",
        "The maximum number of bytes per fetch that a follower requests. A first batch may be larger.", unit="bytes",
        low=0)
    replica_fetch_wait_max_ms: int = declare(
        500, "replica.fetch.wait.max.ms", "int",
        "How long a leader waits for replica.fetch.min.bytes. It must be less than replica.lag.time.max.ms, or "
        "followers of idle partitions leave the ISR.", unit="ms", low=0)
    replica_alter_log_dirs_io_max_bytes_per_second: int = declare(
        INT64_MAX, "replica.alter.log.dirs.io.max.bytes.per.second", "long",
        "The maximum rate of moving replicas between data directories.", unit="bytes/s", low=1, dynamic=True)
    replica_high_watermark_checkpoint_interval_ms: int = declare(
        5000, "replica.high.watermark.checkpoint.interval.ms", "long", "How often high watermarks are written to disk.",
        unit="ms", low=1)
    replica_lag_time_max_ms: int = declare(
        30_000, "replica.lag.time.max.ms", "long",
        "The time after which a follower that has not caught up is removed from the ISR.", unit="ms", low=1)
    replica_selector_class: str = declare(
        "", "replica.selector.class", "string",
        "The replica that consumers with a client.rack read from (KIP-392). RackAwareReplicaSelector: a replica in "
        "their rack. LeaderSelector, or empty: the leader.",
        choices=("", "org.apache.kafka.common.replica.RackAwareReplicaSelector", "RackAwareReplicaSelector",
                 "org.apache.kafka.common.replica.LeaderSelector", "LeaderSelector"))
    replica_socket_timeout_ms: int = declare(
        30_000, "replica.socket.timeout.ms", "int", "How long a follower waits for a response from the leader.",
        unit="ms", low=1)
    request_timeout_ms: int = declare(
        30_000, "request.timeout.ms", "int",
        "How long a broker waits for the answer of another broker to a request about transactions, and for followers "
        "to have a marker or a record of __transaction_state.", unit="ms", low=1)
    reserved_broker_max_id: int = declare(
        1000, "reserved.broker.max.id", "int",
        "The highest broker.id that can be configured. Ids that the cluster assigns are above it.", low=0)
    socket_listen_backlog_size: int = declare(
        1024, "socket.listen.backlog.size", "int",
        "The maximum number of connections waiting to be accepted. With Apache Kafka's default of 50, many clients "
        "that connect at once wait a second for each overflow.", low=1)
    socket_receive_buffer_bytes: int = declare(
        -1, "socket.receive.buffer.bytes", "int",
        "The SO_RCVBUF of connections. -1 leaves it to the kernel, which adapts it (Apache Kafka's default is 100 "
        "KiB).", unit="bytes", low=-1)
    socket_request_max_bytes: int = declare(
        100 << 20, "socket.request.max.bytes", "int", "The maximum size of a request.", unit="bytes", low=1)
    socket_send_buffer_bytes: int = declare(
        -1, "socket.send.buffer.bytes", "int",
        "The SO_SNDBUF of connections. -1 leaves it to the kernel, which adapts it (Apache Kafka's default is 100 "
        "KiB).", unit="bytes", low=-1)
    telemetry_max_bytes: int = declare(
        1 << 20, "telemetry.max.bytes", "int", "The maximum size of one push of a client's metrics, compressed.",
        unit="bytes", low=1)
    transaction_max_timeout_ms: int = declare(
        900_000, "transaction.max.timeout.ms", "int",
        "The maximum transaction.timeout.ms of a producer. A longer one is refused.", unit="ms", low=1)
    transaction_partition_verification_enable: bool = declare(
        True, "transaction.partition.verification.enable", "boolean",
        "Whether a broker asks the transaction coordinator, before a producer's first append of a transaction to a "
        "partition, if the partition belongs to the transaction. Otherwise a late batch can leave a transaction open.",
        dynamic=True)
    transaction_expiration_check_interval_ms: int = declare(
        3_600_000, "transaction.remove.expired.transaction.cleanup.interval.ms", "int",
        "How often the transaction coordinator removes transactional ids that are past transactional.id.expiration.ms.",
        unit="ms", low=1)
    transaction_topic_min_insync_replicas: int = declare(
        2, "transaction.state.log.min.isr", "int",
        "min.insync.replicas of __transaction_state when it is created. At most its replication factor.", low=1)
    transaction_topic_num_partitions: int = declare(
        50, "transaction.state.log.num.partitions", "int", "The number of partitions of __transaction_state.", low=1)
    transaction_topic_replication_factor: int = declare(
        3, "transaction.state.log.replication.factor", "short",
        "The replication factor of __transaction_state. The topic is created once that many brokers are alive. A "
        "broker without ZooKeeper creates it with one replica.", low=1)
    transaction_topic_segment_bytes: int = declare(
        100 << 20, "transaction.state.log.segment.bytes", "int", "The segment size of __transaction_state.",
        unit="bytes", low=1)
    transaction_two_phase_commit_enable: bool = declare(
        False, "transaction.two.phase.commit.enable", "boolean",
        "Whether a producer may take part in a two-phase commit, so that its transactions have no time-out.")
    transactional_id_expiration_ms: int = declare(
        7 * DAY_MS, "transactional.id.expiration.ms", "int",
        "How long the transaction coordinator keeps a transactional id that is not used.", unit="ms", low=1)
