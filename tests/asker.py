"""One connection that asks in protocol messages, in any version, and reads the answer to its last byte."""

import socket
from types import TracebackType
from typing import Any

from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message
from headrace.protocol.headers import read_response_header, write_request_header
from tests.eventually import WITHIN_SECONDS
from tests.harness import receive_frame

CORRELATION_ID = 7


class Asker:
    """A connection to one broker."""

    def __init__(self, bootstrap: str, client_id: str = "asker") -> None:
        self._client_id = client_id
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), WITHIN_SECONDS)

    def __enter__(self) -> "Asker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, request: Message, version: int) -> None:
        """One request."""
        assert request.API_KEY is not None
        body = write_request_header(request.API_KEY, version, CORRELATION_ID, self._client_id) + request.encode(version)
        self.socket.sendall(len(body).to_bytes(4, "big") + body)

    def receive(self, request: Message, version: int) -> Any:
        """The next answer, which must be to `request`."""
        assert request.API_KEY is not None
        answer = receive_frame(self.socket)
        correlation_id, pos = read_response_header(answer, request.API_KEY, version)
        assert correlation_id == CORRELATION_ID
        response = getattr(m, type(request).__name__.replace("Request", "Response"))
        decoded, end = response.decode(version, answer, pos)
        assert end == len(answer)
        return decoded

    def ask(self, request: Message, version: int) -> Any:
        """One request and its answer."""
        self.send(request, version)
        return self.receive(request, version)
