"""A proxy between clients and a broker, which sees each request before the broker does."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from tests.harness import receive_frame

Requests = Callable[[bytes], bytes]
"""What the broker is sent for the requests of one connection: gets a frame without its size, gives bytes with sizes."""


def as_sent(frame: bytes) -> bytes:
    """A frame with its size."""
    return len(frame).to_bytes(4, "big") + frame


class FrameProxy:
    """Listens on a loopback port and passes on; `connected` makes the function through which requests go."""

    def __init__(self, port: int, broker_port: int, connected: Callable[[], Requests]) -> None:
        self.port, self._broker_port, self._connected = port, broker_port, connected
        self._listening = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accepts nobody any more."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self._broker_port))
            threading.Thread(target=self._requests, args=(client, broker), daemon=True).start()
            threading.Thread(target=self._answers, args=(broker, client), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        instead = self._connected()
        with suppress(OSError), broker:
            while True:
                broker.sendall(instead(receive_frame(client)))

    def _answers(self, broker: socket.socket, client: socket.socket) -> None:
        with suppress(OSError), client:
            while data := broker.recv(1 << 16):
                client.sendall(data)
