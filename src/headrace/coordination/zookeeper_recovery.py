"""From a new connection to a tree that is ready: lost writes are looked up, watches are set anew.

Everything here is asked in order on one connection; it ends with `ConnectionBroken` or `SessionLost` when that does,
and is done again on the next.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from headrace.coordination.tree import (
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
from headrace.coordination.zookeeper_link import Answer, Link, Stat, Watching, passed_on_to
from headrace.limits import INT32_MAX

UNKNOWN_VERSION = INT32_MAX
"""No node has it: a later write with it is refused."""


async def ask(answer: Answer) -> Any:
    """The answer to a request of recovery's own."""
    answer.is_recovery = True
    future = asyncio.get_running_loop().create_future()
    answer.then = passed_on_to(future)
    return await future


async def ensure_path(link: Link, path: str) -> None:
    """Makes the persistent node and those above it, unless they are there."""
    parts = path.split("/")
    paths = ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]
    for each in [] if await ask(link.stat(path, None)) else paths:
        if await ask(link.stat(each, None)) is None:
            with suppress(NodeExists):
                await ask(link.write([Create(each)]))


async def settle_writes(link: Link, root: str) -> None:
    """Waits until all that this session has asked for was done or never will be: through the leader, like a write."""
    await ask(link.write([Check(root or "/")]))


async def lost_results(link: Link, marker: str, number: int, ops: Sequence[Op]) -> list[OpResult] | None:
    """What a write was answered with whose answer was lost; None if it was not done.

    A version that is not to be known any more, because somebody wrote since, is `UNKNOWN_VERSION`; so is the name of a
    sequential node that somebody deleted since, which is told without its digits.
    """
    try:
        data, stat = await ask(link.data(marker, None))
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
    stat: Stat | None = await ask(link.stat(op.path, None))
    return stat.version if stat is not None and stat.mzxid == zxid else UNKNOWN_VERSION


async def _sequential(link: Link, op: Create, zxid: int) -> str:
    parent = parent_of(op.path)
    above = "" if parent == "/" else parent
    names, _ = await ask(link.children(parent, None))
    for path in sorted(f"{above}/{name}" for name in names):
        if path.startswith(op.path) and len(path) == len(op.path) + 10:
            with suppress(NoNode):
                data, stat = await ask(link.data(path, None))
                if stat.czxid == zxid and (data or b"") == op.data:
                    return path
    return op.path


async def set_watches(link: Link, root: str, watches: Sequence[Watching]) -> list[tuple[Watching, EventKind]]:
    """Sets them on this connection; those that missed something, and what."""
    found = await asyncio.gather(*(_set_watch(link, root, each) for each in watches))
    missed = [(watching, watching.missed(stat)) for watching, stat in zip(watches, found, strict=True)]
    return [(watching, kind) for watching, kind in missed if kind is not None]


async def _set_watch(link: Link, root: str, watching: Watching) -> Stat | None:
    path = root + watching.path if watching.path != "/" else root or "/"
    if not watching.of_children:
        stat: Stat | None = await ask(link.stat(path, watching))
        return stat
    try:
        _, stat = await ask(link.children(path, watching))
    except NoNode:
        return None
    return stat
