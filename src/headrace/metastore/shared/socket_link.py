"""A process's connection to the tree that another process of this host serves.

A session ends with its connection, so the state is never SUSPENDED: a broken connection is a lost session, and the next
connection begins another. The server closes the connection of a process that was silent for the time-out; this side
closes it when the server does not answer for as long.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, cast

from headrace.metastore.shared.frames import Frames, StatFrame, bytes_of, pack, packed_op, unpacked_error
from headrace.metastore.store import EventKind, Op, SessionLost, SessionState
from headrace.metastore.zookeeper.link import ConnectionBroken, PendingAnswer, ReadMany, Watching
from headrace.metastore.zookeeper.store import ZooKeeperStore

log = logging.getLogger(__name__)

_PINGS_PER_TIMEOUT = 3
_RECONNECT_SECONDS = 0.1


class StoreUnreachable(OSError):
    """No process serves the metadata store at the socket."""


async def open_store(socket: Path, session_timeout_ms: int) -> ZooKeeperStore:
    """Opens a metadata store with a session. Raises `StoreUnreachable`."""
    link = SocketLink(socket, session_timeout_ms / 1000)
    opening = asyncio.create_task(link.store.opened())
    try:
        async with asyncio.timeout(session_timeout_ms / 1000):
            await opening
    except TimeoutError:
        await link.store.close()
        raise StoreUnreachable(
            f"{socket} does not answer: {link.failure or 'no session within the time-out'}"
        ) from None
    except BaseException:
        await link.store.close()
        raise
    finally:
        opening.cancel()
    return link.store


class SocketLink:
    """A `Link`: one connection at a time, and the metadata store that it serves."""

    def __init__(self, socket: Path, timeout: float) -> None:
        """`timeout` is the session's, in seconds."""
        self._socket = socket
        self.timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._line: _Line | None = None
        self._ended: Callable[[], None] | None = None
        self.failure = ""
        """Why the last attempt to connect failed."""
        self.store = ZooKeeperStore(self, "", self._loop)
        self._connecting = self._loop.create_task(self._connect(), name="tree connection")

    async def _connect(self) -> None:
        while True:
            try:
                await self._loop.create_unix_connection(lambda: _Line(self), str(self._socket))
                return
            except OSError as error:
                self.failure = error.strerror or str(error)
            await asyncio.sleep(_RECONNECT_SECONDS)

    # Requests

    def data(self, path: str, watch: Watching | None) -> PendingAnswer:
        """See `Link.data`."""
        return self._ask(lambda result: (bytes_of(result[0]), StatFrame._make(result[1])), watch, "data", path)

    read_many: ReadMany | None = None

    def stat(self, path: str, watch: Watching | None) -> PendingAnswer:
        """See `Link.stat`."""
        return self._ask(lambda result: None if result is None else StatFrame._make(result), watch, "stat", path)

    def children(self, path: str, watch: Watching | None) -> PendingAnswer:
        """See `Link.children`."""
        return self._ask(lambda result: (result[0], StatFrame._make(result[1])), watch, "children", path)

    def write(self, ops: Sequence[Op]) -> PendingAnswer:
        """See `Link.write`."""
        return self._ask(lambda result: result, None, "write", [packed_op(each) for each in ops])

    def end(self, done: Callable[[], None]) -> None:
        """See `Link.end`."""
        self._ended = done
        self._connecting.cancel()
        if self._line is None:
            self._loop.call_soon(done)
        else:
            self._line.end()

    def _ask(self, read: Callable[[Any], Any], watch: Watching | None, what: str, argument: Any) -> PendingAnswer:
        answer = PendingAnswer()
        if self._line is None:
            self._loop.call_soon(self.store.answered, answer, None, ConnectionBroken())
        else:
            self._line.ask(answer, read, watch, what, argument)
        return answer

    # Events of the line

    def began(self, line: "_Line", session: int) -> None:
        """A session has begun."""
        self._line = line
        log.info("the broker is connected to the shared tree", extra={"session": session})
        self.store.session_changed(SessionState.CONNECTED, session)

    def broke(self, line: "_Line") -> None:
        """The connection is closed, and with it the session has ended."""
        was_open, self._line = self._line is line, None
        if self._ended is not None:
            self._ended()
            return
        if was_open:
            log.error("the session with the shared tree ended")
            self.store.session_changed(SessionState.LOST, 0)
        for answer in line.open_answers():
            self.store.answered(answer, None, SessionLost(""))
        self._connecting = self._loop.create_task(self._connect_later(), name="tree connection")

    async def _connect_later(self) -> None:
        await asyncio.sleep(_RECONNECT_SECONDS)
        await self._connect()


class _Line(asyncio.Protocol):
    """One connection, and its session."""

    def __init__(self, link: SocketLink) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._frames = Frames()
        self._numbers = count(1)
        self._answers: dict[int, tuple[PendingAnswer, Callable[[Any], Any]]] = {}
        self._watches: dict[int, Watching] = {}
        self._opening = 0
        self._transport: asyncio.Transport
        self._unanswered_pings = 0
        self._ping: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`. Asks for a session."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._opening = next(self._numbers)
        self._send([self._opening, "open", round(self._link.timeout * 1000)])
        self._send_ping()

    def ask(
        self, answer: PendingAnswer, read: Callable[[Any], Any], watch: Watching | None, what: str, argument: Any
    ) -> None:
        """Sends a request."""
        number = next(self._numbers)
        self._answers[number] = answer, read
        if what == "write":
            self._send([number, what, argument])
            return
        if watch is not None:
            self._watches[number] = watch
        self._send([number, what, argument, None if watch is None else number])

    def end(self) -> None:
        """Ends the session."""
        self._send([next(self._numbers), "end"])

    def open_answers(self) -> list[PendingAnswer]:
        """The answers that have not come, in the order of their requests."""
        found = [answer for answer, _ in self._answers.values()]
        self._answers.clear()
        return found

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._unanswered_pings = 0
        for message in self._frames.feed(data):
            self._take(message)

    def _take(self, message: list[Any]) -> None:
        match message:
            case [0, str(kind), int(number)]:
                watching = self._watches.pop(number, None)
                if watching is not None:
                    self._link.store.happened(watching, EventKind(kind))
            case [self._opening, None, int(session)]:
                self._link.began(self, session)
            case [int(number), None, result] if number in self._answers:
                answer, read = self._answers.pop(number)
                self._link.store.answered(answer, read(result), None)
            case [int(number), str(name), int(index), str(text)] if number in self._answers:
                self._watches.pop(number, None)  # a read that is refused sets no watch
                answer, _ = self._answers.pop(number)
                self._link.store.answered(answer, None, unpacked_error(name, index, text))

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        if self._ping is not None:
            self._ping.cancel()
        self._link.broke(self)

    def _send_ping(self) -> None:
        """Closes a connection over which nothing comes. Pings are counted, not seconds: while this process itself stood
        still, it could not hear."""
        if self._unanswered_pings > _PINGS_PER_TIMEOUT:
            log.error("the shared tree does not answer", extra={"seconds": round(self._link.timeout, 3)})
            self._transport.abort()
            return
        self._unanswered_pings += 1
        self._send([next(self._numbers), "ping"])
        self._ping = self._loop.call_later(self._link.timeout / _PINGS_PER_TIMEOUT, self._send_ping)

    def _send(self, message: list[Any]) -> None:
        self._transport.write(pack(message))
