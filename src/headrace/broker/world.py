"""What a broker takes from outside itself: clock, disk, tree, the way to other brokers, chance.

The process that runs a broker gives it the real ones; a simulation gives it its own, and the same code runs. Time that
passes is the event loop's (`loop.time`, `call_later`), and so are threads (`run_in_executor`): a simulation's loop has
its own of both. Nothing of a broker may take these things from elsewhere.
"""

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from headrace.broker.peer_links import PeerLinks
from headrace.config import BrokerConfig
from headrace.coordination.embedded import EmbeddedTree
from headrace.coordination.peers import Peers
from headrace.coordination.tree import Tree
from headrace.log.files import Files, LocalFiles


def wall_clock_ms() -> int:
    """The time of day, in ms since 1970."""
    return time.time_ns() // 1_000_000


async def open_tree(config: BrokerConfig) -> Tree:
    """The tree on the ensemble that is named, or inside the first data directory. Raises `TreeInUse`,
    `TreeUnreadable`, `InvalidConfig`, `Refused`."""
    if config.zookeeper_connect:
        from headrace.broker.ensemble import open_ensemble  # with kazoo, which a broker alone does not load

        return await open_ensemble(config)
    return await EmbeddedTree.open(Path(config.log_dirs[0]))


class World(NamedTuple):
    """The surroundings of one broker."""

    now_ms: Callable[[], int] = wall_clock_ms
    files: Files = LocalFiles()
    open_tree: Callable[[BrokerConfig], Awaitable[Tree]] = open_tree
    make_peers: Callable[[str], Peers] = PeerLinks
    """The way to other brokers, given what this one calls itself."""
    random_bytes: Callable[[int], bytes] = os.urandom


REAL = World()
