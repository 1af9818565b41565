"""The ensemble that `zookeeper.*` settings name, and the tree on it."""

from headrace.broker.options import Refused
from headrace.config import BrokerConfig
from headrace.coordination.ensemble import ensemble_of
from headrace.coordination.tree import NotAllowed, Tree, TreeError
from headrace.errors import InvalidConfig


async def open_ensemble(config: BrokerConfig) -> Tree:
    """A tree with a session. Raises `InvalidConfig`; `Refused`, when there is no server, no kazoo, or no permission."""
    given = f"zookeeper.connect={config.zookeeper_connect}"
    ensemble = ensemble_of(config)
    check_broker_id(config)
    try:
        from headrace.coordination.zookeeper import Unreachable, open_tree
    except ImportError as error:
        raise Refused(f"{given} needs kazoo ({error}): pip install 'headrace[zookeeper]'") from error
    try:
        return await open_tree(ensemble)
    except Unreachable as error:
        raise Refused(
            f"{given}: {error}; is the ensemble running, and is this its address{_over(ensemble.tls)}?"
        ) from error
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


def _over(tls: object) -> str:
    return ", and does it speak TLS with these certificates" if tls else ""
