"""From the tree to what the controller decides on. A node that somebody wrote wrongly is left out, with an error."""

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from headrace.coordination import paths
from headrace.coordination.cluster import ClusterState
from headrace.coordination.model import Broker
from headrace.coordination.tree import Node, Tree, Watch
from headrace.types import BrokerId

log = logging.getLogger(__name__)

T = TypeVar("T")


def _read(what: str, decode: Callable[[], T]) -> T | None:
    try:
        return decode()
    except paths.CorruptNode as error:
        log.error("%s is left out: %s", what, error)
        return None


async def load_brokers(tree: Tree, watch: Watch | None = None) -> dict[BrokerId, Broker]:
    """The live brokers: registered, and not fenced in that registration.

    `watch` fires when one comes or goes. A registration made anew is seen as another child.
    """
    ids = [int(name) for name in await tree.children(paths.BROKER_IDS, watch)]
    nodes = await tree.get_many([*map(paths.broker, ids), *map(paths.fenced, ids)])
    found = {}
    for number, node, mark in zip(ids, nodes[: len(ids)], nodes[len(ids) :], strict=True):
        if node is not None:
            broker = _read(paths.broker(number), partial(paths.decode_broker, number, node.data, node.czxid))
            if broker is not None and not (mark and is_marked(mark, broker)):
                found[broker.id] = broker
    return found


def is_marked(mark: Node, broker: Broker) -> bool:
    """Whether a broker is fenced in its present registration; the mark may be one of an earlier."""
    return _read(paths.fenced(broker.id), partial(paths.decode_fenced, mark.data)) == broker.epoch


async def load_cluster(
    tree: Tree, *, on_brokers: Watch | None = None, on_topics: Watch | None = None, on_topic: Watch | None = None
) -> ClusterState:
    """Everything that the controller decides on, with watches on the brokers, on the topics' names and on each topic.

    The marks on topics to be deleted are read, and left to whoever watches them.
    """
    state = ClusterState(brokers=await load_brokers(tree, on_brokers))
    names = await tree.children(paths.TOPICS, on_topics)
    nodes = await tree.get_many([paths.topic(name) for name in names], on_topic)
    for name, node in zip(names, nodes, strict=True):
        topic = None if node is None else _read(paths.topic(name), partial(paths.decode_topic, name, node.data))
        if topic is None:
            continue
        if topic.partitions and all(each.replicas for each in topic.partitions.values()):
            state.topics[name] = topic
        else:
            log.error("%s is left out: a partition has no replicas, or there is no partition", paths.topic(name))
    partitions = [partition for partition, _ in state.partitions()]
    states = await tree.get_many([paths.partition_state(*partition) for partition in partitions])
    for partition, found in zip(partitions, states, strict=True):
        if found is not None:
            state.leadership[partition] = paths.decode_leadership(found.data, found.version, found.mzxid)
    state.deleting = set(await tree.children(paths.DELETE_TOPICS)) & set(state.topics)
    return state
