"""The settings that a topic may override. Source: Kafka's `TopicConfig` and `LogConfig`."""

from dataclasses import dataclass, field

from headrace.config import message_format, throttled_replicas
from headrace.config.setting import DAY_MS, HOUR_MS, declare
from headrace.limits import INT64_MAX


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What holds for one topic: its overrides over the broker's defaults."""

    cleanup_policy: tuple[str, ...] = declare(
        ("delete",), "cleanup.policy", "list", "What happens to old records: delete takes segments away by age and "
        "size, compact keeps the newest record of each key and refuses records without one; both together do both.",
        choices=("delete", "compact"), broker=(("log.cleanup.policy", 1),))
    compression_type: str = declare(
        "producer", "compression.type", "string", "How batches are stored: as they came, or rebuilt with this codec.",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"), broker=(("compression.type", 1),))
    delete_retention_ms: int = declare(
        DAY_MS, "delete.retention.ms", "long", "How long a tombstone stays in a compacted topic after the "
        "first cleaning that left nothing older of its key; so long a reader from the beginning may take.",
        unit="ms", low=0,
        broker=(("log.cleaner.delete.retention.ms", 1),))
    file_delete_delay_ms: int = declare(
        60_000, "file.delete.delay.ms", "long", "How long a file that was deleted stays on disk under another name.",
        unit="ms", low=0, broker=(("log.segment.delete.delay.ms", 1),))
    flush_messages: int = declare(
        INT64_MAX, "flush.messages", "long", "Records between two forced flushes to disk. The producer of the "
        "record that fills the count is answered, and consumers see it, after the flush.",
        low=1,
        broker=(("log.flush.interval.messages", 1),))
    flush_ms: int = declare(
        INT64_MAX, "flush.ms", "long", "Time between two forced flushes to disk.", unit="ms", low=0,
        broker=(("log.flush.interval.ms", 1),))
    flush_acks: bool = declare(
        False, "headrace.flush.acks", "boolean", "Whether an acknowledged record is on the disk: a produce with acks=1 "
        "or all is answered, and its records can be read, only after they were flushed. All that wait share one "
        "flush, so this costs much less than it does in Apache Kafka with flush.messages=1.",
        broker=(("headrace.log.flush.acks", 1),))
    follower_throttled_replicas: tuple[str, ...] = declare(
        (), "follower.replication.throttled.replicas", "list", "The replicas, as PARTITION:BROKER, or * for all, that "
        "follower.replication.throttled.rate of a broker holds back while they are not in sync.",
        check=throttled_replicas.check_entry)
    index_interval_bytes: int = declare(
        4096, "index.interval.bytes", "int", "Log bytes between two index entries.", unit="bytes", low=0,
        broker=(("log.index.interval.bytes", 1),))
    leader_throttled_replicas: tuple[str, ...] = declare(
        (), "leader.replication.throttled.replicas", "list", "The replicas, as PARTITION:BROKER, or * for all, that "
        "leader.replication.throttled.rate of a broker holds back while their followers are not in sync.",
        check=throttled_replicas.check_entry)
    max_compaction_lag_ms: int = declare(
        INT64_MAX, "max.compaction.lag.ms", "long", "How long a record may wait for the cleaner in a compacted topic, "
        "whatever the dirty ratio; its segment is rolled by then.", unit="ms", low=1,
        broker=(("log.cleaner.max.compaction.lag.ms", 1),))
    max_message_bytes: int = declare(
        1_048_588, "max.message.bytes", "int", "The largest batch that is accepted, its header included.",
        unit="bytes", low=0, broker=(("message.max.bytes", 1),))
    message_format_version: str = declare(
        message_format.DEFAULT, "message.format.version", "string", "The release whose message format is stored: "
        "before 0.10.0 messages without timestamps (v0), before 0.11.0 messages with them (v1), later batches (v2). "
        "What is produced in another format is converted, and fetched in the one that its reader knows. Idempotent and "
        "transactional producers need v2. Apache Kafka ignores this from 3.0 on and stores v2; here it still decides.",
        broker=(("log.message.format.version", 1),), check=message_format.magic_of)
    message_timestamp_after_max_ms: int = declare(
        HOUR_MS, "message.timestamp.after.max.ms", "long", "How far ahead of the broker's clock a record may be.",
        unit="ms", low=0, broker=(("log.message.timestamp.after.max.ms", 1),))
    message_timestamp_before_max_ms: int = declare(
        INT64_MAX, "message.timestamp.before.max.ms", "long",
        "How far behind the broker's clock a record's time may be.", unit="ms", low=0,
        broker=(("log.message.timestamp.before.max.ms", 1),))
    message_timestamp_difference_max_ms: int = declare(
        INT64_MAX, "message.timestamp.difference.max.ms", "long",
        "The older setting for both directions. Each of message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms that is not at its default wins over it.", unit="ms", low=0,
        broker=(("log.message.timestamp.difference.max.ms", 1),))
    message_timestamp_type: str = declare(
        "CreateTime", "message.timestamp.type", "string", "Whose clock stamps records: the producer's or the broker's.",
        choices=("CreateTime", "LogAppendTime"), broker=(("log.message.timestamp.type", 1),))
    min_cleanable_dirty_ratio: float = declare(
        0.5, "min.cleanable.dirty.ratio", "double", "The part of a compacted log's bytes that must be new since its "
        "last cleaning for the next one.", low=0, high=1, broker=(("log.cleaner.min.cleanable.ratio", 1),))
    min_compaction_lag_ms: int = declare(
        0, "min.compaction.lag.ms", "long", "How long every record stays in a compacted topic, superseded or not.",
        unit="ms", low=0, broker=(("log.cleaner.min.compaction.lag.ms", 1),))
    min_insync_replicas: int = declare(
        1, "min.insync.replicas", "int", "The least ISR with which acks=all is accepted.", low=1,
        broker=(("min.insync.replicas", 1),))
    preallocate: bool = declare(
        False, "preallocate", "boolean", "Whether a new segment's file is made segment.bytes long at once, as a hole.",
        broker=(("log.preallocate", 1),))
    retention_bytes: int = declare(
        -1, "retention.bytes", "long", "Bytes a partition keeps; -1 for no limit.", unit="bytes", low=-1,
        broker=(("log.retention.bytes", 1),))
    retention_ms: int = declare(
        7 * DAY_MS, "retention.ms", "long", "How long a record is kept; -1 for ever.", unit="ms", low=-1,
        broker=(("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", HOUR_MS)))
    segment_bytes: int = declare(
        1 << 30, "segment.bytes", "int", "The size at which a segment is closed and a new one begun.", unit="bytes",
        low=14, broker=(("log.segment.bytes", 1),))
    segment_index_bytes: int = declare(
        10 << 20, "segment.index.bytes", "int", "The size at which an index is full, which also rolls its segment.",
        unit="bytes", low=12, broker=(("log.index.size.max.bytes", 1),))
    segment_jitter_ms: int = declare(
        0, "segment.jitter.ms", "long", "The most that is taken off segment.ms at random, so that rolls spread out.",
        unit="ms", low=0, broker=(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)))
    segment_ms: int = declare(
        7 * DAY_MS, "segment.ms", "long", "The age at which a segment is closed even if it is not full.", unit="ms",
        low=1, broker=(("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)))
    unclean_leader_election_enable: bool = declare(
        False, "unclean.leader.election.enable", "boolean",
        "Whether a replica outside the ISR may lead when no other is left, losing records.",
        broker=(("unclean.leader.election.enable", 1),))

    # What follows from the settings, for whoever asks at each batch.
    magic: int = field(init=False, repr=False, compare=False)
    before_max_ms: int = field(init=False, repr=False, compare=False)
    after_max_ms: int = field(init=False, repr=False, compare=False)
    flush_count: int = field(init=False, repr=False, compare=False)
    """So many records that are not on the disk keep the newest of them from being answered and read."""
    stores_what_is_sent: bool = field(init=False, repr=False, compare=False)
    """Whether nothing asks for another format, codec or timestamp, or for the disk before the answer."""

    def __post_init__(self) -> None:
        before, after = self.message_timestamp_before_max_ms, self.message_timestamp_after_max_ms
        both = self.message_timestamp_difference_max_ms
        if before == INT64_MAX:
            before = both
        if after == HOUR_MS and both != INT64_MAX:
            after = both
        object.__setattr__(self, "before_max_ms", before)
        object.__setattr__(self, "after_max_ms", after)
        magic = message_format.magic_of(self.message_format_version)
        object.__setattr__(self, "magic", magic)
        flush_count = 1 if self.flush_acks else self.flush_messages
        object.__setattr__(self, "flush_count", flush_count)
        as_sent = (magic, self.compression_type, self.message_timestamp_type, flush_count)
        is_as_sent = as_sent == (message_format.NEWEST_MAGIC, "producer", "CreateTime", INT64_MAX)
        object.__setattr__(self, "stores_what_is_sent", is_as_sent)

    @property
    def is_compacted(self) -> bool:
        """Whether records need a key, and age does not delete them."""
        return "compact" in self.cleanup_policy

    @property
    def is_deleted_by_age(self) -> bool:
        """Whether `retention.ms` and `retention.bytes` apply."""
        return "delete" in self.cleanup_policy

    @property
    def segment_age_max_ms(self) -> int:
        """The age at which a segment is closed: what is not closed cannot be cleaned."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms
