"""A server whose connections echo frames, with instances that come and go: for tests of what is before requests."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.config import parse_broker
from headrace.instances.address_list import AddressList, Networks
from headrace.network.bound_listeners import BoundListeners
from headrace.network.connection import Connection, Dispatch
from headrace.network.listeners import Listener
from headrace.network.server import Server
from tests.eventually import WITHIN_SECONDS

LOOPBACK = "127.0.0.1"


class EchoRoute:
    """A route to an instance that answers each frame with its name, who sends it, and the frame."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.addresses = AddressList()
        self.connections_max = 1 << 31
        self.refused: list[str] = []
        self.connections: list[Connection] = []

    @property
    def dispatch(self) -> Dispatch:
        """See `Route`."""
        return self._answer

    def refuses(self, address: str, connections: int) -> bool:
        """See `Route`."""
        if self.addresses.allows(address) and connections < self.connections_max:
            return False
        self.refused.append(address)
        return True

    def admits(self, _principal: str, _address: str) -> bool:
        """See `Route`."""
        return True

    def opened(self, connection: Connection) -> None:
        """See `Route`."""
        self.connections.append(connection)

    def _answer(self, connection: Connection, frame: memoryview) -> None:
        echo(connection, f"{self.name} {connection.host} ".encode() + bytes(frame))


def echo(connection: Connection, data: bytes) -> None:
    """Answers with a frame."""
    connection.answer([len(data).to_bytes(4, "big") + data], None)


@asynccontextmanager
async def echo_server(settings: dict[str, str] | None = None) -> AsyncIterator[tuple[Server, int]]:
    """A server with one ordinary listener, which echoes, and its port."""
    config = parse_broker({"listeners": f"{LOOPBACK}:0", "log.dirs": "/nowhere", **(settings or {})})
    bound = BoundListeners(config)
    server = Server(config, bound, lambda connection, frame: echo(connection, bytes(frame)))
    loop = asyncio.get_running_loop()
    server.start(loop)
    try:
        yield server, bound.listeners[0].port
    finally:
        server.close(loop)


def open_for(
    server: Server, route: EchoRoute, port: int = 0, trusted: Networks | None = None, host: str = LOOPBACK
) -> int:
    """Opens a listener of an instance; its port."""
    return server.open(Listener(route.name, host, port), route, None, trusted)


class Peer:
    """A client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def at(cls, port: int, host: str = LOOPBACK, local: str | None = None) -> "Peer":
        """Connects, from the address `local`."""
        return cls(*await asyncio.open_connection(host, port, local_addr=(local, 0) if local else None))

    def send(self, data: bytes) -> None:
        """Sends bytes as they are."""
        self.writer.write(data)

    async def ask(self, data: bytes = b"hello") -> bytes:
        """The answer to a frame; empty if the connection is closed."""
        self.send(len(data).to_bytes(4, "big") + data)
        return await self.receive()

    async def receive(self) -> bytes:
        """The next frame; empty if the connection is closed."""
        try:
            async with asyncio.timeout(WITHIN_SECONDS):
                size = int.from_bytes(await self.reader.readexactly(4), "big")
                return await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    def reset(self) -> None:
        """Closes at once."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.writer.close()
