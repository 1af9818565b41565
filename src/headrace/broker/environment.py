"""A broker's environment: clock, disk, metadata store, connections to other brokers, randomness.

The process that runs a broker passes the real ones, a simulation passes its own, and the same code runs. Elapsed time
(`loop.time`, `call_later`) and threads (`run_in_executor`) belong to the event loop, which the simulation replaces too.
No part of a broker may take any of these from elsewhere, or a seed would no longer replay.
"""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from headrace.clocks import wall_clock_ms
from headrace.config import BrokerConfig
from headrace.log.files import Files, LocalFiles
from headrace.metastore.embedded import EmbeddedStore
from headrace.metastore.store import MetadataStore
from headrace.network.peers.peer_links import make_links
from headrace.network.peers.peers import Peers

UNIX = "unix:"
"""What `zookeeper.connect` begins with when it names a socket: that of the tree which `headrace serve --workers`
serves."""


async def open_store(config: BrokerConfig) -> MetadataStore:
    """Opens the metadata store: on the ensemble in `zookeeper.connect`, over the socket in it, or embedded in the first
    data directory. Raises `StoreInUse`, `StoreUnreadable`, `InvalidConfig`, `StartRefused`."""
    if config.zookeeper_connect.startswith(UNIX):
        from headrace.metastore.shared.socket_link import open_store as open_shared

        return await open_shared(Path(config.zookeeper_connect[len(UNIX) :]), config.zookeeper_session_timeout_ms)
    if config.zookeeper_connect:
        from headrace.broker.open_metastore import open_ensemble  # imports kazoo, which a broker alone does not need

        return await open_ensemble(config)
    return await EmbeddedStore.open(Path(config.log_dirs[0]))


class Environment(NamedTuple):
    """The environment of one broker."""

    now_ms: Callable[[], int] = wall_clock_ms
    files: Files = LocalFiles()
    open_store: Callable[[BrokerConfig], Awaitable[MetadataStore]] = open_store
    make_peers: Callable[[str, Callable[[], BrokerConfig]], Peers] = make_links
    """Connections to other brokers, given this broker's client id and its settings as they are at any time."""
    random_bytes: Callable[[int], bytes] = os.urandom


REAL = Environment()
