"""The settings of the connection to ZooKeeper. Source: Kafka's `ZkConfigs`."""

from dataclasses import dataclass

from headrace.config.setting import Settings, declare


# fmt: off
@dataclass(frozen=True, kw_only=True, eq=False, repr=False, init=False)
class ZooKeeperSettings(Settings):
    """Where the ensemble is, and who the broker is there. `BrokerConfig` has its slots."""

    __slots__ = ()

    zookeeper_client_cnxn_socket: str = declare(
        "", "zookeeper.clientCnxnSocket", "string",
        "Accepted because Apache Kafka requires it for TLS. It has no effect.",
        choices=("", "org.apache.zookeeper.ClientCnxnSocketNetty", "org.apache.zookeeper.ClientCnxnSocketNIO"))
    zookeeper_connect: str = declare(
        "", "zookeeper.connect", "string",
        "The ZooKeeper ensemble of the cluster, as HOST:PORT,HOST:PORT,... with an optional chroot path, such as "
        "/kafka, which is created if missing. If empty, the broker keeps the metadata in its data directory and is a "
        "cluster of one.")
    zookeeper_connection_timeout_ms: int = declare(
        0, "zookeeper.connection.timeout.ms", "int",
        "How long the broker waits for a connection to ZooKeeper at startup. 0 takes zookeeper.session.timeout.ms.",
        unit="ms", low=0)
    zookeeper_digest: str = declare(
        "", "headrace.zookeeper.digest", "password",
        "The USER:PASSWORD with which the broker authenticates to ZooKeeper (scheme digest), for access control "
        "lists.")
    kafka07_zookeeper_chroot: str = declare(
        "", "headrace.kafka07.zookeeper.chroot", "string",
        "Where clients of Kafka 0.7 find this broker's listener of KAFKA07 and its topics: the path that they have in "
        "zk.connect, on the ensemble of zookeeper.connect, with / for its root. It must not be that of a cluster of "
        "today. Requests then name partitions as in Kafka 0.7, by numbers of the broker's own. If empty, the broker "
        "is not registered for them.")
    zookeeper_sasl_jaas: str = declare(
        "", "headrace.zookeeper.sasl.jaas.config", "password",
        "The login with which the broker authenticates to ZooKeeper by SASL (DIGEST-MD5, or Kerberos with the "
        "extra gssapi): the content of the section Client of the JAAS file that Apache Kafka reads, such as "
        'org.apache.zookeeper.server.auth.DigestLoginModule required username="brokers" password="...";')
    zookeeper_session_timeout_ms: int = declare(
        6000, "zookeeper.session.timeout.ms", "int",
        "The ZooKeeper session timeout. A broker that ZooKeeper does not hear from for this long is considered dead. "
        "Apache Kafka's default is 18 seconds.", unit="ms", low=1)
    zookeeper_set_acl: bool = declare(
        False, "zookeeper.set.acl", "boolean",
        "Whether the broker creates znodes that only its own user may change, and, where they hold secrets, read.")
    zookeeper_ssl_cipher_suites: tuple[str, ...] = declare(
        (), "zookeeper.ssl.cipher.suites", "list",
        "The cipher suites, by Java's or OpenSSL's names. If empty, OpenSSL's with forward secrecy.")
    zookeeper_ssl_client_enable: bool = declare(
        False, "zookeeper.ssl.client.enable", "boolean", "Whether connections to ZooKeeper use TLS.")
    zookeeper_ssl_endpoint_identification_algorithm: str = declare(
        "HTTPS", "zookeeper.ssl.endpoint.identification.algorithm", "string",
        "With HTTPS, the certificate of a ZooKeeper server must match its host name. If empty, the host name is not "
        "verified.", choices=("HTTPS", "https", ""))
    zookeeper_ssl_enabled_protocols: tuple[str, ...] = declare(
        (), "zookeeper.ssl.enabled.protocols", "list",
        "The versions of TLS: TLSv1.2, TLSv1.3 or both. If empty, both.")
    zookeeper_ssl_keystore_location: str = declare(
        "", "zookeeper.ssl.keystore.location", "string",
        "The file with the private key and certificate of this broker (PEM, PKCS12 or JKS), for ensembles that require "
        "client authentication.")
    zookeeper_ssl_keystore_password: str = declare(
        "", "zookeeper.ssl.keystore.password", "password",
        "The password of zookeeper.ssl.keystore.location and of the private key in it.")
    zookeeper_ssl_keystore_type: str = declare(
        "", "zookeeper.ssl.keystore.type", "string",
        "The format of the file. If empty, its content tells.", choices=("", "PEM", "PKCS12", "JKS"))
    zookeeper_ssl_truststore_location: str = declare(
        "", "zookeeper.ssl.truststore.location", "string",
        "A file with the trusted certificates (PEM, PKCS12 or JKS). If empty, those of the operating system.")
    zookeeper_ssl_truststore_password: str = declare(
        "", "zookeeper.ssl.truststore.password", "password", "The password of zookeeper.ssl.truststore.location.")
    zookeeper_ssl_truststore_type: str = declare(
        "", "zookeeper.ssl.truststore.type", "string",
        "The format of the file. If empty, its content tells.", choices=("", "PEM", "PKCS12", "JKS"))
