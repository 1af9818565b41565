"""Serves one embedded tree to the processes of this host over a unix socket, which only its owner can open.

A session lasts as long as its connection. It ends when the connection does, so a killed process's ends at once, or when
nothing has come over it for its time-out, as from a stopped process. Ending it deletes its ephemeral nodes. ZooKeeper
keeps a session while its client changes servers; here there is one server, and it lives as long as the tree.

One worker thread owns the database. It executes the requests of all connections in the order in which they came, and
answers and events reach the event loop in that order.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

from headrace.metastore.database import FILE_NAME, TreeDatabase, TreeNode
from headrace.metastore.shared.frames import (
    FRAME_BYTES_MAX,
    BadFrame,
    Frames,
    pack,
    packed_error,
    text_of,
    unpacked_op,
)
from headrace.metastore.store import StoreError, Watch, WatchEvent

log = logging.getLogger(__name__)

_LOOKS_PER_TIMEOUT = 6
_TIMEOUT_MS_MIN = 100


class TreeServer:
    """The server of one tree. Make it with `open`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headrace-tree")
        self._database: TreeDatabase
        self._server: asyncio.Server
        self._clients: set[_Client] = set()
        self._closed = False
        self._is_open = True
        """Whether the database is; on the worker thread."""

    @classmethod
    async def open(cls, directory: Path, socket: Path) -> "TreeServer":
        """Opens the tree of a directory, or creates it, and serves it at `socket`. Raises `StoreInUse`,
        `StoreUnreadable`, `OSError`."""
        server = cls()
        try:
            server._database = await server._loop.run_in_executor(
                server._worker, TreeDatabase, directory / FILE_NAME, server._post
            )
        except BaseException:
            server._worker.shutdown()
            raise
        try:
            server._server = await server._loop.create_unix_server(
                lambda: _Client(server), str(socket), start_serving=False
            )
            socket.chmod(0o600)
            await server._server.start_serving()
        except BaseException:
            await server._run(server._database.close)
            server._worker.shutdown()
            raise
        return server

    async def close(self) -> None:
        """Ends all sessions and closes the database. Does nothing if it is closed already."""
        if self._closed:
            return
        self._closed = True
        self._server.close()
        for client in list(self._clients):
            client.drop()
        await self._run(self._close_database)
        self._worker.shutdown()

    def joined(self, client: "_Client") -> None:
        """Notes an open connection."""
        self._clients.add(client)

    def left(self, client: "_Client") -> None:
        """Ends the session of a connection that is closed."""
        self._clients.discard(client)
        with suppress(RuntimeError):  # the worker has ended
            self._worker.submit(self._end, client)

    def execute(self, client: "_Client", message: list[Any]) -> None:
        """Executes a request on the worker thread; its answer goes to the client."""
        with suppress(RuntimeError):  # the worker has ended
            self._worker.submit(self._execute, client, message)

    async def _run(self, work: Callable[[], None]) -> None:
        await self._loop.run_in_executor(self._worker, work)

    # On the worker thread

    def _post(self, watch: Watch, event: WatchEvent) -> None:
        self._loop.call_soon_threadsafe(watch, event)

    def _close_database(self) -> None:
        """Deletes all ephemeral nodes; requests that come after it are not executed."""
        self._is_open = False
        self._database.close()

    def _end(self, client: "_Client") -> None:
        if not client.session or not self._is_open:
            return
        try:
            self._database.end_session(client.session)
        except sqlite3.Error as error:  # the next start deletes its nodes
            log.error("a session's end could not be written to the tree", extra={"error": str(error)})
        client.session = 0

    def _execute(self, client: "_Client", message: list[Any]) -> None:
        if not self._is_open:
            return
        number = message[0]
        try:
            answer = [number, None, self._result(client, message)]
        except (StoreError, sqlite3.Error) as error:
            if isinstance(error, sqlite3.Error):
                log.error("the tree could not be read or written", extra={"error": str(error)})
            answer = [number, *packed_error(error)]
        except (BadFrame, UnicodeError) as error:
            self._loop.call_soon_threadsafe(client.refuse, str(error))
            return
        self._loop.call_soon_threadsafe(client.send, answer)

    def _result(self, client: "_Client", message: list[Any]) -> Any:
        match message[1:]:
            case ["open", int()] if not client.session:
                client.session = self._database.open_session()
                return client.session
            case ["data", str(path), watch] if client.session:
                entry = self._database.get(path, client.watch(watch), client.session)
                return [text_of(entry.data), _stat(entry)]
            case ["stat", str(path), watch] if client.session:
                found = self._database.exists(path, client.watch(watch), client.session)
                return None if found is None else _stat(found)
            case ["children", str(path), watch] if client.session:
                names = self._database.children(path, client.watch(watch), client.session)
                return [names, _stat(self._database.get(path))]
            case ["write", list(ops)] if client.session:
                return self._database.multi([unpacked_op(each) for each in ops], client.session)
        raise BadFrame(f"not a request: {str(message)[:100]}")


