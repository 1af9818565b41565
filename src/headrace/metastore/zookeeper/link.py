"""The interface between the metadata store and its connection to the ensemble, which `connection` implements.

Answers, watch events and session states reach the event loop in the order in which the servers sent them.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from headrace.metastore.store import EventKind, Op, StoreError, Watch

Then = Callable[[Any, Exception | None], None]


class ConnectionBroken(Exception):
    """The connection broke before the answer came."""


class Unsupported(StoreError):
    """The server does not know this kind of request."""


class Stat(Protocol):
    """ZooKeeper's metadata of a node."""

    czxid: int
    mzxid: int
    pzxid: int  # the last change of its children
    version: int
    ephemeralOwner: int


def _ignore(result: Any, error: Exception | None) -> None:
    return


class PendingAnswer:
    """The future answer of one request. `then(result, error)` is called on the loop, after the caller has returned."""

    then: Then = staticmethod(_ignore)
    is_recovery = False  # of a request of `recovery`


def passed_on_to(future: "asyncio.Future[Any]") -> Then:
    """A callback that passes an answer on to a future."""

    def then(result: Any, error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    return then


ReadMany = Callable[[Sequence[str]], PendingAnswer]
"""Of each path the `Node`, or the `StoreError` of that read. `Unsupported` if the server is too old."""


class Link(Protocol):
    """Sends requests to the ensemble, with full paths.

    The error of an answer is `ConnectionBroken`, `SessionLost`, or another `StoreError` without a path.
    """

    def data(self, path: str, watch: "Watching | None") -> PendingAnswer:
        """(bytes, Stat)."""
        ...

    @property
    def read_many(self) -> ReadMany | None:
        """Reads many nodes by one request; None if the link cannot."""
        ...

    def stat(self, path: str, watch: "Watching | None") -> PendingAnswer:
        """Stat, or None if the node does not exist."""
        ...

    def children(self, path: str, watch: "Watching | None") -> PendingAnswer:
        """(names, Stat)."""
        ...

    def write(self, ops: Sequence[Op]) -> PendingAnswer:
        """For each operation a full path, a version, or None. An error's `index` names the refused operation."""
        ...

    def end(self, done: Callable[[], None]) -> None:
        """Ends the session, then calls `done` on the loop."""
        ...


class Watching:
    """One watch, from the read that set it until it fires. `seen` is the Stat of that read; None without a node."""

    __slots__ = ("callback", "fired", "of_absence", "of_children", "path", "seen")

    def __init__(self, path: str, callback: Watch, *, of_children: bool = False, of_absence: bool = False) -> None:
        self.path = path
        self.callback = callback
        self.of_children = of_children
        self.of_absence = of_absence  # set even if the node does not exist
        self.fired = False
        self.seen: Stat | None = None

    def __call__(self, event: object) -> None:
        """Never called: a link passes the watch itself to the loop, which calls its callback."""
        raise AssertionError("a watch was called outside the event loop")

    def missed(self, now: Stat | None) -> EventKind | None:
        """The event that the watch missed between its read and `now`; None if nothing changed."""
        if self.seen is None:
            return None if now is None else EventKind.CREATED
        if now is None or now.czxid != self.seen.czxid:
            return EventKind.DELETED
        if self.of_children:
            return EventKind.CHILDREN if now.pzxid != self.seen.pzxid else None
        return EventKind.CHANGED if now.mzxid != self.seen.mzxid else None
