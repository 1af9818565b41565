"""Session watch: stops work when the metadata store cannot be reached for some time."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress

from headrace.metastore.store import MetadataStore, SessionState


class SessionWatch:
    """Follows the session state of one metadata store."""

    def __init__(self, store: MetadataStore) -> None:
        self._is_connected = asyncio.Event()
        self._is_connected.set()
        self._is_disconnected = asyncio.Event()
        store.on_session(self._on_session)

    async def while_connected(self, work: Coroutine[object, object, None], patience_s: float) -> None:
        """Runs `work`; cancels it once the metadata store has been unreachable for `patience_s` without a break."""
        working = asyncio.ensure_future(work)
        unreachable = asyncio.ensure_future(self._disconnected_for(patience_s))
        try:
            await asyncio.wait([working, unreachable], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (working, unreachable):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _disconnected_for(self, patience_s: float) -> None:
        while True:
            await self._is_disconnected.wait()
            try:
                async with asyncio.timeout(patience_s):
                    await self._is_connected.wait()
            except TimeoutError:
                return

    def _on_session(self, state: SessionState) -> None:
        is_connected = state is SessionState.CONNECTED
        for event, holds in ((self._is_connected, is_connected), (self._is_disconnected, not is_connected)):
            if holds:
                event.set()
            else:
                event.clear()
