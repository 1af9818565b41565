"""The settings of one broker, with the defaults of its topics. Source: Kafka's `KafkaConfig`."""

import sys
from dataclasses import dataclass

from headrace.config.setting import DAY_MS, declare
from headrace.config.topic import TopicConfig
from headrace.limits import INT32_MAX, INT64_MAX

DEFAULTS = TopicConfig()


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """One broker's settings."""

    topic_defaults: TopicConfig = DEFAULTS

    advertised_listeners: tuple[str, ...] = declare(
        (), "advertised.listeners", "list", "What clients are told to connect to; the listeners when empty.")
    auto_create_topics_enable: bool = declare(
        True, "auto.create.topics.enable", "boolean", "Whether asking for a topic that does not exist makes it.")
    auto_leader_rebalance_enable: bool = declare(
        True, "auto.leader.rebalance.enable", "boolean",
        "Whether the controller gives leaders back to preferred replicas.")
    broker_id: int = declare(
        0, "broker.id", "int", "This broker's number. -1: the data directory's, or else one that the cluster hands "
        "out, which is Apache Kafka's default.", low=-1, high=INT32_MAX)
    broker_id_generation_enable: bool = declare(
        True, "broker.id.generation.enable", "boolean", "Whether broker.id may be -1.")
    broker_rack: str = declare("", "broker.rack", "string", "The rack that replicas are spread over.")
    connections_max_idle_ms: int = declare(
        600_000, "connections.max.idle.ms", "long", "An idle connection is closed after this; -1 never.", unit="ms",
        low=-1)
    controlled_shutdown_enable: bool = declare(
        True, "controlled.shutdown.enable", "boolean", "Whether a broker that is told to stop has others lead first.")
    controlled_shutdown_max_retries: int = declare(
        3, "controlled.shutdown.max.retries", "int", "How often it asks again while it leads something still.", low=0)
    controlled_shutdown_retry_backoff_ms: int = declare(
        5000, "controlled.shutdown.retry.backoff.ms", "long", "How long it waits before it asks again.", unit="ms",
        low=1)
    default_replication_factor: int = declare(
        1, "default.replication.factor", "int", "Replicas of a topic that does not say.", low=1, high=32767)
    delete_topic_enable: bool = declare(True, "delete.topic.enable", "boolean", "Whether topics may be deleted.")
    fencing_enable: bool = declare(
        True, "headrace.fencing.enable", "boolean", "Whether a broker whose connections broke and are refused is taken "
        "for dead at once, when the controller and another broker see that, instead of when its session ends. Where it "
        "is false, that broker is never fenced. It is not done beside brokers of Apache Kafka.")
    fetch_max_bytes: int = declare(
        55 << 20, "fetch.max.bytes", "int", "The most that one fetch is answered with, whatever it asks for.",
        unit="bytes", low=1024)
    follower_replication_throttled_rate: int = declare(
        INT64_MAX, "follower.replication.throttled.rate", "long", "The most that this broker fetches as a follower "
        "that is not in sync, of the partitions that follower.replication.throttled.replicas of their topic names.",
        unit="bytes/s", low=1)
    group_initial_rebalance_delay_ms: int = declare(
        3000, "group.initial.rebalance.delay.ms", "int", "How long an empty group waits for more members to join.",
        unit="ms", low=0)
    group_max_session_timeout_ms: int = declare(
        1_800_000, "group.max.session.timeout.ms", "int", "The longest session time-out a member may ask for.",
        unit="ms", low=1)
    group_max_size: int = declare(INT32_MAX, "group.max.size", "int", "The most members of one group.", low=1)
    group_min_session_timeout_ms: int = declare(
        6000, "group.min.session.timeout.ms", "int", "The shortest session time-out a member may ask for.", unit="ms",
        low=1)
    inter_broker_listener_name: str = declare(
        "", "inter.broker.listener.name", "string", "The listener through which brokers reach each other; the one "
        "named PLAINTEXT, or else the first, when empty. When it is named, what only brokers may ask is answered there "
        "alone.")
    leader_imbalance_check_interval_seconds: int = declare(
        300, "leader.imbalance.check.interval.seconds", "long", "How often the controller looks whether leaders are "
        "where they should be.", unit="s", low=1)
    leader_imbalance_per_broker_percentage: int = declare(
        10, "leader.imbalance.per.broker.percentage", "int", "How many of the partitions of which a broker is the "
        "preferred leader may be led by others.", unit="%", low=0)
    leader_replication_throttled_rate: int = declare(
        INT64_MAX, "leader.replication.throttled.rate", "long", "The most that this broker sends to followers that are "
        "not in sync, of the partitions that leader.replication.throttled.replicas of their topic names.",
        unit="bytes/s", low=1)
    listener_security_protocol_map: tuple[str, ...] = declare(
        ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
        "listener.security.protocol.map", "list",
        "What is spoken on a listener, by its name: each of several listeners needs a name of its own. Only PLAINTEXT "
        "is served.")
    listeners: tuple[str, ...] = declare(
        ("PLAINTEXT://127.0.0.1:9092",), "listeners", "list",
        "Where the broker listens. Apache Kafka listens on every address; here it is loopback until a listener says "
        "otherwise, because nothing is authenticated.")
    log_cleaner_backoff_ms: int = declare(
        15_000, "log.cleaner.backoff.ms", "long", "How long the cleaner waits when no log needs it.", unit="ms", low=0)
    log_cleaner_dedupe_buffer_size: int = declare(
        128 << 20, "log.cleaner.dedupe.buffer.size", "long", "The most memory for the keys of what is cleaned, 24 "
        "bytes a key, over all cleaners; a log with more new keys is cleaned in several turns.", unit="bytes",
        low=1 << 10)
    log_cleaner_enable: bool = declare(
        True, "log.cleaner.enable", "boolean", "Whether compacted topics are cleaned, __consumer_offsets among them.")
    log_cleaner_io_buffer_load_factor: float = declare(
        0.9, "log.cleaner.io.buffer.load.factor", "double", "How full the dedupe buffer may get.", low=0.01, high=0.99)
    log_cleaner_io_buffer_size: int = declare(
        512 << 10, "log.cleaner.io.buffer.size", "int", "How much of a segment the cleaners read at once, together.",
        unit="bytes", low=0)
    log_cleaner_io_max_bytes_per_second: float = declare(
        sys.float_info.max, "log.cleaner.io.max.bytes.per.second", "double",
        "The most that the cleaners read and write together.", unit="bytes/s", low=1)
    log_cleaner_threads: int = declare(
        1, "log.cleaner.threads", "int", "How many logs are cleaned at once, each by a process of its own. They are "
        "started when there is something to clean.", low=0, high=64)
    log_dirs: tuple[str, ...] = declare(
        ("headrace-data",), "log.dirs", "list",
        "Where the log is. Apache Kafka's default is under /tmp, which a reboot empties.")
    log_flush_offset_checkpoint_interval_ms: int = declare(
        60_000, "log.flush.offset.checkpoint.interval.ms", "int", "How often recovery points are written down.",
        unit="ms", low=0)
    log_flush_scheduler_interval_ms: int = declare(
        1000, "log.flush.scheduler.interval.ms", "long",
        "How often logs are looked at for a flush that flush.ms makes due. Where it is set and log.flush.interval.ms "
        "is not, it is that too. Apache Kafka's default is never.",
        unit="ms", low=1)
    log_flush_start_offset_checkpoint_interval_ms: int = declare(
        60_000, "log.flush.start.offset.checkpoint.interval.ms", "int",
        "How often it is written down where logs start.", unit="ms", low=0)
    log_retention_check_interval_ms: int = declare(
        300_000, "log.retention.check.interval.ms", "long", "How often old segments are looked for.", unit="ms",
        low=1)
    max_connections: int = declare(INT32_MAX, "max.connections", "int", "The most connections at once.", low=0)
    max_connections_per_ip: int = declare(
        INT32_MAX, "max.connections.per.ip", "int", "The most connections at once from one address.", low=0)
    max_incremental_fetch_session_cache_slots: int = declare(
        1000, "max.incremental.fetch.session.cache.slots", "int", "The most fetch sessions that are kept.", low=0)
    max_request_partition_size_limit: int = declare(
        2000, "max.request.partition.size.limit", "int",
        "The most partitions that one DescribeTopicPartitions is answered with.", low=1)
    num_partitions: int = declare(1, "num.partitions", "int", "Partitions of a topic that does not say.", low=1)
    num_recovery_threads_per_data_dir: int = declare(
        2, "num.recovery.threads.per.data.dir", "int", "Threads for each data directory that read what a crash may "
        "have damaged, at a start.", low=1)
    num_replica_fetchers: int = declare(
        1, "num.replica.fetchers", "int", "Connections over which the partitions that another broker leads are "
        "followed.", low=1, high=64)
    offset_metadata_max_bytes: int = declare(
        4096, "offset.metadata.max.bytes", "int", "The longest note that a commit may carry.", unit="bytes", low=0)
    offsets_commit_timeout_ms: int = declare(
        5000, "offsets.commit.timeout.ms", "int", "How long a commit waits for its replicas.", unit="ms", low=1)
    offsets_retention_check_interval_ms: int = declare(
        600_000, "offsets.retention.check.interval.ms", "long", "How often expired offsets are looked for.", unit="ms",
        low=1)
    offsets_retention_minutes: int = declare(
        10080, "offsets.retention.minutes", "int", "How long a group without members keeps its offsets.",
        unit="minutes", low=1)
    offsets_topic_num_partitions: int = declare(
        50, "offsets.topic.num.partitions", "int", "Partitions of __consumer_offsets.", low=1)
    offsets_topic_replication_factor: int = declare(
        3, "offsets.topic.replication.factor", "short",
        "Replicas of __consumer_offsets, which is made once so many brokers are alive. A broker without a ZooKeeper, "
        "alone, makes one replica whatever this says.", low=1)
    offsets_topic_segment_bytes: int = declare(
        100 << 20, "offsets.topic.segment.bytes", "int", "Segment size of __consumer_offsets.", unit="bytes", low=1)
    producer_id_expiration_ms: int = declare(
        DAY_MS, "producer.id.expiration.ms", "int", "How long an idle idempotent producer is remembered.", unit="ms",
        low=1)
    log_format: str = declare(
        "text", "headrace.log.format", "string",
        "How the broker's own log is written to stderr: lines for people, or an object of JSON on each line.",
        choices=("text", "json"))
    log_level: str = declare(
        "info", "headrace.log.level", "string", "The least important events that are logged.",
        choices=("debug", "info", "warning", "error"))
    metrics_listen: str = declare(
        "", "headrace.metrics.listen", "string",
        "HOST:PORT where Prometheus may ask for /metrics; nowhere when empty. Nothing is authenticated there.")
    records_check: bool = declare(
        True, "headrace.records.check", "boolean",
        "Whether each record of a produced batch is walked. Without it only the batch's CRC is checked, as if every "
        "producer told the truth.")
    replica_fetch_backoff_ms: int = declare(
        1000, "replica.fetch.backoff.ms", "int", "How long a follower leaves a partition alone that it could not "
        "fetch.", unit="ms", low=0)
    replica_fetch_max_bytes: int = declare(
        1 << 20, "replica.fetch.max.bytes", "int", "How much of one partition a follower asks for; a first batch may "
        "be larger.", unit="bytes", low=0)
    replica_fetch_min_bytes: int = declare(
        1, "replica.fetch.min.bytes", "int", "How much a leader waits for before it answers a follower.", unit="bytes",
        low=0)
    replica_fetch_response_max_bytes: int = declare(
        10 << 20, "replica.fetch.response.max.bytes", "int", "How much of all partitions together a follower asks for; "
        "a first batch may be larger.", unit="bytes", low=0)
    replica_fetch_wait_max_ms: int = declare(
        500, "replica.fetch.wait.max.ms", "int", "How long a leader waits for something that it can answer a follower "
        "with. Below replica.lag.time.max.ms, or followers of quiet partitions would leave the ISR.", unit="ms", low=0)
    replica_alter_log_dirs_io_max_bytes_per_second: int = declare(
        INT64_MAX, "replica.alter.log.dirs.io.max.bytes.per.second", "long",
        "The most that is copied when replicas are moved between data directories.", unit="bytes/s", low=1)
    replica_high_watermark_checkpoint_interval_ms: int = declare(
        5000, "replica.high.watermark.checkpoint.interval.ms", "long", "How often high watermarks are written down.",
        unit="ms", low=1)
    replica_lag_time_max_ms: int = declare(
        30_000, "replica.lag.time.max.ms", "long", "A follower that is behind for longer leaves the ISR.", unit="ms",
        low=1)
    replica_selector_class: str = declare(
        "", "replica.selector.class", "string", "How a consumer that tells its rack finds a replica nearby (KIP-392): "
        "org.apache.kafka.common.replica.RackAwareReplicaSelector, or RackAwareReplicaSelector, names one in its own "
        "rack; LeaderSelector, and nothing, the leader.",
        choices=("", "org.apache.kafka.common.replica.RackAwareReplicaSelector", "RackAwareReplicaSelector",
                 "org.apache.kafka.common.replica.LeaderSelector", "LeaderSelector"))
    replica_socket_timeout_ms: int = declare(
        30_000, "replica.socket.timeout.ms", "int", "How long a follower waits for its leader's answer.", unit="ms",
        low=1)
    reserved_broker_max_id: int = declare(
        1000, "reserved.broker.max.id", "int", "The highest broker.id that people give; those that the cluster hands "
        "out are above it.", low=0)
    socket_listen_backlog_size: int = declare(
        1024, "socket.listen.backlog.size", "int",
        "Connections that the kernel may hold before they are accepted. With Apache Kafka's default of 50 a crowd "
        "that connects at once waits a second for each overflow.", low=1)
    socket_receive_buffer_bytes: int = declare(
        -1, "socket.receive.buffer.bytes", "int",
        "SO_RCVBUF of a connection; -1 leaves it to the kernel, which grows it as needed (Apache Kafka fixes 100 KiB).",
        unit="bytes", low=-1)
    socket_request_max_bytes: int = declare(
        100 << 20, "socket.request.max.bytes", "int", "The largest request.", unit="bytes", low=1)
    socket_send_buffer_bytes: int = declare(
        -1, "socket.send.buffer.bytes", "int",
        "SO_SNDBUF of a connection; -1 leaves it to the kernel, which grows it as needed (Apache Kafka fixes 100 KiB).",
        unit="bytes", low=-1)
    zookeeper_client_cnxn_socket: str = declare(
        "", "zookeeper.clientCnxnSocket", "string", "Apache Kafka needs it for TLS; it changes nothing here.",
        choices=("", "org.apache.zookeeper.ClientCnxnSocketNetty", "org.apache.zookeeper.ClientCnxnSocketNIO"))
    zookeeper_connect: str = declare(
        "", "zookeeper.connect", "string", "The ZooKeeper ensemble that coordinates the cluster, as "
        "HOST:PORT,HOST:PORT,...; a path at the end (a chroot, made when missing) keeps several clusters apart. Empty: "
        "the tree inside this process, a cluster of one.")
    zookeeper_connection_timeout_ms: int = declare(
        0, "zookeeper.connection.timeout.ms", "int", "How long a start waits for the ensemble; 0: as long as "
        "zookeeper.session.timeout.ms.", unit="ms", low=0)
    zookeeper_digest: str = declare(
        "", "headrace.zookeeper.digest", "password", "USER:PASSWORD that the ensemble knows this broker by (its scheme "
        "'digest'), for access control lists.")
    zookeeper_session_timeout_ms: int = declare(
        6000, "zookeeper.session.timeout.ms", "int", "A broker that the ensemble does not hear of for this long is "
        "dead to the cluster. Apache Kafka waits 18 seconds.", unit="ms", low=1)
    zookeeper_set_acl: bool = declare(
        False, "zookeeper.set.acl", "boolean", "Whether only this broker's user may change the nodes that it makes.")
    zookeeper_ssl_client_enable: bool = declare(
        False, "zookeeper.ssl.client.enable", "boolean", "Whether the ensemble is spoken to over TLS.")
    zookeeper_ssl_endpoint_identification_algorithm: str = declare(
        "HTTPS", "zookeeper.ssl.endpoint.identification.algorithm", "string",
        "HTTPS: a server's certificate must name its host; empty: any host.", choices=("HTTPS", "https", ""))
    zookeeper_ssl_keystore_location: str = declare(
        "", "zookeeper.ssl.keystore.location", "string", "A PEM file of this broker's private key and certificate, for "
        "ensembles that ask for one.")
    zookeeper_ssl_keystore_password: str = declare(
        "", "zookeeper.ssl.keystore.password", "password", "The password of the private key.")
    zookeeper_ssl_keystore_type: str = declare(
        "", "zookeeper.ssl.keystore.type", "string", "PEM; Java's own formats are not read.", choices=("", "PEM"))
    zookeeper_ssl_truststore_location: str = declare(
        "", "zookeeper.ssl.truststore.location", "string", "A PEM file of the certificates that servers are known by; "
        "the system's when empty.")
    zookeeper_ssl_truststore_type: str = declare(
        "", "zookeeper.ssl.truststore.type", "string", "PEM; Java's own formats are not read.", choices=("", "PEM"))
