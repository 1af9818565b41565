"""Loads the controller's cluster state from the metadata store. A malformed node is skipped, with an error."""

import logging
from functools import partial

from headrace.controller.decisions.cluster_state import ClusterState
from headrace.in_slices import in_slices
from headrace.metadata import znodes
from headrace.metadata.left_out_nodes import decode_or_leave_out, is_marked
from headrace.metadata.model import Broker
from headrace.metastore.store import MetadataStore, Watch
from headrace.types import BrokerId

log = logging.getLogger(__name__)

TOPICS_PER_SLICE = 10
"""Topics that are decoded in one turn of the event loop: each may have hundreds of partitions."""


async def load_brokers(store: MetadataStore, watch: Watch | None = None) -> dict[BrokerId, Broker]:
    """The live brokers: registered, and not fenced in that registration. A broker counts as clean if its unclean
    shutdown was handled in its current registration.

    `watch` fires when a broker registers or goes. A new registration of the same broker is another child.
    """
    ids = []
    for name in await store.children(znodes.BROKER_IDS, watch):
        if name.isascii() and name.isdecimal():
            ids.append(int(name))
        else:
            log.error("%s/%s is no broker's registration and is ignored; delete the node", znodes.BROKER_IDS, name)
    count = len(ids)
    nodes = await store.get_many(
        [*map(znodes.broker, ids), *map(znodes.fenced, ids), *map(znodes.unclean_shutdown, ids)]
    )
    found = {}
    for number, node, mark, dealt in zip(ids, nodes[:count], nodes[count:-count], nodes[-count:], strict=True):
        if node is None:
            continue
        broker = decode_or_leave_out(
            znodes.broker(number), partial(znodes.decode_broker, number, node.data, node.czxid)
        )
        if broker is None or (mark is not None and is_marked(mark, broker)):
            continue
        if dealt is not None and is_marked(dealt, broker, znodes.unclean_shutdown(number)):
            broker = broker._replace(is_clean=True)
        found[broker.id] = broker
    return found


async def load_cluster(
    store: MetadataStore,
    *,
    on_brokers: Watch | None = None,
    on_topics: Watch | None = None,
    on_topic: Watch | None = None,
) -> ClusterState:
    """Loads everything that the controller decides on, with watches on the brokers, the topic names and each topic.

    Topics marked for deletion are read without a watch; `zk_tool_requests` sets that one.
    """
    state = ClusterState(brokers=await load_brokers(store, on_brokers))
    names = await store.children(znodes.TOPICS, on_topics)
    nodes = await store.get_many([znodes.topic(name) for name in names], on_topic)
    async for name, node in in_slices(zip(names, nodes, strict=True), TOPICS_PER_SLICE):
        topic = (
            None
            if node is None
            else decode_or_leave_out(znodes.topic(name), partial(znodes.decode_topic, name, node.data))
        )
        if topic is None:
            state.is_complete = state.is_complete and node is None
        elif topic.partitions and all(each.replicas for each in topic.partitions.values()):
            state.topics[name] = topic
        else:
            state.is_complete = False
            log.error(
                "%s is ignored: it has no partitions, or a partition without replicas; delete or correct the node",
                znodes.topic(name),
            )
    partitions = [partition for partition, _ in state.partitions()]
    states = await store.get_many([znodes.partition_state(*partition) for partition in partitions])
    async for partition, found in in_slices(zip(partitions, states, strict=True)):
        if found is not None:
            state.leadership[partition] = znodes.decode_leadership(found.data, found.version, found.mzxid)
    state.deleting = set(await store.children(znodes.DELETE_TOPICS)) & set(state.topics)
    return state
