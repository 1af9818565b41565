"""The ensemble that `zookeeper.*` settings name, and the tree on it."""

from pathlib import Path

from headrace.broker.options import Refused
from headrace.config import BrokerConfig
from headrace.coordination.tree import NotAllowed, Tree, TreeError
from headrace.errors import InvalidConfig

PORT = 2181


async def open_ensemble(config: BrokerConfig) -> Tree:
    """A tree with a session. Raises `InvalidConfig`; `Refused`, when there is no server, no kazoo, or no permission."""
    given = f"zookeeper.connect={config.zookeeper_connect}"
    hosts, root = parse_address(config.zookeeper_connect)
    try:
        from headrace.coordination.zookeeper import Ensemble, Tls, Unreachable, open_tree
    except ImportError as error:
        raise Refused(f"{given} needs kazoo ({error}): pip install 'headrace[zookeeper]'") from error
    check_broker_id(config)
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
        raise InvalidConfig("zookeeper.set.acl=true needs headrace.zookeeper.digest: whose would the nodes be?")
    ensemble = Ensemble(
        hosts,
        root,
        config.zookeeper_session_timeout_ms,
        config.zookeeper_connection_timeout_ms or config.zookeeper_session_timeout_ms,
        tls,
        config.zookeeper_digest,
        config.zookeeper_set_acl,
    )
    try:
        return await open_tree(ensemble)
    except Unreachable as error:
        raise Refused(f"{given}: {error}; is the ensemble running, and is this its address{_over(tls)}?") from error
    except NotAllowed as error:
        user = config.zookeeper_digest.partition(":")[0]
        who = f"the user {user!r}" if user else "a broker that does not say who it is (headrace.zookeeper.digest)"
        raise Refused(f"{given}: access control lists keep {who} from what it needs") from error
    except TreeError as error:
        raise Refused(f"{given}: {type(error).__name__}: {' '.join(map(str, error.args))}") from error


def check_broker_id(config: BrokerConfig) -> None:
    """Raises `InvalidConfig` for an id that the cluster may hand out to another broker, or that nobody may hand out."""
    if config.broker_id < 0 and not config.broker_id_generation_enable:
        raise InvalidConfig("broker.id=-1 needs broker.id.generation.enable=true")
    if config.broker_id_generation_enable and config.broker_id > config.reserved_broker_max_id:
        raise InvalidConfig(
            f"broker.id={config.broker_id} is above reserved.broker.max.id={config.reserved_broker_max_id}, where ids "
            "are handed out: raise that, or set broker.id.generation.enable=false on every broker"
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
        raise InvalidConfig(f"{name}={location} is not a PEM file; Java's own formats are not read")
    return location


def _over(tls: object) -> str:
    return ", and does it speak TLS with these certificates" if tls else ""
