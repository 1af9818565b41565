"""Whether the tree can be reached, for work that is only worth while if it can."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress

from headrace.coordination.tree import SessionState, Tree


class SessionWatch:
    """Hears of one tree's session from its making on."""

    def __init__(self, tree: Tree) -> None:
        self._is_connected = asyncio.Event()
        self._is_connected.set()
        self._is_cut_off = asyncio.Event()
        tree.on_session(self._on_session)

    async def while_connected(self, work: Coroutine[object, object, None], patience_s: float) -> None:
        """Does `work`; gives it up when the tree was out of reach for `patience_s`."""
        doing = asyncio.ensure_future(work)
        giving_up = asyncio.ensure_future(self._cut_off_for(patience_s))
        try:
            await asyncio.wait([doing, giving_up], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (doing, giving_up):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _cut_off_for(self, patience_s: float) -> None:
        while True:
            await self._is_cut_off.wait()
            try:
                async with asyncio.timeout(patience_s):
                    await self._is_connected.wait()
            except TimeoutError:
                return

    def _on_session(self, state: SessionState) -> None:
        is_connected = state is SessionState.CONNECTED
        for event, holds in ((self._is_connected, is_connected), (self._is_cut_off, not is_connected)):
            if holds:
                event.set()
            else:
                event.clear()
