"""The address of a ZooKeeper ensemble and the options of its connection, from the `zookeeper.*` settings.

zookeeper.ssl.*                        TLS, and with a key store who the broker is (scheme x509)
headrace.zookeeper.sasl.jaas.config    who it is, as in the section Client of a JAAS file (scheme sasl)
headrace.zookeeper.digest              who it is, as USER:PASSWORD (scheme digest)
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headrace.config import BrokerConfig
from headrace.errors import InvalidConfig

if TYPE_CHECKING:
    from ssl import SSLContext

    from headrace.security.jaas import LoginModule
    from headrace.security.sasl.exchange import ClientExchange

PORT = 2181
SASL_SETTING = "headrace.zookeeper.sasl.jaas.config"
_DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
_SSL = "zookeeper.ssl."

MakeContext = Callable[[Mapping[str, str]], "SSLContext"]
"""Makes a client's context from `ssl.*` settings. Raises `InvalidConfig`, which names them."""


MakeKerberos = Callable[["LoginModule"], Callable[[str], "ClientExchange"]]
"""Makes authentications at a host by a login module of Kerberos. Raises `InvalidConfig`."""


class SaslLogin:
    """The broker's identity for SASL: DIGEST-MD5, or Kerberos."""

    def __init__(
        self, username: str, password: str = "", kerberos: Callable[[str], "ClientExchange"] | None = None
    ) -> None:
        """`kerberos`: authentications at a host, in the place of a password."""
        self.username, self.password, self.kerberos = username, password, kerberos

    def __repr__(self) -> str:
        return f"the user {self.username!r}"


class Ensemble(NamedTuple):
    """The servers, and how to connect to them."""

    hosts: str  # HOST:PORT[,HOST:PORT...]
    root: str = ""  # the chroot, '' or /path
    session_timeout_ms: int = 6000
    connection_timeout_ms: int = 6000
    tls: "Callable[[], SSLContext] | None" = None  # reads the files anew each time
    digest: str = ""  # USER:PASSWORD
    set_acl: bool = False
    sasl: SaslLogin | None = None

    def __str__(self) -> str:
        """As `zookeeper.connect` names it."""
        return self.hosts + self.root

    @property
    def user(self) -> str:
        """The name that the broker gives, for messages; '' without one."""
        return self.sasl.username if self.sasl else self.digest.partition(":")[0]


def ensemble_of(config: BrokerConfig, make_context: MakeContext, make_kerberos: MakeKerberos) -> Ensemble:
    """The ensemble that the settings name. Reads the files of TLS once, to refuse what is wrong with them. Raises
    `InvalidConfig`."""
    hosts, root = parse_address(config.zookeeper_connect)
    tls = None
    if config.zookeeper_ssl_client_enable:
        tls = partial(_context, config, make_context)
        tls()
    if config.zookeeper_digest and ":" not in config.zookeeper_digest:
        raise InvalidConfig("headrace.zookeeper.digest is not USER:PASSWORD")
    is_somebody = (
        config.zookeeper_digest or config.zookeeper_sasl_jaas or (tls and config.zookeeper_ssl_keystore_location)
    )
    if config.zookeeper_set_acl and not is_somebody:
        raise InvalidConfig(
            f"zookeeper.set.acl=true requires an owner of the znodes: {SASL_SETTING}, headrace.zookeeper.digest, or a "
            "certificate (zookeeper.ssl.client.enable and zookeeper.ssl.keystore.location)"
        )
    return Ensemble(
        hosts,
        root,
        config.zookeeper_session_timeout_ms,
        config.zookeeper_connection_timeout_ms or config.zookeeper_session_timeout_ms,
        tls,
        config.zookeeper_digest,
        config.zookeeper_set_acl,
        _login(config.zookeeper_sasl_jaas, make_kerberos) if config.zookeeper_sasl_jaas else None,
    )


def _context(config: BrokerConfig, make_context: MakeContext) -> "SSLContext":
    try:
        return make_context(_ssl_settings(config))
    except InvalidConfig as error:
        raise InvalidConfig(re.sub(r"(?<![\w.])ssl\.(?=[a-z])", _SSL, error.message)) from None


def _ssl_settings(config: BrokerConfig) -> dict[str, str]:
    """The settings of TLS by the names that listeners have. ZooKeeper has one password for a key store and its key."""
    keystore, password = config.zookeeper_ssl_keystore_location, config.zookeeper_ssl_keystore_password
    truststore = config.zookeeper_ssl_truststore_location
    given = {
        "ssl.keystore.location": keystore,
        "ssl.keystore.type": config.zookeeper_ssl_keystore_type,
        "ssl.keystore.password": "" if keystore and _is_pem(keystore) else password,
        "ssl.key.password": password,
        "ssl.truststore.location": truststore,
        "ssl.truststore.type": config.zookeeper_ssl_truststore_type,
        "ssl.truststore.password": ""
        if truststore and _is_pem(truststore)
        else config.zookeeper_ssl_truststore_password,
        "ssl.enabled.protocols": ",".join(config.zookeeper_ssl_enabled_protocols),
        "ssl.cipher.suites": ",".join(config.zookeeper_ssl_cipher_suites),
    }
    found = {name: text for name, text in given.items() if text}
    return {**found, "ssl.endpoint.identification.algorithm": config.zookeeper_ssl_endpoint_identification_algorithm}


def _is_pem(location: str) -> bool:
    try:
        with Path(location).open("rb") as file:
            return b"-----BEGIN " in file.read(1 << 16)
    except OSError:
        return False  # told by whoever reads it


def _login(text: str, make_kerberos: MakeKerberos) -> SaslLogin:
    from headrace.security.jaas import parse_jaas

    try:
        modules = parse_jaas(text)
        if len(modules) == 1 and modules[0].name.endswith(".Krb5LoginModule"):
            who = modules[0].options.get("principal") or "of the tickets of kinit"
            return SaslLogin(who, kerberos=make_kerberos(modules[0]))
    except InvalidConfig as error:
        raise InvalidConfig(error.message.replace("sasl.jaas.config", SASL_SETTING)) from None
    options = modules[0].options
    username, password = options.get("username"), options.get("password")
    if len(modules) != 1 or modules[0].name != _DIGEST_MODULE or not username or password is None:
        raise InvalidConfig(f'{SASL_SETTING} is not {_DIGEST_MODULE} required username="…" password="…";')
    return SaslLogin(username, password)


def parse_address(text: str) -> tuple[str, str]:
    """(HOST:PORT,HOST:PORT,..., chroot: '' or '/path') of `zookeeper.connect`. Raises `InvalidConfig`."""
    servers, _, chroot = text.partition("/")
    hosts = [each.strip() for each in servers.split(",")]
    parts = chroot.rstrip("/").split("/") if chroot.strip("/") else []
    if any(part in ("", ".", "..") for part in parts):
        raise InvalidConfig(f"zookeeper.connect={text!r}: '/{chroot}' is not a path")
    full = []
    for each in hosts:
        bracketed = each.startswith("[") and "]" in each
        host, colon, port = each.rpartition(":") if not each.endswith("]") else (each, "", "")
        if not colon:
            host, port = each, str(PORT)
        if not host or (":" in host and not bracketed) or not (port.isascii() and port.isdigit()) or int(port) > 65535:
            raise InvalidConfig(f"zookeeper.connect={text!r}: {each!r} is not HOST:PORT")
        full.append(f"{host}:{port}")
    return ",".join(full), "/" + "/".join(parts) if parts else ""
