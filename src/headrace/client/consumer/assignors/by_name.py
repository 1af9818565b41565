"""The assignors by the names that `partition.assignment.strategy` and groups give them."""

from collections.abc import Mapping

from headrace.client.consumer.assignors.cooperative_sticky import assign_cooperative_sticky
from headrace.client.consumer.assignors.member import Assignor
from headrace.client.consumer.assignors.range_assignor import assign_range
from headrace.client.consumer.assignors.round_robin import assign_round_robin
from headrace.client.consumer.assignors.sticky import assign_sticky

RANGE, ROUND_ROBIN, STICKY, COOPERATIVE_STICKY = "range", "roundrobin", "sticky", "cooperative-sticky"

ASSIGNORS: Mapping[str, Assignor] = {
    RANGE: assign_range,
    ROUND_ROBIN: assign_round_robin,
    STICKY: assign_sticky,
    COOPERATIVE_STICKY: assign_cooperative_sticky,
}

_CLASSES = {
    "RangeAssignor": RANGE,
    "RoundRobinAssignor": ROUND_ROBIN,
    "StickyAssignor": STICKY,
    "CooperativeStickyAssignor": COOPERATIVE_STICKY,
}


def assignor_name(given: str) -> str:
    """The name of an assignor that is given by its name or by Java's class."""
    return _CLASSES.get(given.strip().removeprefix("org.apache.kafka.clients.consumer."), given.strip())
