"""The settings that a topic may override. Source: Kafka's `TopicConfig` and `LogConfig`."""

from dataclasses import dataclass, field

from headrace.config import lake_definition, message_format, throttled_replicas
from headrace.config.setting import DAY_MS, HOUR_MS, Settings, declare
from headrace.limits import INT64_MAX

GZIP_LEVEL, LZ4_LEVEL, ZSTD_LEVEL = -1, 9, 3
"""The default levels of codecs, as Apache Kafka numbers them."""
RELIABLE_REPLICAS_MIN = 2
"""The replicas that a reliable topic needs, and the least `min.insync.replicas` of it."""


def _check_gzip_level(text: str) -> None:
    if int(text) == 0:
        raise ValueError("is no level: it must be -1, or 1 to 9")


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TopicConfig(Settings):
    """The effective settings of a topic: its own, over the defaults of the broker."""

    cleanup_policy: tuple[str, ...] = declare(
        ("delete",), "cleanup.policy", "list",
        "What happens to old records. delete removes segments by age and size. compact keeps the latest record of "
        "each key, and refuses records without a key. Both can be given.", choices=("delete", "compact"),
        broker=(("log.cleanup.policy", 1),))
    compression_gzip_level: int = declare(
        GZIP_LEVEL, "compression.gzip.level", "int",
        "The level by which the broker compresses, if compression.type is gzip and the producer used another codec: 1 "
        "to 9, or -1 for the default of gzip.", low=-1, high=9, check=_check_gzip_level,
        broker=(("compression.gzip.level", 1),))
    compression_lz4_level: int = declare(
        LZ4_LEVEL, "compression.lz4.level", "int",
        "The same for lz4. The default is its fast compression; any other level is high compression, as in Apache "
        "Kafka.", low=1, high=17, broker=(("compression.lz4.level", 1),))
    compression_zstd_level: int = declare(
        ZSTD_LEVEL, "compression.zstd.level", "int", "The same for zstd.", low=-131_072, high=22,
        broker=(("compression.zstd.level", 1),))
    compression_type: str = declare(
        "producer", "compression.type", "string",
        "The codec that batches are stored with. producer keeps the codec of the producer.",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"), broker=(("compression.type", 1),))
    delete_retention_ms: int = declare(
        DAY_MS, "delete.retention.ms", "long",
        "How long a tombstone is kept in a compacted topic after its key's older records were cleaned. A consumer "
        "that starts at the beginning must reach the end within this time to see every tombstone.", unit="ms", low=0,
        broker=(("log.cleaner.delete.retention.ms", 1),))
    file_delete_delay_ms: int = declare(
        60_000, "file.delete.delay.ms", "long", "How long a deleted file stays on disk under another name.",
        unit="ms", low=0, broker=(("log.segment.delete.delay.ms", 1),))
    flush_messages: int = declare(
        INT64_MAX, "flush.messages", "long",
        "The number of records after which the log is flushed to disk. The record that reaches the number is "
        "acknowledged, and visible to consumers, after the flush.", low=1, broker=(("log.flush.interval.messages", 1),))
    flush_ms: int = declare(
        INT64_MAX, "flush.ms", "long", "The time after which the log is flushed to disk.", unit="ms", low=0,
        broker=(("log.flush.interval.ms", 1),))
    flush_acks: bool = declare(
        False, "headrace.flush.acks", "boolean",
        "Whether records are flushed to disk before they are acknowledged (acks=1 and acks=all) and before they are "
        "visible to consumers. Concurrent requests share one flush, so this costs much less than flush.messages=1 in "
        "Apache Kafka.", broker=(("headrace.log.flush.acks", 1),))
    follower_throttled_replicas: tuple[str, ...] = declare(
        (), "follower.replication.throttled.replicas", "list",
        "The replicas, as PARTITION:BROKER,... or * for all, that follower.replication.throttled.rate of a broker "
        "applies to while they are out of sync.", check=throttled_replicas.check_entry)
    index_interval_bytes: int = declare(
        4096, "index.interval.bytes", "int", "The number of log bytes between two entries of the offset index.",
        unit="bytes", low=0, broker=(("log.index.interval.bytes", 1),))
    kafka07_enable: bool = declare(
        False, "headrace.kafka07.enable", "boolean",
        "Whether clients of Kafka 0.7 may use the topic, on a listener of protocol KAFKA07. The brokers then keep an "
        "index of byte positions beside its logs. Not for compacted topics.")
    lake: str = declare(
        "", "headrace.lake", "string",
        "The definition of the topic's lake table, as `headrace lake add` writes it: a JSON object, or nothing. "
        "`headrace lake run` writes the table; brokers only keep the definition.",
        check=lake_definition.check_definition)
    leader_throttled_replicas: tuple[str, ...] = declare(
        (), "leader.replication.throttled.replicas", "list",
        "The replicas, as PARTITION:BROKER,... or * for all, that leader.replication.throttled.rate of a broker "
        "applies to while their followers are out of sync.", check=throttled_replicas.check_entry)
    max_compaction_lag_ms: int = declare(
        INT64_MAX, "max.compaction.lag.ms", "long",
        "The maximum time that a record of a compacted topic stays uncleaned, whatever the dirty ratio. Its segment "
        "is rolled by then.", unit="ms", low=1, broker=(("log.cleaner.max.compaction.lag.ms", 1),))
    max_message_bytes: int = declare(
        1_048_588, "max.message.bytes", "int", "The maximum size of a record batch, including its header.",
        unit="bytes", low=0, broker=(("message.max.bytes", 1),))
    message_format_version: str = declare(
        message_format.DEFAULT, "message.format.version", "string",
        "The Kafka release whose message format is stored: v0, messages without timestamps, before 0.10.0; v1, "
        "messages with timestamps, before 0.11.0; v2, record batches, from then on. Records produced in another "
        "format are converted, and consumers receive a format that they support. Idempotent and transactional "
        "producers need v2. Apache Kafka ignores this setting since 3.0; headrace applies it.",
        broker=(("log.message.format.version", 1),), check=message_format.magic_of)
    message_timestamp_after_max_ms: int = declare(
        HOUR_MS, "message.timestamp.after.max.ms", "long",
        "The maximum time that a record's timestamp may be ahead of the broker's clock.", unit="ms", low=0,
        broker=(("log.message.timestamp.after.max.ms", 1),))
    message_timestamp_before_max_ms: int = declare(
        INT64_MAX, "message.timestamp.before.max.ms", "long",
        "The maximum time that a record's timestamp may be behind the broker's clock.", unit="ms", low=0,
        broker=(("log.message.timestamp.before.max.ms", 1),))
    message_timestamp_difference_max_ms: int = declare(
        INT64_MAX, "message.timestamp.difference.max.ms", "long",
        "Deprecated: the limit in both directions. message.timestamp.before.max.ms and message.timestamp.after.max.ms "
        "take precedence where they differ from their defaults.", unit="ms", low=0,
        broker=(("log.message.timestamp.difference.max.ms", 1),))
    message_timestamp_type: str = declare(
        "CreateTime", "message.timestamp.type", "string",
        "Whether the timestamp of a record is that of the producer (CreateTime) or of the broker (LogAppendTime).",
        choices=("CreateTime", "LogAppendTime"), broker=(("log.message.timestamp.type", 1),))
    min_cleanable_dirty_ratio: float = declare(
        0.5, "min.cleanable.dirty.ratio", "double",
        "The minimum ratio of uncleaned bytes to all bytes of a compacted log before it is cleaned.", low=0, high=1,
        broker=(("log.cleaner.min.cleanable.ratio", 1),))
    min_compaction_lag_ms: int = declare(
        0, "min.compaction.lag.ms", "long", "The minimum time that a record of a compacted topic stays uncleaned.",
        unit="ms", low=0, broker=(("log.cleaner.min.compaction.lag.ms", 1),))
    min_insync_replicas: int = declare(
        1, "min.insync.replicas", "int",
        "The minimum number of in-sync replicas for a produce request with acks=all to be accepted.", low=1,
        broker=(("min.insync.replicas", 1),))
    preallocate: bool = declare(
        False, "preallocate", "boolean",
        "Whether the file of a new segment is created with a length of segment.bytes, as a sparse file.",
        broker=(("log.preallocate", 1),))
    preallocate_room: str = declare(
        "auto", "headrace.preallocate.room", "string",
        "Whether the file of an active segment of 1 MiB and more is extended with zeros up to the next multiple of "
        "128 KiB, which halves what an append of a few KiB costs the kernel if the page cache has large folios. auto: "
        "on ext4 of Linux 6.16 and later. Topics that flush by themselves have none.",
        choices=("auto", "always", "never"), broker=(("headrace.log.preallocate.room", 1),))
    reliable: bool = declare(
        False, "headrace.reliable", "boolean",
        "Whether an acknowledged record survives whatever befalls all brokers but one. The switch stands for several "
        "settings, whatever those say: records are acknowledged, and visible, when every in-sync replica has flushed "
        "them; acks=1 waits as acks=all does; min.insync.replicas is 2 at least; there is no unclean leader election; "
        "only idempotent producers may write. The topic needs two replicas at least, and three to accept records "
        "while a broker is away.")
    retention_bytes: int = declare(
        -1, "retention.bytes", "long",
        "The maximum size of a partition before its oldest segments are deleted. -1 means no limit.", unit="bytes",
        low=-1, broker=(("log.retention.bytes", 1),))
    retention_ms: int = declare(
        7 * DAY_MS, "retention.ms", "long",
        "How long records are kept before their segment is deleted. -1 means no limit.", unit="ms", low=-1,
        broker=(("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", HOUR_MS)))
    segment_bytes: int = declare(
        1 << 30, "segment.bytes", "int", "The maximum size of a segment.", unit="bytes",
        low=14, broker=(("log.segment.bytes", 1),))
    segment_index_bytes: int = declare(
        10 << 20, "segment.index.bytes", "int", "The maximum size of an index. A full index also rolls its segment.",
        unit="bytes", low=12, broker=(("log.index.size.max.bytes", 1),))
    segment_jitter_ms: int = declare(
        0, "segment.jitter.ms", "long",
        "The maximum random time subtracted from segment.ms, so that segments do not roll at the same time.", unit="ms",
        low=0, broker=(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)))
    segment_ms: int = declare(
        7 * DAY_MS, "segment.ms", "long", "The age at which a segment is rolled even if it is not full.", unit="ms",
        low=1, broker=(("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)))
    unclean_leader_election_enable: bool = declare(
        False, "unclean.leader.election.enable", "boolean",
        "Whether a replica outside the ISR can become leader as a last resort, which loses records.",
        broker=(("unclean.leader.election.enable", 1),))

    # What follows from the settings, for whoever asks at each batch.
    magic: int = field(init=False, repr=False, compare=False)
    before_max_ms: int = field(init=False, repr=False, compare=False)
    after_max_ms: int = field(init=False, repr=False, compare=False)
    flush_count: int = field(init=False, repr=False, compare=False)
    """The number of unflushed records from which the newest waits for a flush before it is acknowledged and visible."""
    stores_what_is_sent: bool = field(init=False, repr=False, compare=False)
    """Whether batches can be appended unchanged and acknowledged without a flush."""

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
        if self.reliable:
            object.__setattr__(self, "flush_acks", True)
            object.__setattr__(self, "min_insync_replicas", max(self.min_insync_replicas, RELIABLE_REPLICAS_MIN))
            object.__setattr__(self, "unclean_leader_election_enable", False)
        flush_count = 1 if self.flush_acks else self.flush_messages
        object.__setattr__(self, "flush_count", flush_count)
        as_sent = (magic, self.compression_type, self.message_timestamp_type, flush_count)
        is_as_sent = as_sent == (message_format.NEWEST_MAGIC, "producer", "CreateTime", INT64_MAX)
        object.__setattr__(self, "stores_what_is_sent", is_as_sent)

    @property
    def compression_level(self) -> int | None:
        """The level of the topic's own codec; None for the codec's default, and if there is none."""
        match self.compression_type:
            case "gzip":
                return None if self.compression_gzip_level == GZIP_LEVEL else self.compression_gzip_level
            case "lz4":  # 9 is not level 9 of high compression, but the default, fast compression: as in Apache Kafka
                return None if self.compression_lz4_level == LZ4_LEVEL else self.compression_lz4_level
            case "zstd":
                return self.compression_zstd_level
        return None

    @property
    def is_compacted(self) -> bool:
        """Whether the log cleaner compacts the topic, so that records need a key."""
        return "compact" in self.cleanup_policy

    @property
    def is_deleted_by_age(self) -> bool:
        """Whether `retention.ms` and `retention.bytes` delete segments."""
        return "delete" in self.cleanup_policy

    @property
    def segment_age_max_ms(self) -> int:
        """The age at which a segment is rolled; the active segment cannot be cleaned."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms
