"""Sends requests to the active controller, whichever broker that is.

The last UpdateMetadata named the controller. During an election no broker may answer, or the one that answers is not
the controller; the request is then repeated with pauses until its time-out. A caller's requests are sent one after the
other, so they stay in order. A request whose response was lost is repeated, so it must be idempotent.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from headrace.errors import ErrorCode
from headrace.metadata.metadata_cache import MetadataCache
from headrace.network.peers.broker_addresses import BrokerAddresses
from headrace.network.peers.peers import Peers, PeerUnreachable
from headrace.protocol.codec.message import Message

R = TypeVar("R", bound=Message)

REQUEST_TIMEOUT_MS = 30_000
LANE = "controller"
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.05, 1.0


class ControllerLink:
    """Sends requests to the controller on another broker."""

    def __init__(
        self, metadata: MetadataCache, addresses: BrokerAddresses, peers: Peers, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._metadata, self._addresses, self._peers, self._loop = metadata, addresses, peers, loop

    async def send(
        self,
        request: Message,
        answer: type[R],
        *,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        lane: str = LANE,
        is_refused: Callable[[R], bool] | None = None,
        is_wanted: Callable[[], bool] | None = None,
        client_id: str = "",
    ) -> R:
        """Returns the controller's response. `is_refused` tells whether a response means that its sender is not the
        controller; by default an `error_code` of NOT_CONTROLLER does. Raises `PeerUnreachable` at the time-out, or when
        the request would be repeated and `is_wanted` says that nobody wants that any more."""
        deadline = self._loop.time() + timeout_ms / 1000
        pause_s, failure = _PAUSE_MIN_S, PeerUnreachable("the controller is not known yet")
        while (left_s := deadline - self._loop.time()) > 0 and (is_wanted is None or is_wanted()):
            address = self._addresses.address_of(self._metadata.controller_id)
            if address is not None:
                try:
                    found = await self._peers.send(
                        address, request, answer, timeout_ms=max(1, int(left_s * 1000)), lane=lane, client_id=client_id
                    )
                    if not (is_refused or _is_refused)(found):
                        return found
                    failure = PeerUnreachable(f"broker {address.id} is no longer the controller")
                except PeerUnreachable as error:
                    failure = error
            await asyncio.sleep(min(pause_s, max(0.0, deadline - self._loop.time())))
            pause_s = min(_PAUSE_MAX_S, 2 * pause_s)
        raise failure


def _is_refused(answer: Message) -> bool:
    return getattr(answer, "error_code", ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER
