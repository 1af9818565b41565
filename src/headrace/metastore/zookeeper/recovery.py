"""Recovery after a new connection: finds out which lost writes were executed, and sets the watches again.

Its requests run in order on one connection. They fail with `ConnectionBroken` or `SessionLost` when the connection
does, and recovery starts again on the next one.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from headrace.limits import INT32_MAX
from headrace.metastore.store import (
    ANY_VERSION,
    Check,
    Create,
    EventKind,
    NodeExists,
    NoNode,
    Op,
    OpResult,
    Set,
    parent_of,
)
from headrace.metastore.zookeeper.link import Link, PendingAnswer, Stat, Watching, passed_on_to

UNKNOWN_VERSION = INT32_MAX
"""A version that no node has, so that a later write with it is refused."""


async def result_of(answer: PendingAnswer) -> Any:
    """Awaits the answer to a request of recovery."""
    answer.is_recovery = True
    future = asyncio.get_running_loop().create_future()
    answer.then = passed_on_to(future)
    return await future


async def ensure_path(link: Link, path: str) -> None:
    """Creates a persistent node and its ancestors, unless they exist."""
    parts = path.split("/")
    paths = ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]
    for each in [] if await result_of(link.stat(path, None)) else paths:
        if await result_of(link.stat(each, None)) is None:
            with suppress(NodeExists):
                await result_of(link.write([Create(each)]))


async def settle_writes(link: Link, root: str) -> None:
    """Waits until every earlier write of this session was executed or never will be: an empty write goes through the
    ensemble's leader, behind them."""
    await result_of(link.write([Check(root or "/")]))


async def lost_results(link: Link, marker: str, number: int, ops: Sequence[Op]) -> list[OpResult] | None:
    """The results of a write whose answer was lost; None if it was not executed.

    If another client has written the node since, its version is `UNKNOWN_VERSION`. If another client has deleted a
    sequential node since, its path is returned without the digits.
    """
    try:
        data, stat = await result_of(link.data(marker, None))
    except NoNode:
        return None
    if data != str(number).encode():
        return None
    return [await _result(link, op, stat.mzxid) for op in ops]


async def _result(link: Link, op: Op, zxid: int) -> OpResult:
    if isinstance(op, Create):
        return await _sequential(link, op, zxid) if op.sequential else op.path
    if not isinstance(op, Set):
        return None
    if op.version != ANY_VERSION:
        return op.version + 1
    stat: Stat | None = await result_of(link.stat(op.path, None))
    return stat.version if stat is not None and stat.mzxid == zxid else UNKNOWN_VERSION


async def _sequential(link: Link, op: Create, zxid: int) -> str:
    parent = parent_of(op.path)
    above = "" if parent == "/" else parent
    names, _ = await result_of(link.children(parent, None))
    for path in sorted(f"{above}/{name}" for name in names):
        if path.startswith(op.path) and len(path) == len(op.path) + 10:
            with suppress(NoNode):
                data, stat = await result_of(link.data(path, None))
                if stat.czxid == zxid and (data or b"") == op.data:
                    return path
    return op.path


async def set_watches(link: Link, root: str, watches: Sequence[Watching]) -> list[tuple[Watching, EventKind]]:
    """Sets the watches on this connection. Returns those that missed an event, with it."""
    found = await asyncio.gather(*(_set_watch(link, root, each) for each in watches))
    missed = [(watching, watching.missed(stat)) for watching, stat in zip(watches, found, strict=True)]
    return [(watching, kind) for watching, kind in missed if kind is not None]


async def _set_watch(link: Link, root: str, watching: Watching) -> Stat | None:
    path = root + watching.path if watching.path != "/" else root or "/"
    if not watching.of_children:
        stat: Stat | None = await result_of(link.stat(path, watching))
        return stat
    try:
        _, stat = await result_of(link.children(path, watching))
    except NoNode:
        return None
    return stat
