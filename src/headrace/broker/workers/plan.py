"""The settings of each worker, from those that `headrace serve --workers N` was given.

    broker.id                    broker.id + k
    log.dirs                     DIR/worker-k for each
    listeners, advertised.*      port + k; port 0 stays
    broker.rack                  the name of the host, so that replicas spread over hosts
    headrace.metrics.listen      a socket of the supervisor's, which answers for all
    zookeeper.connect            as given, or the supervisor's own tree

Without ZooKeeper the cluster has N brokers for ever, so the internal topics get at most N replicas.
"""

import socket
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

from headrace.broker.environment import UNIX
from headrace.broker.options import StartRefused
from headrace.config import BrokerConfig
from headrace.errors import InvalidConfig
from headrace.log.directories.meta_properties import FILE_NAME as META_FILE
from headrace.metastore.database import FILE_NAME as TREE_FILE
from headrace.network.listeners import PORT_MAX, Listener, parse_listeners, parse_protocols

TREE = "tree"
"""The directory of the supervisor's tree, in the first data directory."""

_REPLICATION_FACTORS = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
)
_MIN_ISRS = ("transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr")


def check(config: BrokerConfig, workers: int) -> None:
    """Raises `InvalidConfig` or `StartRefused` when the settings cannot be divided among workers."""
    if workers < 1:
        raise InvalidConfig(f"--workers={workers} is not at least 1")
    if config.broker_id < 0:
        raise InvalidConfig("--workers numbers the brokers from broker.id on: broker.id=-1 has no such number")
    for name, addresses in (("listeners", config.listeners), ("advertised.listeners", config.advertised_listeners)):
        _check_ports(name, _parsed(addresses, config), workers)
    for each in config.log_dirs:
        if Path(each, META_FILE).exists():
            raise StartRefused(
                f"data directory {each} belongs to one broker: start it without --workers, or name another directory. "
                f"--workers keeps the brokers' data in {Path(each, 'worker-0')} and so on."
            )


def _check_ports(name: str, listeners: Sequence[Listener], workers: int) -> None:
    taken = {each.name: range(each.port, each.port + workers) for each in listeners if each.port}
    for ports in taken.values():
        if ports[-1] > PORT_MAX:
            raise InvalidConfig(f"{name}: {workers} workers take the ports from {ports[0]} on, up to {ports[-1]}")
    for (one, its), (other, others) in combinations(taken.items(), 2):
        if its[0] in others or others[0] in its:
            raise InvalidConfig(
                f"{name}: {workers} workers take the ports {its[0]} to {its[-1]} for {one} and {others[0]} to "
                f"{others[-1]} for {other}, which overlap: leave {workers} ports between them"
            )


def directory_of_workers(config: BrokerConfig) -> str | None:
    """The first data directory that `--workers` has made; None if there is none. Such a directory is not a broker's."""
    for each in config.log_dirs:
        if Path(each, TREE, TREE_FILE).exists() or Path(each, "worker-0", META_FILE).exists():
            return each
    return None


def left_out(config: BrokerConfig, workers: int) -> list[str]:
    """The data directories of workers beyond `workers`, which were started once."""
    found = [path for each in config.log_dirs for path in Path(each).glob("worker-*")]
    return sorted(str(path) for path in found if path.name[7:].isdecimal() and int(path.name[7:]) >= workers)


def settings_of(
    worker: int, workers: int, config: BrokerConfig, given: Mapping[str, str], sockets: Path
) -> dict[str, str]:
    """What worker number `worker` has instead of the settings that were given. `sockets` is the directory of the
    supervisor's sockets."""
    settings = {
        "broker.id": str(config.broker_id + worker),
        "log.dirs": ",".join(str(Path(each, f"worker-{worker}")) for each in config.log_dirs),
        "listeners": _shifted(config.listeners, config, worker),
    }
    if config.advertised_listeners:
        settings["advertised.listeners"] = _shifted(config.advertised_listeners, config, worker)
    if not config.broker_rack:
        settings["broker.rack"] = socket.gethostname()
    if config.metrics_listen:
        settings["headrace.metrics.listen"] = UNIX + str(metrics_sockets(workers, sockets)[worker])
    if not config.zookeeper_connect:
        settings["zookeeper.connect"] = UNIX + str(sockets / TREE)
        for names, most in ((_REPLICATION_FACTORS, min(3, workers)), (_MIN_ISRS, min(2, workers))):
            settings.update({name: str(most) for name in names if name not in given})
    return settings


def metrics_sockets(workers: int, sockets: Path) -> dict[int, Path]:
    """Where each worker's metrics are served to the supervisor."""
    return {number: sockets / f"metrics-{number}" for number in range(workers)}


def _parsed(addresses: Sequence[str], config: BrokerConfig) -> Sequence[Listener]:
    return parse_listeners(addresses, parse_protocols(config.listener_security_protocol_map)) if addresses else ()


def _shifted(addresses: Sequence[str], config: BrokerConfig, worker: int) -> str:
    listeners = _parsed(addresses, config)
    return ",".join(str(each._replace(port=each.port + worker if each.port else 0)) for each in listeners)
