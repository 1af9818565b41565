"""Brokers of which this one does not know at the moment whether they live: a connection broke a moment ago.

Clients of a leader that was killed ask for metadata in the same millisecond, before anybody can have decided who leads
now. One that is told of the old leader goes on trying that one and asks again when its back-off says so, up to a second
later; so who asks for a leader in doubt is answered when the doubt is over, which takes a few milliseconds, and after
`DOUBT_S` with what is known.
"""

import asyncio
from collections.abc import Callable, Collection

from headrace.types import BrokerId

DOUBT_S = 1.0


class Doubts:
    """Who is in doubt."""

    def __init__(self) -> None:
        self._open: dict[BrokerId, asyncio.Future[None]] = {}

    def begin(self, broker: BrokerId) -> None:
        """A connection to it broke."""
        if broker not in self._open:
            loop = asyncio.get_running_loop()
            self._open[broker] = loop.create_future()
            loop.call_later(DOUBT_S, self._expire, broker, self._open[broker])

    def end(self, broker: BrokerId) -> None:
        """It answers, or it is known to be gone."""
        doubt = self._open.pop(broker, None)
        if doubt is not None and not doubt.done():
            doubt.set_result(None)

    def keep(self, present: Callable[[], Collection[BrokerId]]) -> None:
        """Who is not among these, who live or lead something still, is known to be gone. They are asked for only when
        there is a doubt."""
        if self._open:
            named = present()
            for broker in [each for each in self._open if each not in named]:
                self.end(broker)

    def _expire(self, broker: BrokerId, doubt: "asyncio.Future[None]") -> None:
        if self._open.get(broker) is doubt:
            self.end(broker)

    def among(self, brokers: Callable[[], Collection[BrokerId]]) -> list["asyncio.Future[None]"]:
        """The doubts about these, who are asked for only when there is any."""
        if not self._open:
            return []
        wanted = set(brokers())
        return [doubt for broker, doubt in self._open.items() if broker in wanted]
