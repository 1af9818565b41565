"""A server with a listener for clients of Kafka 0.7, and a client that sends its requests as bytes."""

import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from headrace.protocol.wire_07 import (
    ErrorCode07,
    FetchedPart07,
    FetchPart,
    FetchRequest07,
    OffsetsPart,
    OffsetsRequest07,
    ProducePart,
    ProduceRequest07,
    Request,
    encode_request,
    read_fetched,
    read_offsets,
)
from headrace.records.legacy.format_07 import iter_messages
from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import HeadraceServer, free_ports, receive_frame

ENABLED = {"headrace.kafka07.enable": "true"}


class Server07(HeadraceServer):
    """`headrace serve` with a listener for each kind of client. `port_07` is that of the old ones."""

    port_07: int

    @classmethod
    def on(cls, data: Path, settings: dict[str, str] | None = None) -> "Server07":
        """Not started yet."""
        port, port_07 = free_ports(2)
        listeners = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},OLD://127.0.0.1:{port_07}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OLD:KAFKA07",
        }
        made = cls(data, {**listeners, **(settings or {})}, listen=None)
        made.port_07 = port_07
        return made


class Client07:
    """A connection of Kafka 0.7."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), WITHIN_SECONDS)

    def __enter__(self) -> "Client07":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def ask(self, request: Request) -> bytes:
        """The response, without its size."""
        self.socket.sendall(encode_request(request))
        return bytes(receive_frame(self.socket))

    def produce(self, topic: str, messages: bytes, partition: int = 0) -> None:
        """No response comes."""
        self.socket.sendall(encode_request(ProduceRequest07([ProducePart(topic, partition, messages)])))

    def fetch(self, topic: str, offset: int, max_bytes: int = 1 << 20, partition: int = 0) -> FetchedPart07:
        """The error and the messages."""
        request = FetchRequest07([FetchPart(topic, partition, offset, max_bytes)], False)
        (found,) = read_fetched(self.ask(request), is_multi=False)
        return FetchedPart07(found.error, bytes(found.messages))

    def multifetch(self, *parts: FetchPart) -> list[FetchedPart07]:
        """The error and the messages of each."""
        found = read_fetched(self.ask(FetchRequest07(parts, True)), is_multi=True)
        return [FetchedPart07(each.error, bytes(each.messages)) for each in found]

    def offsets(self, topic: str, time_ms: int, count: int = 100, partition: int = 0) -> list[int]:
        """The positions."""
        error, offsets = read_offsets(self.ask(OffsetsRequest07(OffsetsPart(topic, partition, time_ms, count))))
        assert error is ErrorCode07.NO_ERROR, error
        return offsets

    def read(self, topic: str, count: int, offset: int = 0, max_bytes: int = 1 << 20) -> list[bytes]:
        """As a consumer of 0.7: fetches, adds up the sizes, and fetches there, until there are `count` messages."""
        found: list[bytes] = []

        def is_enough() -> bool:
            nonlocal offset
            error, messages = self.fetch(topic, offset, max_bytes)
            assert error is ErrorCode07.NO_ERROR, error
            for message in iter_messages(messages, offset):
                found.append(message.payload)
                offset = message.next_offset
            return len(found) >= count

        eventually(is_enough, f"{count} messages", state=lambda: found)
        return found

    def is_closed(self) -> bool:
        """Waits until the broker closes the connection."""
        return self.socket.recv(1) == b""


def payloads(messages: bytes) -> list[bytes]:
    """Of a message set."""
    return [message.payload for message in iter_messages(messages)]


def sizes(values: Sequence[bytes]) -> int:
    """The size of messages of magic 1."""
    return sum(10 + len(value) for value in values)
