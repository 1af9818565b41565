"""Settings of Apache Kafka 2.8 to 3.9 that headrace does not have, and how each is treated in a server.properties.

    ignored    it means nothing here, and nothing is lost by leaving it out; the start lists its name in one line
    refused    ignoring it would weaken what the operator asked for; the start ends with the reason, unless the value is
               one of those that ask for nothing, such as the default

Every other name is one of `BROKER_SETTINGS` or their older forms, or unknown. Source: Kafka's `KafkaConfig` and
`AbstractKafkaConfig`; the names beginning with `confluent.` are of Confluent's packages.
"""

from collections.abc import Mapping
from typing import NamedTuple

_LISTENER_PREFIX = "listener.name."


class Ignored(NamedTuple):
    """A setting that has no meaning in headrace."""

    reason: str


class RefusedSetting(NamedTuple):
    """A setting that is refused, except for values that request nothing."""

    reason: str
    harmless: tuple[str, ...] = ("",)

    def allows(self, text: str) -> bool:
        """Whether this value requests nothing."""
        return text.strip().lower() in self.harmless


_THREADS = "One event loop serves all requests. Blocking work runs in threads that are started as needed."
_REPORTERS = "Metrics are served to Prometheus (headrace.metrics.listen). Java reporters cannot be loaded."
_KRAFT = "It belongs to KRaft. headrace keeps cluster metadata in ZooKeeper or in the broker's data directory."
_NEW_GROUPS = "Only the classic consumer group protocol is supported."
_SHARE_GROUPS = "Share groups are not supported. Their requests are refused."
_TLS = "Only PLAINTEXT listeners are supported. A TLS or SASL listener in listeners is refused."
_TOKENS = "Delegation tokens need SASL, which is not supported. A request for one is refused."
_PASSWORDS = "Listener settings cannot be changed while the broker runs, so it stores no passwords for them."
_TIERS = "Remote storage is not supported. All segments are in log.dirs."
_QUOTA_WINDOWS = "Rates are measured continuously, without windows."
_PURGATORY = "Delayed requests are removed from memory as soon as they complete."
_CONNECTIONS = "Connections between brokers have their own timeouts (replica.socket.timeout.ms for followers)."
_LEVELS = "Batches that the broker compresses use the default level of the codec."

_IGNORED_NAMES: tuple[tuple[str, str], ...] = (
    (_THREADS, "background.threads num.io.threads num.network.threads num.replica.alter.log.dirs.threads"
               " log.initial.task.delay.ms"),
    (_REPORTERS, "auto.include.jmx.reporter metric.reporters telemetry.max.bytes"),
    (_KRAFT, "broker.heartbeat.interval.ms broker.session.timeout.ms controller.listener.names"
             " alter.config.policy.kraft.compatibility.enable early.start.listeners eligible.leader.replicas.enable"
             " initial.broker.registration.timeout.ms log.dir.failure.timeout.ms server.max.startup.time.ms"
             " unclean.leader.election.interval.ms unstable.api.versions.enable unstable.feature.versions.enable"
             " zookeeper.metadata.migration.min.batch.size"),
    ("A transaction is aborted as soon as it is past its time-out.",
     "transaction.abort.timed.out.transaction.cleanup.interval.ms"),
    ("__transaction_state is read in chunks of a fixed size.", "transaction.state.log.load.buffer.size"),
    (_QUOTA_WINDOWS, "alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds"
                     " controller.quota.window.num controller.quota.window.size.seconds"
                     " quota.window.num quota.window.size.seconds"
                     " replication.quota.window.num replication.quota.window.size.seconds"),
    (_PURGATORY, "delete.records.purgatory.purge.interval.requests fetch.purgatory.purge.interval.requests"
                 " producer.purgatory.purge.interval.requests"),
    (_CONNECTIONS, "controller.socket.timeout.ms socket.connection.setup.timeout.max.ms"
                   " socket.connection.setup.timeout.ms replica.socket.receive.buffer.bytes"),
    (_LEVELS, "compression.gzip.level compression.lz4.level compression.zstd.level"),
    (_TIERS, "log.local.retention.bytes log.local.retention.ms remote.fetch.max.wait.ms"),
    (_TLS, "connection.failed.authentication.delay.ms connections.max.reauth.ms principal.builder.class"
           " security.providers"),
    ("Brokers negotiate request versions with ApiVersions. The format of stored messages is "
     "log.message.format.version.", "inter.broker.protocol.version"),
    ("Old clients are always served. Batches are converted to a format that they support.",
     "log.message.downconversion.enable"),
    ("Expired producer ids are removed when their partitions are checked.", "producer.id.expiration.check.interval.ms"),
    ("An offset commit is always acknowledged after all in-sync replicas have it.", "offsets.commit.required.acks"),
    ("Group offsets are read in chunks of a fixed size.", "offsets.load.buffer.size"),
    ("Group offsets are stored uncompressed; compaction keeps the topic small.", "offsets.topic.compression.codec"),
    ("Memory for requests is bounded per connection. The broker does not read from a client that does "
     "not read responses.",
     "queued.max.request.bytes queued.max.requests"),
    ("Requests to ZooKeeper are pipelined.", "zookeeper.max.in.flight.requests"),
    ("Apache Kafka does not use it either.", "zookeeper.sync.time.ms"),
    ("Certificates of the ensemble are PEM files, which have no password.", "zookeeper.ssl.truststore.password"),
    ("The newest TLS version that both sides support is used.", "zookeeper.ssl.protocol"),
    ("Authorizers are not supported. A value of authorizer.class.name is refused.",
     "allow.everyone.if.no.acl.found"),
)  # fmt: skip

