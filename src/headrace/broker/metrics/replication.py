"""What replication tells of itself, under the names of Kafka's `ReplicaManager`, `ReplicaFetcherManager` and
`BrokerTopicMetrics`."""

from collections.abc import Iterable

from headrace.broker.metrics.family import Family, counter, gauge
from headrace.broker.replication import Replication

_MANAGER = "kafka_server_replicamanager"
_TRAFFIC = "kafka_server_brokertopicmetrics"


def families(replication: Replication) -> Iterable[Family]:
    """How ISRs changed, how far this broker is behind as a follower, and how much that took of the network."""
    changes = replication.isr_changes
    for name, text, value in (
        ("isrshrinks", "Followers taken out of ISRs of led partitions.", changes.shrinks),
        ("isrexpands", "Followers taken into ISRs of led partitions.", changes.expansions),
        ("failedisrupdates", "Changes of an ISR that the controller refused.", changes.refusals),
    ):
        yield counter(f"{_MANAGER}_{name}", text, [({}, value)])
    yield gauge(
        "kafka_server_replicafetchermanager_maxlag",
        "Records that the furthest behind of this broker's followers lacks.",
        [({"clientId": "Replica"}, replication.fetchers.max_lag)],
    )
    yield counter(f"{_TRAFFIC}_replicationbytesin", "Bytes fetched as a follower.", [({}, replication.bytes_in)])
    yield counter(f"{_TRAFFIC}_replicationbytesout", "Bytes sent to followers.", [({}, replication.bytes_out)])
