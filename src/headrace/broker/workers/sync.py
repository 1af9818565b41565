"""Tells whether a cluster can spare a broker: whether every partition has all its replicas in sync."""

from headrace.metadata import znodes
from headrace.metadata.znodes import CorruptNode
from headrace.metastore.store import MetadataStore, NoNode

_TOPICS_PER_READ = 500


async def out_of_sync(store: MetadataStore) -> str | None:
    """A partition that lacks a replica in its ISR, as TOPIC-NUMBER; None if there is none. A topic that is created or
    deleted meanwhile may be left out."""
    try:
        names = await store.children(znodes.TOPICS)
    except NoNode:
        return None
    for start in range(0, len(names), _TOPICS_PER_READ):
        some = names[start : start + _TOPICS_PER_READ]
        nodes = await store.get_many([znodes.topic(name) for name in some])
        for name, node in zip(some, nodes, strict=True):
            if node is not None and (number := await _lacking(store, name, node.data)) is not None:
                return f"{name}-{number}"
    return None


async def _lacking(store: MetadataStore, name: str, data: bytes) -> int | None:
    """The number of a partition of the topic that lacks a replica."""
    try:
        assigned = znodes.decode_topic(name, data).partitions
    except CorruptNode:
        return None  # the controller leaves the topic out too, and says so
    numbers = sorted(assigned)
    states = await store.get_many([znodes.partition_state(name, number) for number in numbers])
    for number, state in zip(numbers, states, strict=True):
        if state is None:
            return number
        leadership = znodes.decode_leadership(state.data, state.version, state.mzxid)
        if not set(assigned[number].target) <= set(leadership.isr):
            return number
    return None
