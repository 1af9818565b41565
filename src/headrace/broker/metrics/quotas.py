"""Metrics of quotas: how often, and for how long, clients were told to wait."""

from collections.abc import Iterable

from headrace.broker.metrics.family import SUMMARY, Family, Sample, gauge
from headrace.broker.request.throttling import Throttling
from headrace.network.connection_limits import ConnectionLimits
from headrace.quotas.client_quotas import Throttled


def families(throttling: Throttling, limits: ConnectionLimits) -> Iterable[Family]:
    """The metrics of quotas on requests and on new connections."""
    kinds = {kind.name.lower().replace("_", ""): quotas for kind, quotas in throttling.by_kind.items()}
    yield Family(
        "kafka_server_clientquotas_throttletimems",
        SUMMARY,
        "Milliseconds that clients over their quota were told to wait.",
        [sample for name, quotas in kinds.items() for sample in _samples({"quota": name}, quotas.throttled)],
    )
    yield gauge(
        "kafka_server_clientquotas_trackedclients",
        "Users and clients whose use is tracked.",
        [({"quota": name}, len(quotas)) for name, quotas in kinds.items()],
    )
    waits = {"listener": limits.quotas.throttled_listeners, "ip": limits.quotas.throttled_addresses}
    yield Family(
        "kafka_server_socket_server_metrics_connection_accept_throttle_time",
        SUMMARY,
        "Milliseconds that new connections had to wait for the rates of listeners or of addresses.",
        [sample for name, throttled in waits.items() for sample in _samples({"quota": name}, throttled)],
    )


def _samples(labels: dict[str, str], throttled: Throttled) -> list[Sample]:
    return [Sample("_count", labels, throttled.count), Sample("_sum", labels, throttled.total_ms)]
