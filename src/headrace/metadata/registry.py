"""The broker registry: creates the cluster's persistent nodes and id, broker ids, and broker registrations.

A registration lives as long as the session that made it. The registration of a killed process remains until its session
times out:

    names this data directory       replaced in one multi: the directory is locked, so its broker cannot be alive
    names none, or another one      its broker may be alive: waits for it, as long as a session may take to end

The same multi deletes the mark that fenced an earlier registration, and the note that an unclean shutdown before it was
handled.

Source: Kafka's `KafkaZkClient.registerBroker`, which replaces only the registration of its own last session.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from headrace.metadata import uuids, znodes
from headrace.metadata.model import Broker
from headrace.metastore.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    MetadataStore,
    Node,
    NodeExists,
    NoNode,
    Op,
    WatchEvent,
    parent_of,
)
from headrace.types import BrokerId

log = logging.getLogger(__name__)


class BrokerIdInUse(Exception):
    """Another live broker has registered under this broker's id."""


async def ensure_cluster(
    store: MetadataStore, proposed: str | None = None, new_uuid: Callable[[], bytes] = uuids.random_uuid
) -> str:
    """The cluster's id. Creates the persistent nodes that are missing, in one write.

    A new cluster gets the id `proposed`, or else a random one.
    """
    wanted: dict[str, None] = {}
    for path in (*znodes.PERSISTENT, znodes.FEATURE, znodes.CLUSTER_ID):
        above = []
        while path != "/":
            above.append(path)
            path = parent_of(path)
        wanted.update(dict.fromkeys(reversed(above)))
    found = dict(zip(wanted, await store.get_many(list(wanted)), strict=True))
    cluster_id = proposed or uuids.to_text(new_uuid())
    content = {znodes.FEATURE: znodes.encode_feature(), znodes.CLUSTER_ID: znodes.encode_cluster_id(cluster_id)}
    missing: list[Op] = [Create(path, content.get(path, b"")) for path, node in found.items() if node is None]
    try:
        if missing:
            await store.multi(missing)
    except NodeExists:  # another broker starts at the same time
        return await ensure_cluster(store, proposed, new_uuid)
    node = found[znodes.CLUSTER_ID]
    return cluster_id if node is None else znodes.decode_cluster_id(node.data)


async def next_broker_id(store: MetadataStore, reserved_max: int) -> BrokerId:
    """A new broker id, above `reserved_max`. Source: Kafka's `generateBrokerId`."""
    while True:
        node = await store.get(znodes.BROKER_SEQUENCE)
        try:
            return BrokerId(reserved_max + await store.set(znodes.BROKER_SEQUENCE, b"", node.version))
        except BadVersion:
            continue  # another broker was first


async def register_broker(store: MetadataStore, broker: Broker, now_ms: int, *, patience_ms: int = 0) -> Broker:
    """Registers a broker for as long as this session lives. Returns it with its broker epoch.

    Waits up to `patience_ms` for another broker's registration to go. Raises `BrokerIdInUse` if it stays.
    """
    path, data = znodes.broker(broker.id), znodes.encode_broker(broker, now_ms)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_ms / 1000
    while True:
        changed = asyncio.Event()

        def wake(_: WatchEvent, changed: asyncio.Event = changed) -> None:
            changed.set()

        found = await store.exists(path, wake)
        is_own = found is not None and _is_of_directory(found, broker)
        if found is None or is_own:
            try:
                removal = [*(await _removal(store, broker.id, found)), *(await _unmark(store, broker.id))]
                await store.multi([*removal, Create(path, data, ephemeral=True)])
                node = await store.get(path)
            except (NodeExists, NoNode, BadVersion):
                continue  # it changed meanwhile
            if found is not None:
                log.info("the registration of an earlier process of broker %d was replaced", broker.id)
            return broker._replace(epoch=node.czxid)
        if loop.time() >= deadline:
            raise BrokerIdInUse(
                f"broker id {broker.id} is registered by another broker at {_endpoints(found, broker.id)}; "
                "stop that broker or choose another broker.id"
            )
        log.warning("broker id %d is still registered; waiting until the session of that registration ends", broker.id)
        try:
            async with asyncio.timeout_at(deadline):
                await changed.wait()
        except TimeoutError:
            continue


def _is_of_directory(node: Node, broker: Broker) -> bool:
    try:
        directory = znodes.decode_broker(broker.id, node.data, node.czxid).directory
    except znodes.CorruptNode:
        return False
    return directory is not None and directory == broker.directory


async def _removal(store: MetadataStore, broker_id: BrokerId, left: Node | None) -> Sequence[Op]:
    """Deletes the nodes of a dead process: its registration, and /controller if it was controller.

    The version of a recreated node starts at 0 again, so it does not prove that /controller is still the one that was
    read. The check of /controller_epoch does, because every new controller raises it.
    """
    if left is None:
        return ()
    controller, epoch = await store.get_many([znodes.CONTROLLER, znodes.CONTROLLER_EPOCH])
    removal: list[Op] = [Delete(znodes.broker(broker_id), left.version)]
    if controller is not None and epoch is not None and controller.ephemeral_owner == left.ephemeral_owner:
        removal += [Check(znodes.CONTROLLER_EPOCH, epoch.version), Delete(znodes.CONTROLLER, controller.version)]
    return removal


async def _unmark(store: MetadataStore, broker_id: BrokerId) -> Sequence[Op]:
    marks = [znodes.fenced(broker_id), znodes.unclean_shutdown(broker_id)]
    found = await store.get_many(marks)
    return [Delete(path, node.version) for path, node in zip(marks, found, strict=True) if node is not None]


def _endpoints(node: Node, broker_id: BrokerId) -> str:
    try:
        endpoints = znodes.decode_broker(broker_id, node.data, node.czxid).endpoints
    except znodes.CorruptNode as error:
        return str(error)
    return ", ".join(map(str, endpoints))
