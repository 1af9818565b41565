"""Kafka's client options as `ClientSettings`: the one place where they are checked and their secrets are read.

    security.protocol                     PLAINTEXT (the default), SSL, SASL_PLAINTEXT or SASL_SSL
    ssl.*                                 as Apache Kafka names them; PEM, PKCS12 and JKS
    sasl.mechanism, sasl.jaas.config, …   PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI
    client.id, request.timeout.ms, …      `NUMBERS`

Other options are for producers, consumers or Java, and are ignored; a misspelt `ssl.*` or `sasl.*` is not. Options of
TLS or SASL beside no `security.protocol` are refused, where Apache Kafka connects in plain text without a word. A value
may refer to a file or the environment (`providers`). Errors never have the value of a secret.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from headrace.client.core.options import CLIENT, numbers
from headrace.client.core.settings import ClientSettings
from headrace.client.security.providers import resolve
from headrace.client.security.secrets import SecretOptions, shown
from headrace.errors import InvalidConfig

if TYPE_CHECKING:
    from ssl import SSLContext

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
NUMBERS: Final = MappingProxyType(numbers(CLIENT))
"""Options that are numbers, with the attribute of each."""

SSL_OPTIONS: Final = (
    *("ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type", "ssl.truststore.certificates"),
    *("ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type", "ssl.keystore.certificate.chain"),
    *("ssl.keystore.key", "ssl.key.password", "ssl.protocol", "ssl.enabled.protocols", "ssl.cipher.suites"),
    "ssl.endpoint.identification.algorithm",
)
SASL_OPTIONS: Final = (
    *("sasl.mechanism", "sasl.jaas.config", "sasl.kerberos.service.name"),
    *("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name"),
    *("sasl.oauthbearer.header.urlencode", "sasl.oauthbearer.scope"),
    *("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.credentials.client.secret"),
    *("sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms"),
    *("sasl.login.retry.backoff.ms", "sasl.login.retry.backoff.max.ms"),
)
_WITHOUT_EFFECT: Final = (
    *("ssl.provider", "ssl.secure.random.implementation", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm"),
    *("sasl.login.refresh.buffer.seconds", "sasl.login.refresh.min.period.seconds"),
    *("sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter"),
    *("sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin", "sasl.kerberos.ticket.renew.jitter"),
    *("sasl.kerberos.ticket.renew.window.factor", "sasl.login.class", "sasl.oauthbearer.jwt.retriever.class"),
)
"""Java's own options, which are accepted."""

_LOGIN_CALLBACKS: Final = "sasl.login.callback.handler.class"
_KNOWN_CALLBACKS: Final = ("OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler")
_JAAS: Final = (
    'sasl.jaas.config, as org.apache.kafka.common.security.plain.PlainLoginModule required username="…" password="…";'
)
_LIBRDKAFKA: Final = MappingProxyType(
    {
        "sasl.username": _JAAS, "sasl.password": _JAAS, "sasl.mechanisms": "sasl.mechanism",
        "ssl.ca.location": "ssl.truststore.location", "ssl.ca.pem": "ssl.truststore.certificates",
        "ssl.certificate.location": "ssl.keystore.location", "ssl.key.location": "ssl.keystore.location",
        "ssl.certificate.pem": "ssl.keystore.certificate.chain", "ssl.key.pem": "ssl.keystore.key",
        "enable.ssl.certificate.verification": "ssl.truststore.location",
    }
)  # fmt: skip
"""librdkafka's names of options, which people bring along, and Kafka's."""
_KAFKA_PYTHON: Final = MappingProxyType(
    {
        "sasl.plain.username": _JAAS, "sasl.plain.password": _JAAS,
        "ssl.cafile": "ssl.truststore.location", "ssl.check.hostname": "ssl.endpoint.identification.algorithm",
        "ssl.certfile": "ssl.keystore.location", "ssl.keyfile": "ssl.keystore.location",
        "ssl.password": "ssl.key.password", "ssl.context": "client=ClientSettings(tls=context)",
    }
)  # fmt: skip
"""The same of kafka-python and aiokafka, with dots."""


