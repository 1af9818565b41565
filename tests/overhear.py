"""A proxy on loopback that notes which versions of which APIs a client asks in.

The broker behind it has to advertise the proxy's port, so that all connections of the client come through.
"""

import contextlib
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Self

from tests.eventually import WITHIN_SECONDS


class Overhear:
    """`versions[api_key]` is what was asked so far."""

    def __init__(self, port: int, broker_port: int) -> None:
        self.versions: dict[int, set[int]] = defaultdict(set)
        self._broker_port = broker_port
        self._listening = socket.create_server(("127.0.0.1", port))
        self._sockets = [self._listening]
        self._threads = [self._start(self._accept)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(WITHIN_SECONDS)

    def _start(self, work: Callable[..., None], *arguments: socket.socket) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        thread.start()
        return thread

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                broker = socket.create_connection(("127.0.0.1", self._broker_port))
                self._sockets += [client, broker]
                self._threads += [self._start(self._note, client, broker), self._start(self._pass, broker, client)]

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def _note(self, client: socket.socket, broker: socket.socket) -> None:
        with contextlib.suppress(OSError):
            unread = bytearray()
            while data := client.recv(1 << 16):
                unread += data
                while len(unread) >= 8:
                    size, api_key, version = struct.unpack_from(">ihh", unread)
                    if len(unread) < 4 + size:
                        break
                    self.versions[api_key].add(version)
                    del unread[: 4 + size]
                broker.sendall(data)
        with contextlib.suppress(OSError):
            broker.shutdown(socket.SHUT_WR)
