"""This broker's place in the tree: the nodes that everything hangs from, the cluster's id, the registration."""

from headrace.coordination import paths, uuids
from headrace.coordination.model import Broker
from headrace.coordination.tree import Create, NodeExists, Op, Tree, parent_of


class BrokerIdInUse(Exception):
    """Another live broker has registered under this broker's id."""


async def ensure_cluster(tree: Tree, proposed: str | None = None) -> str:
    """The cluster's id. Makes the persistent nodes that are missing, in one write.

    A new cluster takes `proposed` as its id, else a random one.
    """
    wanted: dict[str, None] = {}
    for path in (*paths.PERSISTENT, paths.FEATURE, paths.CLUSTER_ID):
        above = []
        while path != "/":
            above.append(path)
            path = parent_of(path)
        wanted.update(dict.fromkeys(reversed(above)))
    found = dict(zip(wanted, await tree.get_many(list(wanted)), strict=True))
    cluster_id = proposed or uuids.to_text(uuids.random_uuid())
    content = {paths.FEATURE: paths.encode_feature(), paths.CLUSTER_ID: paths.encode_cluster_id(cluster_id)}
    missing: list[Op] = [Create(path, content.get(path, b"")) for path, node in found.items() if node is None]
    try:
        if missing:
            await tree.multi(missing)
    except NodeExists:  # another broker starts at this moment
        return await ensure_cluster(tree, proposed)
    node = found[paths.CLUSTER_ID]
    return cluster_id if node is None else paths.decode_cluster_id(node.data)


async def register_broker(tree: Tree, broker: Broker, now_ms: int) -> Broker:
    """Registers for as long as this session lives; the broker with its epoch. Raises `BrokerIdInUse`."""
    path = paths.broker(broker.id)
    try:
        await tree.create(path, paths.encode_broker(broker, now_ms), ephemeral=True)
    except NodeExists:
        raise BrokerIdInUse(f"broker id {broker.id} is registered already") from None
    return broker._replace(epoch=(await tree.get(path)).czxid)
