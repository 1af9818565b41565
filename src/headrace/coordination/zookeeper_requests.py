"""What was asked of the ensemble and is not answered yet: sent in order, and again after the connection broke.

**A write whose answer was lost** with its connection may or may not have been done; to send it again would be answered
with an error of its own making (`NodeExists`, `BadVersion`). So every write also sets a marker, an ephemeral node of
this session, to its own number, in the same multi. Connected again, a write is done if its marker says so, and is sent
again if not. Before markers are read a write of nothing goes through the leader, behind all that went before. Writes
under way at once have a marker each; a marker is made when it is first needed, by a request just before.

    /headrace/sessions/SESSION-K    ephemeral; the number of the last write that used marker K, in digits

When a session ends nobody can know any more, and its writes fail with `SessionLost`. Reads are asked in the next one.
Source: what Apache Kafka does instead is to send a write again and to tell its own from another's by the content, for
each kind of write in its own way (`KafkaZkClient`).
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any

from headrace.coordination.tree import (
    Create,
    Delete,
    NodeExists,
    NotEmpty,
    Op,
    SessionLost,
    Set,
    TooLarge,
    TreeError,
    check_path,
)
from headrace.coordination.zookeeper_link import Answer, ConnectionBroken, Link, Then, Watching
from headrace.coordination.zookeeper_recovery import ask, lost_results, settle_writes

IN_FLIGHT_MAX = 1000
"""Requests without an answer; more wait here."""

MARKERS_MAX = 64
"""Writes without an answer."""

REQUEST_BYTES_MAX = 1_040_000
"""ZooKeeper closes the connection of who sends more than its `jute.maxbuffer`, 1 MiB - 1."""

OP_BYTES = 160
"""What an operation of a multi takes besides its path and data, at most: headers, flags and access control list."""


class _Request:
    """Something asked, by number."""

    __slots__ = ("answered", "attempts", "future", "marker", "number", "ops", "send", "watching")

    def __init__(
        self, number: int, send: Callable[[], list[Answer]] | None, ops: Sequence[Op], watching: Watching | None
    ) -> None:
        self.number = number
        self.send = send  # a read
        self.ops = ops  # of a write
        self.watching = watching  # of a read
        self.future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.answered: list[Any] = []  # results and errors so far
        self.attempts = 0
        self.marker = -1  # a write's, from when it was sent until its outcome is known

    def __lt__(self, other: "_Request") -> bool:
        return self.number < other.number


class Requests:
    """All requests of one tree but those of its recovery."""

    def __init__(self, link: Link, markers: str, watch: Callable[[Watching], None]) -> None:
        """`markers` is the full path of the markers' parent; `watch` hears of each watch that was set."""
        self._link = link
        self._markers = markers
        self._watch = watch
        self._numbers = 0
        self._waiting: list[_Request] = []  # a heap
        self._in_flight: dict[_Request, None] = {}  # in the order in which they were sent
        self._session = 0
        self._free_markers: list[int] = []
        self._made_markers: set[int] = set()
        self._closed = False
        self.are_flowing = False

    def ask(self, send: Callable[[], list[Answer]], watching: Watching | None = None) -> "asyncio.Future[list[Any]]":
        """A read: results, or `TreeError`s in their place. `send` may be called again. Raises `SessionLost`."""
        return self._add(send, (), watching)

    def write(self, ops: Sequence[Op]) -> "asyncio.Future[list[Any]]":
        """A multi of full paths: [its results], or [the `TreeError`]. Raises `SessionLost`."""
        return self._add(None, ops, None)

    def connected(self, session: int) -> None:
        """There is a connection, of this session; requests flow when its recovery is done."""
        if session != self._session:
            self._session = session
            self._free_markers = list(range(MARKERS_MAX - 1, -1, -1))
            self._made_markers.clear()

    def flow(self) -> None:
        """Requests leave from now on."""
        self.are_flowing = True
        self._pump()

    def hold(self) -> None:
        """Requests wait from now on."""
        self.are_flowing = False

    def session_lost(self) -> None:
        """Fails the writes; the reads wait for the next session."""
        everything = [*self._in_flight, *self._waiting]
        self._waiting = sorted(each for each in everything if not each.ops)
        self._in_flight.clear()
        self._fail(each for each in everything if each.ops)

    def close(self) -> None:
        """Fails everything, from now on too."""
        self._closed = True
        self.are_flowing = False
        everything = [*self._in_flight, *self._waiting]
        self._waiting.clear()
        self._in_flight.clear()
        self._fail(everything)

    async def make_marker(self) -> None:
        """The first marker of this session: who may not make it would not be able to write anything. Raises
        `ConnectionBroken`, `TreeError`."""
        if 0 not in self._made_markers:
            with suppress(NodeExists):
                await ask(self._link.write([Create(self._marker(0), b"", ephemeral=True)]))
            self._made_markers.add(0)

    async def settle_lost(self, root: str) -> None:
        """Finds out which writes were done whose answers were lost. Raises `ConnectionBroken`, `SessionLost`."""
        lost = sorted(each for each in self._waiting if each.marker >= 0)
        if lost:
            await settle_writes(self._link, root)
        for request in lost:
            results = await lost_results(self._link, self._marker(request.marker), request.number, request.ops)
            if results is not None:
                self._waiting = sorted(each for each in self._waiting if each is not request)
                request.answered = [results]
                self._done(request)

    def _add(
        self,
        send: Callable[[], list[Answer]] | None,
        ops: Sequence[Op],
        watching: Watching | None,
    ) -> "asyncio.Future[list[Any]]":
        if self._closed:
            raise SessionLost("the tree is closed")
        self._numbers += 1
        request = _Request(self._numbers, send, ops, watching)
        heappush(self._waiting, request)
        self._pump()
        return request.future

    def _pump(self) -> None:
        """Sends what waits, in order, as far as the bounds allow."""
        while self.are_flowing and self._waiting and len(self._in_flight) < IN_FLIGHT_MAX:
            request = self._waiting[0]
            if request.future.done():  # whoever asked gave up
                self._release(heappop(self._waiting))
                continue
            if request.ops and request.marker < 0:
                if not self._free_markers:
                    return
                request.marker = self._free_markers.pop()
            self._in_flight[heappop(self._waiting)] = None
            self._send(request)

    def _send(self, request: _Request) -> None:
        request.attempts += 1
        request.answered = []
        attempt = request.attempts
        answers = request.send() if request.send else self._send_write(request)

        def then(result: Any, error: Exception | None) -> None:
            if request not in self._in_flight or request.attempts != attempt:
                return  # given up since
            request.answered.append(result if error is None else error)
            if len(request.answered) == len(answers):
                del self._in_flight[request]
                self._finish(request)
                self._pump()

        for answer in answers:
            answer.then = then

    def _finish(self, request: _Request) -> None:
        is_over = any(isinstance(each, SessionLost) for each in request.answered)
        if is_over and request.ops:
            self._fail([request])
        elif is_over or any(isinstance(each, ConnectionBroken) for each in request.answered):
            heappush(self._waiting, request)
        else:
            self._done(request)

    def _done(self, request: _Request) -> None:
        self._release(request)
        watching, first = request.watching, request.answered[0]
        if watching is not None and not isinstance(first, Exception):
            watching.seen = first if watching.of_absence else first[1]
            self._watch(watching)
        if not request.future.done():
            request.future.set_result(request.answered)

    def _release(self, request: _Request) -> None:
        if request.marker >= 0:
            self._free_markers.append(request.marker)
            request.marker = -1

    @staticmethod
    def _fail(requests: Iterable[_Request]) -> None:
        for request in sorted(requests):
            request.marker = -1
            if not request.future.done():
                request.future.set_exception(SessionLost(request.ops[0].path if request.ops else "the tree is closed"))

    # Markers

    def _send_write(self, request: _Request) -> list[Answer]:
        path = self._marker(request.marker)
        if request.marker not in self._made_markers:
            made = self._link.write([Create(path, b"", ephemeral=True)])
            made.then = self._made(request.marker)
        return [self._link.write([*request.ops, Set(path, str(request.number).encode())])]

    def _made(self, marker: int) -> Then:
        session = self._session

        def then(result: Any, error: Exception | None) -> None:
            if (error is None or isinstance(error, NodeExists)) and session == self._session:
                self._made_markers.add(marker)

        return then

    def _marker(self, number: int) -> str:
        return f"{self._markers}/{self._session & (1 << 64) - 1:x}-{number}"


def check_write(ops: Sequence[Op]) -> None:
    """Raises what ZooKeeper would not say, or would break the connection over."""
    size = 0
    for index, op in enumerate(ops):
        error: TreeError | None = None
        try:
            check_path(op.path, sequential=isinstance(op, Create) and op.sequential)
        except TreeError as bad:
            error = bad
        size += OP_BYTES + len(op.path.encode()) + (len(op.data) if isinstance(op, Create | Set) else 0)
        if op.path == "/" and isinstance(op, Create) and not op.sequential:
            error = NodeExists(op.path)
        elif op.path == "/" and isinstance(op, Delete):
            error = NotEmpty(op.path)
        elif size > REQUEST_BYTES_MAX:
            error = TooLarge(op.path)
        if error is not None:
            error.index = index
            raise error
