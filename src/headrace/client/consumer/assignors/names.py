"""The names of the assignors, as `partition.assignment.strategy` and groups give them."""

RANGE, ROUND_ROBIN, STICKY, COOPERATIVE_STICKY = "range", "roundrobin", "sticky", "cooperative-sticky"
NAMES = (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE_STICKY)

_CLASSES = {
    "RangeAssignor": RANGE,
    "RoundRobinAssignor": ROUND_ROBIN,
    "StickyAssignor": STICKY,
    "CooperativeStickyAssignor": COOPERATIVE_STICKY,
}


def assignor_name(given: str) -> str:
    """The name of an assignor that is given by its name or by Java's class."""
    return _CLASSES.get(given.strip().removeprefix("org.apache.kafka.clients.consumer."), given.strip())