def client_settings(
    given: Mapping[str, str], base: ClientSettings | None = None, *, prefix: str = ""
) -> ClientSettings:
    """The settings in `given`, over `base`. `prefix` comes before names in errors: Spark's options begin with kafka.

    Reads the files of keys and certificates. Raises `InvalidConfig`, which names the option.
    """
    settings = base or ClientSettings()
    whole = {attribute: _whole(f"{prefix}{name}", given[name]) for name, attribute in NUMBERS.items() if name in given}
    settings = settings.replace(client_id=given.get("client.id", settings.client_id))
    settings = settings.replace(**whole)
    protocol = security_protocol(given, prefix)
    resolved = {
        name: resolve(f"{prefix}{name}", value)
        for name, value in given.items()
        if name.startswith(("ssl.", "sasl.")) and name not in _WITHOUT_EFFECT
    }
    if protocol in ("SSL", "SASL_SSL"):
        settings = settings.replace(tls=_tls_context(resolved, prefix))
    if protocol.startswith("SASL_"):
        settings = settings.replace(sasl=_sasl(resolved, prefix))
    return settings


def security_protocol(given: Mapping[str, str], prefix: str = "") -> str:
    """The protocol of these options, after a check of all names of security options. Raises `InvalidConfig`."""
    security = [name for name in given if name.startswith(("ssl.", "sasl.")) or name in _LIBRDKAFKA]
    for name in security:
        _check_name(name, given[name], prefix)
    if "security.protocol" not in given:
        if security:
            wanted = "SASL_SSL" if any(name.startswith("sasl.") for name in security) else "SSL"
            raise InvalidConfig(
                f"{prefix}{security[0]} is set, but {prefix}security.protocol is not, so nothing would be encrypted or "
                f"authenticated: set {prefix}security.protocol={wanted}"
            )
        return PROTOCOLS[0]
    protocol = resolve(f"{prefix}security.protocol", given["security.protocol"]).strip().upper()
    if protocol not in PROTOCOLS:
        raise InvalidConfig(f"{prefix}security.protocol={protocol!r} is none of {', '.join(PROTOCOLS)}")
    return protocol


def is_client_option(name: str) -> bool:
    """Whether an option says how to connect: one that `client_settings` does not ignore."""
    return name in NUMBERS or name in ("client.id", "security.protocol") or name.startswith(("ssl.", "sasl."))


def known_options() -> Iterable[str]:
    """The names of all options that have an effect."""
    return ("security.protocol", *SSL_OPTIONS, *SASL_OPTIONS, "client.id", *NUMBERS)


def _check_name(name: str, value: str, prefix: str) -> None:
    if name in _LIBRDKAFKA:
        raise InvalidConfig(f"{prefix}{name} is librdkafka's name: the option is {prefix}{_LIBRDKAFKA[name]}")
    if name in _KAFKA_PYTHON and not prefix:
        raise InvalidConfig(f"{name} is kafka-python's name: the option is {_KAFKA_PYTHON[name]}")
    if name in SSL_OPTIONS or name in SASL_OPTIONS or name in _WITHOUT_EFFECT:
        return
    if name == _LOGIN_CALLBACKS and value.rpartition(".")[2] in _KNOWN_CALLBACKS:
        return
    if name.endswith(".class"):
        raise InvalidConfig(f"{prefix}{name} names a Java class, which headrace cannot load: remove it")
    near = get_close_matches(name, (*SSL_OPTIONS, *SASL_OPTIONS), n=1)
    hint = f"; did you mean {prefix}{near[0]}?" if near else ""
    raise InvalidConfig(f"{prefix}{name} is no option of a client{hint}")


def _tls_context(resolved: Mapping[str, str], prefix: str) -> "SSLContext":
    from headrace.network.tls.contexts import client_context

    try:
        return client_context({name: value for name, value in resolved.items() if name in SSL_OPTIONS})
    except InvalidConfig as wrong:
        raise InvalidConfig(f"{prefix}{wrong.message}" if wrong.message.startswith("ssl.") else wrong.message) from None


def _sasl(resolved: Mapping[str, str], prefix: str) -> SecretOptions:
    options = SecretOptions({name: value for name, value in resolved.items() if name.startswith("sasl.")})
    mechanism = options.get("sasl.mechanism", "").strip()
    if not mechanism:
        if "sasl.kerberos.service.name" not in options:
            raise InvalidConfig(
                f"{prefix}sasl.mechanism is not set: say SCRAM-SHA-512, SCRAM-SHA-256, PLAIN, OAUTHBEARER or GSSAPI"
            )
        mechanism = "GSSAPI"
    options["sasl.mechanism"] = mechanism
    return options


def _whole(name: str, text: str) -> int:
    value = resolve(name, text).strip()
    if not (value.isascii() and value.isdigit()):
        raise InvalidConfig(f"{name}={shown(name, value)!r} is not a whole number")
    return int(value)
