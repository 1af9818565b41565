# cython: language_level=3, annotation_typing=False, binding=False, boundscheck=False, wraparound=False
# cython: initializedcheck=False
"""The shortest ways of requests, by API: a frame goes to the one that its API key names.

Compiled, as they are; it also runs uncompiled.
"""

from __future__ import annotations

from headrace.broker.coordinator_host.plain_groups import PlainGroups
from headrace.broker.fetch.plain_fetch import PlainFetches
from headrace.broker.fetch.plain_follow import PlainFollows
from headrace.broker.produce.produce_shortcut import ProduceShortcut
from headrace.network.connection import Connection, Shortcut
from headrace.network.request_times import Timed
from headrace.protocol.plain_fetch import is_of_follower

_PRODUCE, _FETCH = 0, 1


class Shortcuts(Shortcut):
    """The shortest ways of one dispatcher, which share the buffer of answers."""

    __slots__ = ("_last", "fetches", "follows", "groups", "produces")

    def __init__(
        self, produces: ProduceShortcut, fetches: PlainFetches, follows: PlainFollows, groups: PlainGroups
    ) -> None:
        super().__init__()
        self.produces, self.fetches, self.follows, self.groups = produces, fetches, follows, groups
        self._last: Shortcut = produces
        for each in (produces, fetches, follows, groups):
            each.share(self)

    def answer(self, connection: Connection, octets: memoryview, start: int, end: int, at: int) -> int:
        """See `Shortcut`."""
        if end - start < 2 or octets[start]:
            return 0
        if octets[start + 1] == _PRODUCE:
            self._last, self.produces.late = self.produces, self.late
            answer_end = self.produces.answer(connection, octets, start, end, at)
            self.mask = self.produces.mask
            return answer_end
        if octets[start + 1] == _FETCH:
            if is_of_follower(octets, start, end):
                self._last = self.follows
                answer_end = self.follows.answer(connection, octets, start, end, at)
                if answer_end:
                    return answer_end
            self._last = self.fetches
            return self.fetches.answer(connection, octets, start, end, at)
        self._last, self.mask = self.groups, 0
        return self.groups.answer(connection, octets, start, end, at)

    def has_room(self, size: int) -> bool:
        """See `Shortcut`."""
        return self.produces.has_room(size)

    def write_late(self) -> int:
        """See `Shortcut`."""
        return self.produces.write_late()

    def refused_late(self, start: int, end: int) -> bytes:
        """See `Shortcut`."""
        return self.produces.refused_late(start, end)

    def wake_late(self) -> None:
        """See `Shortcut`."""
        self.produces.wake_late()

    def timed(self, connection: Connection) -> Timed:
        """See `Shortcut`."""
        return self._last.timed(connection)
