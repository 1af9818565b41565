"""Metrics of the clients of instances: connections, and those that were refused."""

from collections.abc import Iterable

from headrace.broker.instances.listeners import InstanceListeners
from headrace.broker.metrics.family import Family, counter, gauge
from headrace.network.server import Server


def families(listeners: InstanceListeners, server: Server) -> Iterable[Family]:
    """The metrics of the instances that a broker serves; an instance that is gone has none."""
    visitors = listeners.visitors
    yield gauge(
        "headrace_instance_connections",
        "Open connections of an instance to this broker.",
        [({"instance": name}, server.limits.count(name)) for name in visitors],
    )
    yield counter(
        "headrace_instance_connections_refused",
        "Connections of an instance that were closed at once: its list does not allow the address (address), it has as "
        "many as it may have (connections_max), or it is not served (gone).",
        [
            ({"instance": name, "reason": reason}, count)
            for name, each in visitors.items()
            for reason, count in sorted(each.refused.items())
        ],
    )
