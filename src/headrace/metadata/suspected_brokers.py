"""Suspected brokers: brokers that may be dead, because a connection to them has just broken.

Clients of a killed leader ask for metadata in the same millisecond, before the controller can elect a new leader. A
client that gets the old leader retries it and asks again only after its back-off, up to a second later. So a Metadata
request that concerns a suspected leader waits until the suspicion ends, usually a few milliseconds, and at most
`SUSPICION_MAX_S`; then it is answered with what is known.
"""

import asyncio
from collections.abc import Callable, Collection

from headrace.types import BrokerId

SUSPICION_MAX_S = 1.0


class SuspectedBrokers:
    """The suspicions that are open."""

    def __init__(self) -> None:
        self._open: dict[BrokerId, asyncio.Future[None]] = {}

    def begin(self, broker: BrokerId) -> None:
        """Suspects a broker, because a connection to it broke."""
        if broker not in self._open:
            loop = asyncio.get_running_loop()
            self._open[broker] = loop.create_future()
            loop.call_later(SUSPICION_MAX_S, self._expire, broker, self._open[broker])

    def end(self, broker: BrokerId) -> None:
        """Clears the suspicion of a broker: it answered, or it is known to be dead."""
        suspicion = self._open.pop(broker, None)
        if suspicion is not None and not suspicion.done():
            suspicion.set_result(None)

    def keep(self, present: Callable[[], Collection[BrokerId]]) -> None:
        """Clears the suspicion of brokers that are neither live nor leading. Calls `present`, which is costly, only if
        there is a suspicion."""
        if self._open:
            named = present()
            for broker in [each for each in self._open if each not in named]:
                self.end(broker)

    def _expire(self, broker: BrokerId, suspicion: "asyncio.Future[None]") -> None:
        if self._open.get(broker) is suspicion:
            self.end(broker)

    def among(self, brokers: Callable[[], Collection[BrokerId]]) -> list["asyncio.Future[None]"]:
        """The open suspicions of these brokers, each done when it ends. Calls `brokers` only if there is any."""
        if not self._open:
            return []
        wanted = set(brokers())
        return [suspicion for broker, suspicion in self._open.items() if broker in wanted]
