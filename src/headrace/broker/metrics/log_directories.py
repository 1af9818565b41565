"""Which data directories have failed, under the names of Kafka's `LogManager` and `ReplicaManager`."""

from collections.abc import Iterable

from headrace.broker.metrics.family import Family, gauge, number
from headrace.broker.replica_manager import ReplicaManager


def families(replicas: ReplicaManager) -> Iterable[Family]:
    """How many are offline, each of them, and how many partitions that took offline."""
    logs = replicas.logs
    states = {str(each.path): 0 for each in logs.directories} | {str(path): 1 for path in logs.offline}
    name = "kafka_log_logmanager"
    yield number(f"{name}_offlinelogdirectorycount", "Data directories that failed.", len(logs.offline))
    rows = [({"logDirectory": path}, value) for path, value in sorted(states.items())]
    yield gauge(f"{name}_logdirectoryoffline", "1 where a data directory failed.", rows)
    name = "kafka_server_replicamanager_offlinereplicacount"
    yield number(name, "Partitions of this broker in data directories that failed.", len(replicas.offline))
