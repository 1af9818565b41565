"""The way to the controller, whoever that is at the moment.

Which broker it is, the last UpdateMetadata said. An election may be under way: while nobody answers, or who answers is
not the controller (any more), it is asked again with pauses until the time is up. Nothing is asked twice at once, so
what a caller sends leaves in order; but a request whose answer was lost is repeated, so it must bear that.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from headrace.broker.metadata_cache import MetadataCache
from headrace.broker.peer_book import PeerBook
from headrace.coordination.peers import Peers, PeerUnreachable
from headrace.errors import ErrorCode
from headrace.protocol.message import Message

R = TypeVar("R", bound=Message)

REQUEST_TIMEOUT_MS = 30_000
LANE = "controller"
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.05, 1.0


class ControllerLink:
    """Asks the controller when that is another broker."""

    def __init__(self, metadata: MetadataCache, book: PeerBook, peers: Peers, loop: asyncio.AbstractEventLoop) -> None:
        self._metadata, self._book, self._peers, self._loop = metadata, book, peers, loop

    async def ask_controller(
        self,
        request: Message,
        answer: type[R],
        *,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        lane: str = LANE,
        is_refused: Callable[[R], bool] | None = None,
    ) -> R:
        """The controller's answer. `is_refused` says of an answer that its sender is not the controller; without it,
        an `error_code` of NOT_CONTROLLER does. Raises `PeerUnreachable` when there was none in time."""
        deadline = self._loop.time() + timeout_ms / 1000
        pause_s, failure = _PAUSE_MIN_S, PeerUnreachable("nobody has said who the controller is")
        while (left_s := deadline - self._loop.time()) > 0:
            address = self._book.address_of(self._metadata.controller_id)
            if address is not None:
                try:
                    found = await self._peers.ask(
                        address, request, answer, timeout_ms=max(1, int(left_s * 1000)), lane=lane
                    )
                    if not (is_refused or _is_refused)(found):
                        return found
                    failure = PeerUnreachable(f"broker {address.id} is not the controller any more")
                except PeerUnreachable as error:
                    failure = error
            await asyncio.sleep(min(pause_s, max(0.0, deadline - self._loop.time())))
            pause_s = min(_PAUSE_MAX_S, 2 * pause_s)
        raise failure


def _is_refused(answer: Message) -> bool:
    return getattr(answer, "error_code", ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER
