"""Opens the metadata store on the ZooKeeper ensemble that the `zookeeper.*` settings name."""

import logging

from headrace.broker.options import StartRefused
from headrace.config import BrokerConfig
from headrace.errors import InvalidConfig
from headrace.metastore.store import MetadataStore, NotAllowed, StoreError
from headrace.metastore.zookeeper.ensemble import SASL_SETTING, Ensemble, ensemble_of
from headrace.network.zookeeper_kerberos import zookeeper_kerberos
from headrace.network.zookeeper_tls import zookeeper_context

log = logging.getLogger(__name__)


async def open_ensemble(config: BrokerConfig) -> MetadataStore:
    """Opens a metadata store with a session. Raises `InvalidConfig`, and `StartRefused` when no server answers, kazoo
    is not installed, or access control lists deny access."""
    given = f"zookeeper.connect={config.zookeeper_connect}"
    ensemble = ensemble_of(config, zookeeper_context, zookeeper_kerberos)
    check_broker_id(config)
    if not ensemble.set_acl and (config.authorizer_class_name or _has_passwords(config)):
        log.warning(
            "zookeeper.set.acl is false: whoever reaches ZooKeeper can read the keys of users' passwords, and make "
            "users and access control lists"
        )
    return await open_at(ensemble, given)


async def open_at(ensemble: Ensemble, given: str) -> MetadataStore:
    """Opens a store with a session of its own. Raises `StartRefused`, which says what was `given`."""
    try:
        from headrace.metastore.zookeeper.connection import NotAuthenticated, ZooKeeperUnreachable, open_store
    except ImportError as error:
        raise StartRefused(f"{given} requires kazoo ({error}): pip install 'headrace[zookeeper]'") from error
    try:
        return await open_store(ensemble)
    except ZooKeeperUnreachable as error:
        raise StartRefused(
            f"{given}: {error}; check that the ensemble is running and that this is its address{_over(ensemble.tls)}"
        ) from error
    except NotAuthenticated as error:
        raise StartRefused(f"{given}: {error}") from error
    except NotAllowed as error:
        who = (
            f"the user {ensemble.user!r}"
            if ensemble.user
            else f"a broker without {SASL_SETTING} or headrace.zookeeper.digest"
        )
        raise StartRefused(f"{given}: the access control lists deny {who} an operation that it needs") from error
    except StoreError as error:
        raise StartRefused(f"{given}: {type(error).__name__}: {' '.join(map(str, error.args))}") from error


def check_broker_id(config: BrokerConfig) -> None:
    """Raises `InvalidConfig` when the cluster could generate the same id for another broker, or may generate none."""
    if config.broker_id < 0 and not config.broker_id_generation_enable:
        raise InvalidConfig("broker.id=-1 requires broker.id.generation.enable=true")
    if config.broker_id_generation_enable and config.broker_id > config.reserved_broker_max_id:
        raise InvalidConfig(
            f"broker.id={config.broker_id} is above reserved.broker.max.id={config.reserved_broker_max_id}, among the "
            "generated ids: raise that setting, or set broker.id.generation.enable=false on every broker"
        )


def _has_passwords(config: BrokerConfig) -> bool:
    """Whether users' passwords are in ZooKeeper."""
    return any(each.startswith("SCRAM-") for each in config.sasl_enabled_mechanisms)


def _over(tls: object) -> str:
    return ", and that it accepts TLS with these certificates" if tls else ""
