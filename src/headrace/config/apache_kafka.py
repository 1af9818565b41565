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
_NEW_GROUPS = "One event loop serves all groups, and the features of the cluster decide which kinds are served."
_SASL = "Java classes cannot be loaded, and headrace needs no timing of logins."
_PASSWORDS = "Stored passwords are encrypted with AES in CBC mode, and a key of PBKDF2WithHmacSHA512."
_TIERS = "Remote storage is not supported. All segments are in log.dirs."
_QUOTA_WINDOWS = "Rates are measured continuously, without windows."
_PURGATORY = "Delayed requests are removed from memory as soon as they complete."
_CONNECTIONS = "Connections between brokers have their own timeouts (replica.socket.timeout.ms for followers)."

_IGNORED_NAMES: tuple[tuple[str, str], ...] = (
    (_THREADS, "background.threads num.io.threads num.network.threads num.replica.alter.log.dirs.threads"
               " log.initial.task.delay.ms"),
    (_REPORTERS, "auto.include.jmx.reporter metric.reporters"),
    (_KRAFT, "broker.heartbeat.interval.ms broker.session.timeout.ms controller.listener.names"
             " alter.config.policy.kraft.compatibility.enable early.start.listeners eligible.leader.replicas.enable"
             " initial.broker.registration.timeout.ms log.dir.failure.timeout.ms server.max.startup.time.ms"
             " unclean.leader.election.interval.ms unstable.api.versions.enable unstable.feature.versions.enable"
             " zookeeper.metadata.migration.min.batch.size"),
    ("A transaction is aborted as soon as it is past its time-out.",
     "transaction.abort.timed.out.transaction.cleanup.interval.ms"),
    ("__transaction_state is read in chunks of a fixed size.", "transaction.state.log.load.buffer.size"),
    ("__share_group_state is read in chunks of a fixed size.", "share.coordinator.load.buffer.size"),
    (_THREADS, "share.coordinator.threads"),
    ("Records of coordinators are written at the end of a turn of the event loop.",
     "share.coordinator.append.linger.ms share.coordinator.cached.buffer.max.bytes"),
    ("It is the choice of codec for small records, which are not compressed.",
     "share.coordinator.state.topic.compression.codec"),
    ("Share groups are enabled by the feature share.version.", "group.share.enable"),
    ("State of share groups is kept in __share_group_state. Java classes cannot be loaded.",
     "group.share.persister.class.name"),
    ("The number of share groups is not limited, as with Apache Kafka 4.3.", "group.share.max.groups"),
    ("Large assignments of share groups are always computed on a thread.", "group.share.assignor.offload.enable"),
    (_QUOTA_WINDOWS, "alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds"
                     " replication.quota.window.num replication.quota.window.size.seconds"),
    (_PURGATORY, "delete.records.purgatory.purge.interval.requests fetch.purgatory.purge.interval.requests"
                 " producer.purgatory.purge.interval.requests share.fetch.purgatory.purge.interval.requests"),
    (_CONNECTIONS, "controller.socket.timeout.ms socket.connection.setup.timeout.max.ms"
                   " socket.connection.setup.timeout.ms replica.socket.receive.buffer.bytes"),
    (_TIERS, "log.local.retention.bytes log.local.retention.ms remote.fetch.max.wait.ms"),
    (_SASL, "sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class"
            " sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor"
            " sasl.login.refresh.window.jitter sasl.login.connect.timeout.ms sasl.login.read.timeout.ms"
            " sasl.login.retry.backoff.ms sasl.login.retry.backoff.max.ms sasl.server.callback.handler.class"
            " sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.ticket.renew.jitter"
            " sasl.kerberos.ticket.renew.window.factor sasl.mechanism.controller.protocol"
            " sasl.oauthbearer.header.urlencode sasl.oauthbearer.token.endpoint.url"
            ""
            ""
            " sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
            " sasl.jaas.config"),
    ("Java classes cannot be loaded.", "principal.builder.class security.providers"),
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
    (_PASSWORDS, "password.encoder.cipher.algorithm password.encoder.keyfactory.algorithm"),
    ("OpenSSL does what Java's providers do.",
     "ssl.keymanager.algorithm ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm"),
    ("Requests to ZooKeeper are pipelined.", "zookeeper.max.in.flight.requests"),
    ("Apache Kafka does not use it either.", "zookeeper.sync.time.ms"),
    ("The newest TLS version that both sides support is used.", "zookeeper.ssl.protocol"),
)  # fmt: skip