_IGNORED_PREFIXES: tuple[tuple[str, str], ...] = (
    ("confluent.", "It belongs to Confluent Server."),
    ("controller.quorum.", _KRAFT),
    ("delegation.token.", _TOKENS),
    ("group.consumer.", _NEW_GROUPS),
    ("group.coordinator.", _NEW_GROUPS),
    ("group.share.", _SHARE_GROUPS),
    ("share.coordinator.", _SHARE_GROUPS),
    ("kafka.", _REPORTERS),
    ("metadata.log.", _KRAFT),
    ("metadata.max.", _KRAFT),
    ("metrics.", _REPORTERS),
    ("password.encoder.", _PASSWORDS),
    ("remote.log.", _TIERS),
    ("rlmm.config.", _TIERS),
    ("rsm.config.", _TIERS),
    ("sasl.", _TLS),
    ("ssl.", _TLS),
)

_UNLIMITED = ("", str((1 << 63) - 1))
_OFF = ("", "false")
_NO_CLIENT_QUOTA = "Client quotas are not enforced: every client would be unlimited."
_NO_POLICY = "Java policies cannot be loaded: every change would be allowed."

_REFUSED: Mapping[str, RefusedSetting] = {
    "alter.config.policy.class.name": RefusedSetting(_NO_POLICY),
    "authorizer.class.name": RefusedSetting(
        "Authorizers are not supported: every client would be allowed every operation."
    ),
    "client.quota.callback.class": RefusedSetting(_NO_CLIENT_QUOTA),
    "confluent.tier.enable": RefusedSetting("Remote storage is not supported: segments in it could not be read.", _OFF),
    "create.topic.policy.class.name": RefusedSetting(_NO_POLICY),
    "max.connection.creation.rate": RefusedSetting(
        "The rate of new connections cannot be limited. max.connections and max.connections.per.ip limit their number.",
        ("", str((1 << 31) - 1)),
    ),
    "max.connections.per.ip.overrides": RefusedSetting("max.connections.per.ip applies to every address alike."),
    "process.roles": RefusedSetting(
        "headrace does not join a KRaft quorum: this broker would be a cluster of its own. Set "
        "zookeeper.connect for a cluster of several brokers, or remove process.roles for a single broker."
    ),
    "quota.consumer.default": RefusedSetting(_NO_CLIENT_QUOTA, _UNLIMITED),
    "quota.producer.default": RefusedSetting(_NO_CLIENT_QUOTA, _UNLIMITED),
    "remote.log.storage.system.enable": RefusedSetting(
        "Remote storage is not supported: segments in it could not be read.", _OFF
    ),
    "security.inter.broker.protocol": RefusedSetting(
        "Brokers communicate over PLAINTEXT: traffic would be neither encrypted nor authenticated.",
        ("", "plaintext"),
    ),
    "super.users": RefusedSetting("Authorizers are not supported: every client would be allowed every operation."),
    "zookeeper.metadata.migration.enable": RefusedSetting(
        "headrace does not support the migration from ZooKeeper to KRaft.", _OFF
    ),
    "zookeeper.ssl.cipher.suites": RefusedSetting("Cipher suites cannot be chosen. OpenSSL's defaults are used."),
    "zookeeper.ssl.crl.enable": RefusedSetting(
        "Revocation is not checked: revoked certificates of the ensemble would be accepted.", _OFF
    ),
    "zookeeper.ssl.enabled.protocols": RefusedSetting(
        "TLS versions cannot be chosen. OpenSSL's defaults are used, TLSv1.2 and later.",
        ("", "tlsv1.2,tlsv1.3", "tlsv1.3,tlsv1.2"),
    ),
    "zookeeper.ssl.ocsp.enable": RefusedSetting(
        "Revocation is not checked: revoked certificates of the ensemble would be accepted.", _OFF
    ),
}

_LISTENER_LIMITS = ("max.connections", "max.connection.creation.rate")
_IGNORED = {name: Ignored(reason) for reason, names in _IGNORED_NAMES for name in names.split()}


def judge(name: str) -> Ignored | RefusedSetting | None:
    """How a setting of Apache Kafka that headrace does not have is treated; None if the name is unknown."""
    if name.startswith(_LISTENER_PREFIX):
        return _of_one_listener(name)
    if found := _REFUSED.get(name) or _IGNORED.get(name):
        return found
    return next((Ignored(reason) for prefix, reason in _IGNORED_PREFIXES if name.startswith(prefix)), None)


def names() -> list[str]:
    """Every name in the tables."""
    return sorted({*_IGNORED, *_REFUSED})


def _of_one_listener(name: str) -> Ignored | RefusedSetting:
    """`listener.name.NAME.SETTING`: almost always a TLS or SASL setting, which listeners do not support."""
    if name.endswith(_LISTENER_LIMITS):
        return RefusedSetting("max.connections applies to all listeners together.")
    return Ignored(_TLS)
