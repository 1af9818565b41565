"""What the tree on ZooKeeper needs of its connection to the ensemble. `coordination.zookeeper` has it, through kazoo.

Answers, watch events and session states come to the event loop in the order in which the servers sent them.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from headrace.coordination.tree import EventKind, Op, Watch

Then = Callable[[Any, Exception | None], None]


class ConnectionBroken(Exception):
    """The connection broke before the answer came."""


class Stat(Protocol):
    """What ZooKeeper says about a node."""

    czxid: int
    mzxid: int
    pzxid: int  # the last change of its children
    version: int
    ephemeralOwner: int


def _ignore(result: Any, error: Exception | None) -> None:
    return


class Answer:
    """One request's answer to be: `then(result, error)` is called on the loop, never before the asker returned."""

    then: Then = staticmethod(_ignore)
    is_recovery = False  # asked for by what makes the tree ready again


def passed_on_to(future: "asyncio.Future[Any]") -> Then:
    """Passes an answer on to a future."""

    def then(result: Any, error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    return then


class Link(Protocol):
    """Requests to the ensemble, by full paths.

    What may come instead of a result: `ConnectionBroken`, `SessionLost`, or another `TreeError`, without a path.
    """

    def data(self, path: str, watch: "Watching | None") -> Answer:
        """(bytes, Stat)."""
        ...

    def stat(self, path: str, watch: "Watching | None") -> Answer:
        """Stat, or None where there is none."""
        ...

    def children(self, path: str, watch: "Watching | None") -> Answer:
        """(names, Stat)."""
        ...

    def write(self, ops: Sequence[Op]) -> Answer:
        """Per operation: a full path, a version, or None. The error's index says which operation was refused."""
        ...

    def end(self, done: Callable[[], None]) -> None:
        """Ends the session; `done` is called on the loop when that is over."""
        ...


class Watching:
    """One watch, from the read that set it until it fires. `seen` is what that read saw: None for no node."""

    __slots__ = ("callback", "fired", "of_absence", "of_children", "path", "seen")

    def __init__(self, path: str, callback: Watch, *, of_children: bool = False, of_absence: bool = False) -> None:
        self.path = path
        self.callback = callback
        self.of_children = of_children
        self.of_absence = of_absence  # set where there is no node too
        self.fired = False
        self.seen: Stat | None = None

    def __call__(self, event: object) -> None:
        """Never called: a link hands the watch itself over, so that it is called on the loop."""
        raise AssertionError("a watch was called on a thread of its own")

    def missed(self, now: Stat | None) -> EventKind | None:
        """What happened between the read and `now`, as the first change would have been told."""
        if self.seen is None:
            return None if now is None else EventKind.CREATED
        if now is None or now.czxid != self.seen.czxid:
            return EventKind.DELETED
        if self.of_children:
            return EventKind.CHILDREN if now.pzxid != self.seen.pzxid else None
        return EventKind.CHANGED if now.mzxid != self.seen.mzxid else None
