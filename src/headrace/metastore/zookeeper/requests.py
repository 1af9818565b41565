"""Requests to the ensemble without an answer: sent in order, and again after the connection broke.

**A write whose answer was lost** with its connection may or may not have been executed. If it was, sending it again
would fail because of itself (`NodeExists`, `BadVersion`). So every write also sets a marker, an ephemeral node of this
session, to the write's number, in the same multi. After a reconnection, the marker shows whether the write was
executed; if not, it is sent again. Before the markers are read, an empty write goes through the leader, behind all
earlier writes. Concurrent writes have a marker each; a marker is created when first needed, by the request before.

    /headrace/sessions/SESSION-K    ephemeral; the number of the last write that used marker K, in digits

When the session ends, the markers are gone, and its writes fail with `SessionLost`. Reads are sent in the next session.
Apache Kafka instead sends a write again and recognises its own earlier one by the content, with code of its own for
each kind of write (`KafkaZkClient`).
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any

from headrace.metastore.store import (
    Create,
    Delete,
    NodeExists,
    NotEmpty,
    Op,
    SessionLost,
    Set,
    StoreError,
    TooLarge,
    check_path,
)
from headrace.metastore.zookeeper.link import ConnectionBroken, Link, PendingAnswer, Then, Watching
from headrace.metastore.zookeeper.recovery import lost_results, result_of, settle_writes

IN_FLIGHT_MAX = 1000
"""The limit of requests without an answer; others wait here."""

MARKERS_MAX = 64
"""The limit of writes without an answer."""

REQUEST_BYTES_MAX = 1_040_000
"""ZooKeeper closes the connection of a client that sends more than its `jute.maxbuffer`, 1 MiB - 1."""

OP_BYTES = 160
"""The most bytes of a multi's operation besides path and data: headers, flags and access control list."""


_WITH_DATA = (Create, Set)


class _Request:
    """A request, with its number."""

    __slots__ = ("answered", "attempts", "future", "marker", "number", "ops", "send", "watching")

    def __init__(
        self, number: int, send: Callable[[], list[PendingAnswer]] | None, ops: Sequence[Op], watching: Watching | None
    ) -> None:
        self.number = number
        self.send = send  # a read
        self.ops = ops  # of a write
        self.watching = watching  # of a read
        self.future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.answered: list[Any] = []  # the results and errors so far
        self.attempts = 0
        self.marker = -1  # of a write, from when it is sent until its outcome is known

    def __lt__(self, other: "_Request") -> bool:
        return self.number < other.number


class Requests:
    """All requests of one metadata store, except those of its recovery."""

    def __init__(self, link: Link, markers: str, watch: Callable[[Watching], None]) -> None:
        """`markers` is the full path of the markers' parent. `watch` is called with each watch that was set."""
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

    def read(
        self, send: Callable[[], list[PendingAnswer]], watching: Watching | None = None
    ) -> "asyncio.Future[list[Any]]":
        """A read: its results, each possibly a `StoreError`. `send` may be called again. Raises `SessionLost`."""
        return self._add(send, (), watching)

    def write(self, ops: Sequence[Op]) -> "asyncio.Future[list[Any]]":
        """A multi of full paths: [its results], or [the `StoreError`]. Raises `SessionLost`."""
        return self._add(None, ops, None)

    def connected(self, session: int) -> None:
        """Notes a new connection of this session. Requests are sent once its recovery is done."""
        if session != self._session:
            self._session = session
            self._free_markers = list(range(MARKERS_MAX - 1, -1, -1))
            self._made_markers.clear()

    def flow(self) -> None:
        """Sends requests from now on."""
        self.are_flowing = True
        self._pump()

    def hold(self) -> None:
        """Holds requests back from now on."""
        self.are_flowing = False

    def session_lost(self) -> None:
        """Fails the writes. Reads wait for the next session."""
        everything = [*self._in_flight, *self._waiting]
        self._waiting = sorted(each for each in everything if not each.ops)
        self._in_flight.clear()
        self._fail(each for each in everything if each.ops)

    def close(self) -> None:
        """Fails all requests, later ones too."""
        self._closed = True
        self.are_flowing = False
        everything = [*self._in_flight, *self._waiting]
        self._waiting.clear()
        self._in_flight.clear()
        self._fail(everything)

    async def make_marker(self) -> None:
        """Creates the first marker of this session, which also checks that this client may write. Raises
        `ConnectionBroken`, `StoreError`."""
        if 0 not in self._made_markers:
            with suppress(NodeExists):
                await result_of(self._link.write([Create(self._marker(0), b"", ephemeral=True)]))
            self._made_markers.add(0)

    async def settle_lost(self, root: str) -> None:
        """Finds out which writes without an answer were executed. Raises `ConnectionBroken`, `SessionLost`."""
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
        send: Callable[[], list[PendingAnswer]] | None,
        ops: Sequence[Op],
        watching: Watching | None,
    ) -> "asyncio.Future[list[Any]]":
        if self._closed:
            raise SessionLost("the metadata store is closed")
        self._numbers += 1
        request = _Request(self._numbers, send, ops, watching)
        heappush(self._waiting, request)
        self._pump()
        return request.future

    def _pump(self) -> None:
        """Sends waiting requests, in order, within the limits."""
        while self.are_flowing and self._waiting and len(self._in_flight) < IN_FLIGHT_MAX:
            request = self._waiting[0]
            if request.future.done():  # the caller gave up
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
                return  # the caller gave up meanwhile
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
                request.future.set_exception(
                    SessionLost(request.ops[0].path if request.ops else "the metadata store is closed")
                )

    # Markers

    def _send_write(self, request: _Request) -> list[PendingAnswer]:
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
    """Raises errors that ZooKeeper would not report, or for which it would close the connection."""
    size = 0
    for index, op in enumerate(ops):
        error: StoreError | None = None
        try:
            check_path(op.path, sequential=isinstance(op, Create) and op.sequential)
        except StoreError as bad:
            error = bad
        size += OP_BYTES + len(op.path.encode(errors="replace")) + (len(op.data) if isinstance(op, _WITH_DATA) else 0)
        if op.path == "/" and isinstance(op, Create) and not op.sequential:
            error = NodeExists(op.path)
        elif op.path == "/" and isinstance(op, Delete):
            error = NotEmpty(op.path)
        elif size > REQUEST_BYTES_MAX:
            error = TooLarge(op.path)
        if error is not None:
            error.index = index
            raise error