_IGNORED_PREFIXES: tuple[tuple[str, str], ...] = (
    ("authorizer.zookeeper.", "ACLs are read by the connection to zookeeper.connect."),
    ("confluent.", "It belongs to Confluent Server."),
    ("controller.quorum.", _KRAFT),
    ("group.coordinator.", _NEW_GROUPS),
    ("kafka.", _REPORTERS),
    ("metadata.log.", _KRAFT),
    ("metadata.max.", _KRAFT),
    ("metrics.", _REPORTERS),
    ("remote.log.", _TIERS),
    ("rlmm.config.", _TIERS),
    ("rsm.config.", _TIERS),
)

_UNLIMITED = ("", str((1 << 63) - 1))
_OFF = ("", "false")
_NO_CLIENT_QUOTA = "Java classes cannot be loaded: every client would have the quotas of its user and client id."
_NO_STATIC_QUOTA = "Set it while the broker runs: headrace quota set producer_byte_rate=... --client-id-default."
_NO_POLICY = "Java policies cannot be loaded: every change would be allowed."

_REFUSED: Mapping[str, RefusedSetting] = {
    "alter.config.policy.class.name": RefusedSetting(_NO_POLICY),
    "authorizer.zookeeper.url": RefusedSetting(
        "ACLs are kept in zookeeper.connect, with the rest of the metadata: those elsewhere would not be enforced."
    ),
    "client.quota.callback.class": RefusedSetting(_NO_CLIENT_QUOTA),
    "confluent.tier.enable": RefusedSetting("Remote storage is not supported: segments in it could not be read.", _OFF),
    "create.topic.policy.class.name": RefusedSetting(_NO_POLICY),
    "process.roles": RefusedSetting(
        "headrace does not join a KRaft quorum: this broker would be a cluster of its own. Set "
        "zookeeper.connect for a cluster of several brokers, or remove process.roles for a single broker."
    ),
    "quota.consumer.default": RefusedSetting(_NO_STATIC_QUOTA, _UNLIMITED),
    "quota.producer.default": RefusedSetting(_NO_STATIC_QUOTA, _UNLIMITED),
    "remote.log.storage.system.enable": RefusedSetting(
        "Remote storage is not supported: segments in it could not be read.", _OFF
    ),
    "ssl.engine.factory.class": RefusedSetting("Java classes cannot be loaded: set ssl.keystore.location."),
    "zookeeper.metadata.migration.enable": RefusedSetting(
        "headrace does not support the migration from ZooKeeper to KRaft.", _OFF
    ),
    "zookeeper.ssl.crl.enable": RefusedSetting(
        "Revocation is not checked: revoked certificates of the ensemble would be accepted.", _OFF
    ),
    "zookeeper.ssl.ocsp.enable": RefusedSetting(
        "Revocation is not checked: revoked certificates of the ensemble would be accepted.", _OFF
    ),
}

_IGNORED = {name: Ignored(reason) for reason, names in _IGNORED_NAMES for name in names.split()}


def judge(name: str) -> Ignored | RefusedSetting | None:
    """How a setting of Apache Kafka that headrace does not have is treated; None if the name is unknown."""
    if not name:
        return None
    if name.startswith(_LISTENER_PREFIX):
        return _of_one_listener(name)
    if found := _REFUSED.get(name) or _IGNORED.get(name):
        return found
    return next((Ignored(reason) for prefix, reason in _IGNORED_PREFIXES if name.startswith(prefix)), None)


def names() -> list[str]:
    """Every name in the tables."""
    return sorted({*_IGNORED, *_REFUSED})


def _of_one_listener(name: str) -> Ignored | RefusedSetting | None:
    """`listener.name.NAME.SETTING`, or `listener.name.NAME.MECHANISM.SETTING`."""
    setting = name[len(_LISTENER_PREFIX) :].partition(".")[2]
    return judge(setting) or judge(setting.partition(".")[2])
