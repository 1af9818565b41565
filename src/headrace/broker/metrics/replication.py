"""Metrics of replication, under the names of Kafka's `ReplicaManager`, `ReplicaFetcherManager` and
`BrokerTopicMetrics`."""

from collections.abc import Iterable

from headrace.broker.metrics.family import Family, counter, gauge
from headrace.broker.replication.replication_service import Replication

_MANAGER = "kafka_server_replicamanager"
_TRAFFIC = "kafka_server_brokertopicmetrics"


def families(replication: Replication) -> Iterable[Family]:
    """Returns the changes of ISRs, this broker's lag as a follower, and the replication traffic."""
    changes = replication.isr_changes
    for name, text, value in (
        ("isrshrinks", "Followers removed from the ISR of a led partition.", changes.shrinks),
        ("isrexpands", "Followers added to the ISR of a led partition.", changes.expansions),
        ("failedisrupdates", "ISR changes that the controller refused.", changes.refusals),
    ):
        yield counter(f"{_MANAGER}_{name}", text, [({}, value)])
    yield gauge(
        "kafka_server_replicafetchermanager_maxlag",
        "The maximum number of records that a replica on this broker is behind its leader.",
        [({"clientId": "Replica"}, replication.fetchers.max_lag)],
    )
    yield counter(f"{_TRAFFIC}_replicationbytesin", "Bytes fetched from leaders.", [({}, replication.bytes_in)])
    yield counter(f"{_TRAFFIC}_replicationbytesout", "Bytes sent to followers.", [({}, replication.bytes_out)])
