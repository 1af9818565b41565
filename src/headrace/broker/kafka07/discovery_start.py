"""Opens the session in which a broker is registered for clients of Kafka 0.7. Refuses a chroot that is not theirs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress

from headrace.broker.kafka07 import discovery_nodes as nodes
from headrace.broker.kafka07.discovery import Discovery
from headrace.broker.open_metastore import open_at
from headrace.broker.options import StartRefused
from headrace.broker.services import Services
from headrace.config import BrokerConfig
from headrace.errors import InvalidConfig
from headrace.metadata.model import Endpoint
from headrace.metastore.store import MetadataStore, NodeExists, ensure_path, parent_of
from headrace.metastore.zookeeper.ensemble import ensemble_of, parse_address
from headrace.network.listeners import ANY_ADDRESS, Listener
from headrace.network.zookeeper_kerberos import zookeeper_kerberos
from headrace.network.zookeeper_tls import zookeeper_context
from headrace.types import BrokerId

SETTING = "headrace.kafka07.zookeeper.chroot"


async def open_discovery(
    broker: Services, listeners: Sequence[Listener], endpoints: Sequence[Endpoint], stack: AsyncExitStack
) -> Discovery:
    """A discovery, whose `run` is to be started; its nodes go with the `stack`. `listeners` are bound.

    Raises `InvalidConfig`, and `StartRefused` if the chroot is another cluster's or cannot be written.
    """
    config = broker.config
    root = chroot_of(config)
    address = address_for_07(listeners, endpoints)
    ensemble = ensemble_of(config, zookeeper_context, zookeeper_kerberos)._replace(root=root, set_acl=False)
    given = f"{SETTING}={config.kafka07_zookeeper_chroot}"
    store = await open_at(ensemble, given)
    stack.push_async_callback(store.close)
    await claim_chroot(store, broker.cluster_id, given)
    id_ = BrokerId(config.broker_id)
    return Discovery(store, id_, address, broker.metadata, broker.replicas.configs, broker.now_ms)


def chroot_of(config: BrokerConfig) -> str:
    """The chroot, '' for the root. Raises `InvalidConfig`."""
    chroot = config.kafka07_zookeeper_chroot
    if not config.zookeeper_connect:
        raise InvalidConfig(f"{SETTING}={chroot} requires zookeeper.connect: Kafka 0.7's clients look there")
    if not chroot.startswith("/"):
        raise InvalidConfig(f"{SETTING}={chroot!r} is not a path such as /kafka07, or / for the root")
    try:
        _, root = parse_address(f"ensemble{chroot}")
    except InvalidConfig:
        raise InvalidConfig(f"{SETTING}={chroot!r} is not a path") from None
    _, own = parse_address(config.zookeeper_connect)
    if root == own:
        raise InvalidConfig(
            f"{SETTING}={chroot} is where zookeeper.connect={config.zookeeper_connect} keeps the cluster's own nodes, "
            "which have other contents: name another path"
        )
    return root


def address_for_07(listeners: Sequence[Listener], endpoints: Sequence[Endpoint]) -> tuple[str, int]:
    """The host and port that clients of 0.7 are told. A listener on all addresses has the host of the first advertised
    one. Raises `InvalidConfig`."""
    listener = next((each for each in listeners if each.is_07), None)
    if listener is None:
        raise InvalidConfig(f"{SETTING} requires a listener of protocol KAFKA07, which clients of Kafka 0.7 connect to")
    host = endpoints[0].host if listener.host in ("", *ANY_ADDRESS) else listener.host
    if ":" in host:
        raise InvalidConfig(f"{SETTING}: clients of Kafka 0.7 cannot read the address {host}: listen on a host's name")
    return host, listener.port


async def claim_chroot(store: MetadataStore, cluster_id: str, given: str) -> None:
    """Notes whose chroot it is. Raises `StartRefused` if it belongs to another cluster, or has one's own nodes."""
    if await store.exists(nodes.TODAYS_CLUSTER_ID) is not None:
        raise StartRefused(
            f"{given}: a cluster keeps its metadata there, whose nodes have other contents: name another path"
        )
    await ensure_path(store, parent_of(nodes.CLUSTER))
    with suppress(NodeExists):
        await store.create(nodes.CLUSTER, cluster_id.encode())
    found = (await store.get(nodes.CLUSTER)).data.decode(errors="replace")
    if found != cluster_id:
        raise StartRefused(f"{given} belongs to cluster {found}, and this is {cluster_id}: name another path")
    for parent in ("/brokers/ids", "/brokers/topics", "/consumers"):
        await ensure_path(store, parent)
