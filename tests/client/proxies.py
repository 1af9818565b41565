"""Proxies before one broker that lose answers, or hold requests up. The broker advertises them."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from tests.broker.frame_proxy import FrameProxy, Requests, as_sent
from tests.harness import HeadraceServer, free_ports


class LosingProxy(FrameProxy):
    """Closes a connection instead of passing its next answer on, when `loses` is set."""

    def __init__(self, port: int, broker_port: int) -> None:
        super().__init__(port, broker_port, lambda: as_sent)
        self.loses, self.has_lost = threading.Event(), threading.Event()

    def _answers(self, broker: socket.socket, client: socket.socket) -> None:
        with suppress(OSError), client:
            while data := broker.recv(1 << 16):
                if self.loses.is_set():
                    self.loses.clear()
                    client.shutdown(socket.SHUT_RDWR)
                    self.has_lost.set()
                    return
                client.sendall(data)


class PausableProxy(FrameProxy):
    """Takes connections and requests, but passes requests on only while it `goes_on`."""

    def __init__(self, port: int, broker_port: int) -> None:
        super().__init__(port, broker_port, self._counted)
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.connections = self.requests = 0

    def _counted(self) -> Requests:
        self.connections += 1
        return self._passed

    def _passed(self, frame: bytes) -> bytes:
        self.requests += 1
        self.goes_on.wait()
        return as_sent(frame)

    def close(self) -> None:
        self.goes_on.set()
        super().close()


P = TypeVar("P", LosingProxy, PausableProxy)


@contextmanager
def proxied(directory: Path, kind: type[P], *, is_advertised: bool = True) -> Iterator[P]:
    """A broker behind such a proxy. Unless it is advertised, clients reach the broker without it, too."""
    port, own_port = free_ports(2)
    settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"} if is_advertised else {}
    server = HeadraceServer(directory / "data", settings, listen=f"127.0.0.1:{own_port}").start()
    proxy = kind(port, own_port)
    try:
        yield proxy
    finally:
        proxy.close()
        server.stop()
