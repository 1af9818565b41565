"""This broker's place in the tree: the nodes that everything hangs from, the cluster's id, its own, its registration.

A registration lives as long as the session that made it. That of a process that was killed is left over until its
session times out:

    it names our data directory     nobody else can have that, for it is locked: deleted and made anew, in one multi
    it names none, or another       may be alive: waited for, as long as a session may take to end

A mark that fenced an earlier registration goes with the new one, in the same multi.

Source: Kafka's `KafkaZkClient.registerBroker`, which deletes what is left over of its own last session only.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from headrace.coordination import paths, uuids
from headrace.coordination.model import Broker
from headrace.coordination.tree import (
    BadVersion,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    Op,
    Tree,
    WatchEvent,
    parent_of,
)
from headrace.types import BrokerId

log = logging.getLogger(__name__)


class BrokerIdInUse(Exception):
    """Another live broker has registered under this broker's id."""


async def ensure_cluster(
    tree: Tree, proposed: str | None = None, new_uuid: Callable[[], bytes] = uuids.random_uuid
) -> str:
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
    cluster_id = proposed or uuids.to_text(new_uuid())
    content = {paths.FEATURE: paths.encode_feature(), paths.CLUSTER_ID: paths.encode_cluster_id(cluster_id)}
    missing: list[Op] = [Create(path, content.get(path, b"")) for path, node in found.items() if node is None]
    try:
        if missing:
            await tree.multi(missing)
    except NodeExists:  # another broker starts at this moment
        return await ensure_cluster(tree, proposed, new_uuid)
    node = found[paths.CLUSTER_ID]
    return cluster_id if node is None else paths.decode_cluster_id(node.data)


async def next_broker_id(tree: Tree, reserved_max: int) -> BrokerId:
    """An id that no broker has had, above `reserved_max`. Source: Kafka's `generateBrokerId`."""
    while True:
        node = await tree.get(paths.BROKER_SEQUENCE)
        try:
            return BrokerId(reserved_max + await tree.set(paths.BROKER_SEQUENCE, b"", node.version))
        except BadVersion:
            continue  # another broker was first


async def register_broker(tree: Tree, broker: Broker, now_ms: int, *, patience_ms: int = 0) -> Broker:
    """Registers for as long as this session lives; the broker with its epoch.

    Waits up to `patience_ms` for another's registration to go; raises `BrokerIdInUse` if it stays.
    """
    path, data = paths.broker(broker.id), paths.encode_broker(broker, now_ms)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_ms / 1000
    while True:
        changed = asyncio.Event()

        def wake(_: WatchEvent, changed: asyncio.Event = changed) -> None:
            changed.set()

        found = await tree.exists(path, wake)
        is_own = found is not None and _is_of_directory(found, broker)
        if found is None or is_own:
            try:
                removal = [*(await _removal(tree, broker.id, found)), *(await _unmark(tree, broker.id))]
                await tree.multi([*removal, Create(path, data, ephemeral=True)])
                node = await tree.get(path)
            except (NodeExists, NoNode, BadVersion):
                continue  # it changed meanwhile
            if found is not None:
                log.info("took over the registration that was left of an earlier life")
            return broker._replace(epoch=node.czxid)
        if loop.time() >= deadline:
            raise BrokerIdInUse(
                f"broker id {broker.id} is registered by another broker: {_endpoints(found, broker.id)}"
            )
        log.warning("broker id %d is registered already; waiting for that session to end", broker.id)
        try:
            async with asyncio.timeout_at(deadline):
                await changed.wait()
        except TimeoutError:
            continue


def _is_of_directory(node: Node, broker: Broker) -> bool:
    try:
        directory = paths.decode_broker(broker.id, node.data, node.czxid).directory
    except paths.CorruptNode:
        return False
    return directory is not None and directory == broker.directory


async def _removal(tree: Tree, broker_id: BrokerId, left: Node | None) -> Sequence[Op]:
    """Deletes what a dead process left: its registration, and its office if it was controller.

    Versions begin anew when a node is made anew. What is deleted must still be what was read, so the controller's
    epoch is checked, which every new controller raises.
    """
    if left is None:
        return ()
    controller, epoch = await tree.get_many([paths.CONTROLLER, paths.CONTROLLER_EPOCH])
    removal: list[Op] = [Delete(paths.broker(broker_id), left.version)]
    if controller is not None and epoch is not None and controller.ephemeral_owner == left.ephemeral_owner:
        removal += [Check(paths.CONTROLLER_EPOCH, epoch.version), Delete(paths.CONTROLLER, controller.version)]
    return removal


async def _unmark(tree: Tree, broker_id: BrokerId) -> Sequence[Op]:
    mark = await tree.exists(paths.fenced(broker_id))
    return () if mark is None else (Delete(paths.fenced(broker_id), mark.version),)


def _endpoints(node: Node, broker_id: BrokerId) -> str:
    try:
        endpoints = paths.decode_broker(broker_id, node.data, node.czxid).endpoints
    except paths.CorruptNode as error:
        return str(error)
    return ", ".join(map(str, endpoints))
