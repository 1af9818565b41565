"""Metrics of failed data directories, under the names of Kafka's `LogManager` and `ReplicaManager`."""

from collections.abc import Iterable

from headrace.broker.metrics.family import Family, gauge, number
from headrace.broker.partitions.replica_manager import ReplicaManager


def families(replicas: ReplicaManager) -> Iterable[Family]:
    """Returns the number of offline directories, the state of each directory, and the number of offline partitions."""
    logs = replicas.logs
    states = {str(each.path): 0 for each in logs.directories.in_use} | {
        str(path): 1 for path in logs.directories.offline
    }
    name = "kafka_log_logmanager"
    yield number(f"{name}_offlinelogdirectorycount", "Data directories that failed.", len(logs.directories.offline))
    rows = [({"logDirectory": path}, value) for path, value in sorted(states.items())]
    yield gauge(f"{name}_logdirectoryoffline", "1 if the data directory failed.", rows)
    name = "kafka_server_replicamanager_offlinereplicacount"
    yield number(name, "Partitions of this broker in data directories that failed.", len(replicas.offline))
