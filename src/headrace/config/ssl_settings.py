"""The settings of TLS. Source: Kafka's `SslConfigs`, `BrokerSecurityConfigs`, `DefaultSslEngineFactory`."""

from dataclasses import dataclass, field

from headrace.config.setting import Settings, declare

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

KAFKA07 = "KAFKA07"
"""The protocol of a listener for clients of Kafka 0.7, as PLAINTEXT."""


STORE_TYPES = ("JKS", "PKCS12", "PEM")


def check_store_type(text: str) -> None:
    """Raises `ValueError` unless the text is a type of store, in any case as in Java."""
    if text.upper() not in STORE_TYPES:
        raise ValueError(f"is not one of {', '.join(STORE_TYPES)}")


# fmt: off
@dataclass(frozen=True, kw_only=True, eq=False, repr=False, init=False)
class SslSettings(Settings):
    """TLS of listeners, and of connections to other brokers. `BrokerConfig` has its slots."""

    __slots__ = ()

    headrace_ssl_kernel_enable: bool = declare(
        True, "headrace.ssl.kernel.enable", "boolean",
        "Whether the kernel may encrypt what TLS connections send, where it and OpenSSL can (Linux with the module "
        "tls): fetched records then go from the page cache to the network without passing through the broker.")
    listener_overrides: tuple[tuple[str, str, str], ...] = field(default=(), repr=False)
    """Settings of single listeners: listener (in capitals), setting, text. They hold secrets."""
    password_encoder_iterations: int = declare(
        4096, "password.encoder.iterations", "int", "The iterations of PBKDF2 for password.encoder.secret.", low=1024,
        high=1_000_000)
    password_encoder_key_length: int = declare(
        128, "password.encoder.key.length", "int", "The length of the key made from password.encoder.secret.",
        unit="bits", low=128, high=256)
    password_encoder_old_secret: str = declare(
        "", "password.encoder.old.secret", "password",
        "A former password.encoder.secret. At the start, stored passwords encrypted with it are encrypted with the new "
        "one.")
    password_encoder_secret: str = declare(
        "", "password.encoder.secret", "password",
        "Encrypts passwords that are set while the broker runs, in the metadata store. Without it they are refused.")
    security_inter_broker_protocol: str = declare(
        "PLAINTEXT", "security.inter.broker.protocol", "string",
        "The protocol between brokers, if inter.broker.listener.name is not set: brokers use the listener of this "
        "name.", choices=SECURITY_PROTOCOLS)
    ssl_allow_dn_changes: bool = declare(
        False, "ssl.allow.dn.changes", "boolean",
        "Whether the subject of a broker's certificate may change while the broker runs.")
    ssl_allow_san_changes: bool = declare(
        False, "ssl.allow.san.changes", "boolean",
        "Whether a broker's certificate may lose names while the broker runs.")
    ssl_cipher_suites: tuple[str, ...] = declare(
        (), "ssl.cipher.suites", "list",
        "The cipher suites, by Java's names or OpenSSL's. If empty, those with forward secrecy and authenticated "
        "encryption. The three suites of TLS 1.3 are chosen together before Python 3.15.")
    ssl_client_auth: str = declare(
        "none", "ssl.client.auth", "string",
        "Whether clients present a certificate. With requested, a client without one is ANONYMOUS. The authorities of "
        "clients must be in ssl.truststore.location or ssl.truststore.certificates.",
        choices=("none", "requested", "required"))
    ssl_enabled_protocols: tuple[str, ...] = declare(
        ("TLSv1.2", "TLSv1.3"), "ssl.enabled.protocols", "list", "The versions of TLS.", choices=("TLSv1.2", "TLSv1.3"))
    ssl_endpoint_identification_algorithm: str = declare(
        "https", "ssl.endpoint.identification.algorithm", "string",
        "With https, a broker verifies that the certificate of another broker matches its host name. If empty, the "
        "host name is not verified.", choices=("https", "HTTPS", ""))
    ssl_key_password: str = declare(
        "", "ssl.key.password", "password",
        "The password of the private key in a PEM file, in ssl.keystore.key or in a JKS store.", dynamic=True)
    ssl_keystore_certificate_chain: str = declare(
        "", "ssl.keystore.certificate.chain", "password",
        "The certificate of ssl.keystore.key and those of its authorities, as PEM.", dynamic=True)
    ssl_keystore_key: str = declare(
        "", "ssl.keystore.key", "password", "The private key as PEM, instead of ssl.keystore.location.", dynamic=True)
    ssl_keystore_location: str = declare(
        "", "ssl.keystore.location", "string",
        "The file with the private key and the certificate. A changed file is used within seconds.", dynamic=True)
    ssl_keystore_password: str = declare(
        "", "ssl.keystore.password", "password", "The password of a PKCS12 or JKS file. A PEM file has none.",
        dynamic=True)
    ssl_keystore_type: str = declare(
        "JKS", "ssl.keystore.type", "string",
        "The format of the file. PKCS12 and JKS files are told apart by their content. JKS needs the extra "
        "headrace[jks].", check=check_store_type, dynamic=True)
    ssl_principal_mapping_rules: str = declare(
        "DEFAULT", "ssl.principal.mapping.rules", "string",
        "Rules that make a principal from the subject of a client's certificate: RULE:pattern/replacement/ with an "
        "optional L or U for lower or upper case, separated by commas. DEFAULT is the whole subject.")
    ssl_protocol: str = declare(
        "TLSv1.3", "ssl.protocol", "string", "Accepted for Apache Kafka's sake. ssl.enabled.protocols decides.",
        choices=("TLSv1.3", "TLSv1.2", "TLS"))
    ssl_truststore_certificates: str = declare(
        "", "ssl.truststore.certificates", "password",
        "Trusted certificates as PEM, instead of ssl.truststore.location.", dynamic=True)
    ssl_truststore_location: str = declare(
        "", "ssl.truststore.location", "string",
        "The file with trusted certificates. A changed file is used within seconds.", dynamic=True)
    ssl_truststore_password: str = declare(
        "", "ssl.truststore.password", "password", "The password of a PKCS12 or JKS file. A PEM file has none.",
        dynamic=True)
    ssl_truststore_type: str = declare(
        "JKS", "ssl.truststore.type", "string", "The format of the file, as with ssl.keystore.type.",
        check=check_store_type, dynamic=True)