class _Client(asyncio.Protocol):
    """One connection, and its session."""

    def __init__(self, server: TreeServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._frames = Frames(FRAME_BYTES_MAX)
        self._transport: asyncio.Transport
        self._timeout = 0.0  # in s, from when the session is asked for
        self._silent_looks = 0
        self._look: asyncio.TimerHandle | None = None
        self.session = 0
        """Its number, on the worker thread; 0 before it begins and after it has ended."""

    # On the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._server.joined(self)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._silent_looks = 0
        try:
            for message in self._frames.feed(data):
                self._take(message)
        except BadFrame as error:
            self.refuse(str(error))

    def _take(self, message: list[Any]) -> None:
        match message:
            case [int(number), "ping"]:
                self.send([number, None, None])
            case [int(), "end"]:
                self._transport.close()
            case [int(), "open", int(timeout_ms)] if not self._timeout:
                self._timeout = max(timeout_ms, _TIMEOUT_MS_MIN) / 1000
                self._look_again()
                self._server.execute(self, message)
            case [int(), *_]:
                self._server.execute(self, message)
            case _:
                raise BadFrame(f"not a request: {str(message)[:100]}")

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        if self._look is not None:
            self._look.cancel()
        self._server.left(self)

    def _look_again(self) -> None:
        """Ends the session of a silent process. Looks are counted, not seconds: while this process itself stood still,
        nobody was silent."""
        if self._silent_looks > _LOOKS_PER_TIMEOUT:
            log.warning(
                "a session of the tree ends: nothing came from its process", extra={"seconds": round(self._timeout, 3)}
            )
            self.drop()
            return
        self._silent_looks += 1
        self._look = self._loop.call_later(self._timeout / _LOOKS_PER_TIMEOUT, self._look_again)

    def send(self, message: list[Any]) -> None:
        """Sends a message, unless the connection is closing."""
        if not self._transport.is_closing():
            self._transport.write(pack(message))

    def refuse(self, why: str) -> None:
        """Closes the connection of a client that sends what is no request."""
        log.error("a client of the tree sent what is not a request", extra={"why": why})
        self.drop()

    def drop(self) -> None:
        """Closes the connection at once."""
        self._transport.abort()

    # On the worker thread

    def watch(self, number: Any) -> Watch | None:
        """The callback of a watch; None without one. Raises `BadFrame`."""
        if number is None:
            return None
        if not isinstance(number, int):
            raise BadFrame(f"not the number of a watch: {str(number)[:100]}")
        return partial(self._fired, number)

    def _fired(self, number: int, event: WatchEvent) -> None:
        """Called on the event loop."""
        self.send([0, event.kind.value, number])


def _stat(entry: TreeNode) -> list[int]:
    return [entry.czxid, entry.mzxid, entry.pzxid, entry.version, entry.ephemeral_owner]
