"""Between a client and a ZooKeeper: connections that break at a chosen moment, and answers that get lost with them.

proxy = await Proxy.start(target_port)
proxy.lose_answers()      requests go on to the server; what it answers is thrown away
proxy.garble()            the next answer is of another request than was asked
proxy.cut()               every connection breaks now
proxy.refuse()            no connection is taken, until accept()
"""

import asyncio


class Proxy:
    """One listening port before one server."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self._server: asyncio.Server | None = None
        self._pairs: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_lossy = False
        self._is_refusing = False
        self._is_garbling = False

    @classmethod
    async def start(cls, target_port: int) -> "Proxy":
        """Listens when this returns."""
        proxy = cls(target_port)
        proxy._server = await asyncio.start_server(proxy._accepted, "127.0.0.1", 0)
        return proxy

    @property
    def address(self) -> str:
        """Where a client connects to."""
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def lose_answers(self) -> None:
        """From now on, until the next `cut`."""
        self._is_lossy = True

    def garble(self) -> None:
        """Once, and not a heartbeat's answer."""
        self._is_garbling = True

    def cut(self) -> None:
        """Breaks every connection; the next ones work."""
        for writer in list(self._writers):
            writer.transport.abort()
        self._is_lossy = False

    def refuse(self) -> None:
        """Breaks every connection, and each that is made."""
        self._is_refusing = True
        self.cut()

    def accept(self) -> None:
        """Takes connections again."""
        self._is_refusing = False

    async def close(self) -> None:
        """Ends everything."""
        assert self._server is not None
        self._server.close()
        self.cut()
        for each in list(self._pairs):
            each.cancel()
        await asyncio.gather(*self._pairs, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pairs.add(task)
        self._writers.add(writer)
        try:
            if not self._is_refusing:
                await self._pass(reader, writer)
        except (OSError, EOFError):
            pass
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._pairs.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        self._writers.add(to_writer)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._up(reader, to_writer))
                group.create_task(self._down(to_reader, writer))
        except* (OSError, EOFError):
            pass
        finally:
            to_writer.transport.abort()
            self._writers.discard(to_writer)

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        raise EOFError

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self._is_garbling and int.from_bytes(data[4:8], "big", signed=True) > 0:
                self._is_garbling = False
                data = data[:4] + (0x7FFFFFF0).to_bytes(4, "big") + data[8:]
            if not self._is_lossy:
                writer.write(data)
                await writer.drain()
        raise EOFError
