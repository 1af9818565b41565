"""The address of a ZooKeeper ensemble and the options of its connection, from the `zookeeper.*` settings."""

from pathlib import Path
from typing import NamedTuple

from headrace.config import BrokerConfig
from headrace.errors import InvalidConfig

PORT = 2181


class Tls(NamedTuple):
    """The TLS certificates of servers and client: PEM files; '' for none."""

    trusted: str = ""  # certificates; the system's when ''
    key_and_certificate: str = ""
    password: str = ""
    check_hostname: bool = True


class Ensemble(NamedTuple):
    """The servers, and how to connect to them."""

    hosts: str  # HOST:PORT[,HOST:PORT...]
    root: str = ""  # the chroot, '' or /path
    session_timeout_ms: int = 6000
    connection_timeout_ms: int = 6000
    tls: Tls | None = None
    digest: str = ""  # USER:PASSWORD
    set_acl: bool = False

    def __str__(self) -> str:
        """As `zookeeper.connect` names it."""
        return self.hosts + self.root


def ensemble_of(config: BrokerConfig) -> Ensemble:
    """The ensemble that the settings name. Raises `InvalidConfig`."""
    hosts, root = parse_address(config.zookeeper_connect)
    tls = None
    if config.zookeeper_ssl_client_enable:
        tls = Tls(
            _pem("zookeeper.ssl.truststore.location", config.zookeeper_ssl_truststore_location),
            _pem("zookeeper.ssl.keystore.location", config.zookeeper_ssl_keystore_location),
            config.zookeeper_ssl_keystore_password,
            bool(config.zookeeper_ssl_endpoint_identification_algorithm),
        )
    if config.zookeeper_digest and ":" not in config.zookeeper_digest:
        raise InvalidConfig("headrace.zookeeper.digest is not USER:PASSWORD")
    if config.zookeeper_set_acl and not config.zookeeper_digest:
        raise InvalidConfig(
            "zookeeper.set.acl=true requires headrace.zookeeper.digest, the credentials of the owner of the znodes"
        )
    return Ensemble(
        hosts,
        root,
        config.zookeeper_session_timeout_ms,
        config.zookeeper_connection_timeout_ms or config.zookeeper_session_timeout_ms,
        tls,
        config.zookeeper_digest,
        config.zookeeper_set_acl,
    )


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


def _pem(name: str, location: str) -> str:
    """The file's path. Raises `InvalidConfig` unless it can be read and looks like PEM."""
    if not location:
        return ""
    try:
        content = Path(location).read_bytes()
    except OSError as error:
        raise InvalidConfig(f"{name}={location}: {error.strerror}") from error
    if b"-----BEGIN " not in content:
        raise InvalidConfig(
            f"{name}={location} is not a PEM file; convert JKS or PKCS12 files to PEM, with keytool and openssl"
        )
    return location
