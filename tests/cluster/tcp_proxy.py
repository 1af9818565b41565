"""A TCP proxy before one broker, which can cut what one other broker sends there, while all others pass.

    proxy = TcpProxy(listen_port, target_port).start()
    proxy.cut(2)          broker 2 and this one hear nothing of each other over this way; connections stay open
    proxy.heal(2)         what was held goes on, as TCP would send it again
    proxy.refuse()         to all it looks as if the broker's process were dead, until `accept`
    proxy.stop()

Who connects is known from the client id of the first request, `headrace-N` or, as Apache Kafka has it, `broker-N-...`;
all that call themselves otherwise are clients and pass. A cut works both ways along the connections that were opened to
this broker; for a whole partition between two brokers cut both their proxies.
"""

import asyncio
import re
import threading
from contextlib import suppress

from tests.eventually import WITHIN_SECONDS

CHUNK_BYTES = 1 << 16
CLIENT = -1
_BROKER = re.compile(rb"(?:headrace|broker)-(\d+)")


def source_of(first_frame: bytes) -> int:
    """The broker that a request comes from, by its header; CLIENT for everybody else's."""
    size = int.from_bytes(first_frame[8:10], "big", signed=True)
    named = _BROKER.match(first_frame[10 : 10 + max(0, size)])
    return int(named.group(1)) if named else CLIENT


class TcpProxy:
    """One broker's other address; its event loop is on a thread of its own."""

    def __init__(self, listen_port: int, target_port: int, host: str = "127.0.0.1") -> None:
        self.listen_port, self.target_port, self.host = listen_port, target_port, host
        self._loop = asyncio.new_event_loop()
        self._gates: dict[int, asyncio.Event] = {}
        self._pairs: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{listen_port}", daemon=True)

    def start(self) -> "TcpProxy":
        """Listens when this returns."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(WITHIN_SECONDS)
        return self

    def stop(self) -> None:
        """Ends every connection."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(WITHIN_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WITHIN_SECONDS)
        self._loop.close()

    def cut(self, broker: int) -> None:
        """Lets nothing pass between that broker and this one any more."""
        self._loop.call_soon_threadsafe(lambda: self._gate(broker).clear())

    def heal(self, broker: int) -> None:
        """Lets everything pass again."""
        self._loop.call_soon_threadsafe(lambda: self._gate(broker).set())

    def refuse(self) -> None:
        """Breaks every connection and takes no more: as if the process behind were dead."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(WITHIN_SECONDS)

    def accept(self) -> None:
        """Takes connections again."""
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(WITHIN_SECONDS)

    def _gate(self, broker: int) -> asyncio.Event:
        if broker not in self._gates:
            self._gates[broker] = asyncio.Event()
            self._gates[broker].set()
        return self._gates[broker]

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accepted, self.host, self.listen_port)

    async def _close(self) -> None:
        self._server.close()
        for each in self._pairs:
            each.cancel()
        await asyncio.gather(*self._pairs, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pairs.add(task)
        try:
            await self._pass(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            self._pairs.discard(task)
            writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readexactly(4)
        frame = await reader.readexactly(int.from_bytes(head, "big"))
        gate = self._gate(source_of(frame))
        await gate.wait()
        there_reader, there_writer = await asyncio.open_connection(self.host, self.target_port)
        there_writer.write(head + frame)
        ways = [
            asyncio.ensure_future(_copy(reader, there_writer, gate)),
            asyncio.ensure_future(_copy(there_reader, writer, gate)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in ways:
                each.cancel()
            there_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
    with suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            await gate.wait()
            writer.write(data)
            await writer.drain()
