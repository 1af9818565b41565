"""The simple consumer on a listener of protocol KAFKA07, with the requests of Kafka 0.7.

It has the methods of `SimpleConsumer`. Offsets are byte positions: the next one is the record's offset and its size.
A record has only a value. Nothing waits for records, and a message larger than `max_bytes` is not delivered in parts:
the message set is empty then, and `next_offset` says to ask again with more.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence

from headrace.client.consumer.fetched_batches import ConsumerRecord
from headrace.client.consumer.simple_consumer import FetchRequest
from headrace.client.core.failures import error_for
from headrace.client.core.settings import RESPONSE_BYTES_MAX, Address, ClientSettings, parse_addresses
from headrace.client.core.timing import Deadline
from headrace.errors import ErrorCode, KafkaError
from headrace.network.transport import PlainTransport
from headrace.protocol.wire_07 import (
    FetchedPart07,
    FetchPart,
    FetchRequest07,
    OffsetsPart,
    OffsetsRequest07,
    Request,
    encode_request,
    read_fetched,
    read_offsets,
)
from headrace.records.legacy.format_07 import LENGTH_BYTES, iter_messages

_NO_TIMESTAMP = -1
_SIZE_BYTES = 4
_CODES = {
    -1: ErrorCode.UNKNOWN_SERVER_ERROR,
    1: ErrorCode.OFFSET_OUT_OF_RANGE,
    2: ErrorCode.CORRUPT_MESSAGE,
    3: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    4: ErrorCode.INVALID_FETCH_SIZE,
}


class MessageSet07:
    """The messages of one partition from `offset` on; `for record in messages`."""

    __slots__ = ("_request", "_set", "error", "next_offset")

    def __init__(self, request: FetchRequest, fetched: FetchedPart07) -> None:
        self._request, self._set = request, fetched.messages
        self.error: KafkaError | None = None
        """Why this partition was not read; there are no messages then."""
        self.next_offset: int = request.offset
        """What to fetch next: the end of the last whole message."""
        if fetched.error:
            self.error = error_for(_CODES[int(fetched.error)], f"{request.topic}-{request.partition}")
        else:
            for _, end in _borders(fetched.messages):
                self.next_offset = request.offset + end

    @property
    def is_cut(self) -> bool:
        """Whether there is not even one whole message: fetch again with a larger `max_bytes`."""
        return bool(self._set) and self.next_offset == self._request.offset

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Raises `error`, or CorruptMessage."""
        if self.error is not None:
            raise self.error
        topic, partition, offset, _ = self._request
        for message in iter_messages(self._set, offset):
            yield ConsumerRecord(topic, partition, message.offset, _NO_TIMESTAMP, 0, None, message.payload, ())


class SimpleConsumer07:
    """One broker's messages and offsets, by the wire of Kafka 0.7. One thread uses it."""

    def __init__(self, broker: str, client: ClientSettings | None = None) -> None:
        """`broker` is HOST:PORT of a listener of KAFKA07. Connects at the first call."""
        self._address: Address = parse_addresses(broker)[0]
        self._settings = client or ClientSettings()
        self._socket: socket.socket | None = None

    def __enter__(self) -> SimpleConsumer07:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()

    def fetch(self, request: FetchRequest) -> MessageSet07:
        """The messages from a position on. Raises KafkaError, such as OffsetOutOfRange where no message begins."""
        (found,) = read_fetched(self._ask(FetchRequest07([FetchPart(*request)], False)), is_multi=False)
        messages = MessageSet07(request, found)
        if messages.error is not None:
            raise messages.error
        return messages

    def multifetch(self, requests: Sequence[FetchRequest]) -> list[MessageSet07]:
        """A message set for each request, in their order; look at `error` of each."""
        parts = [FetchPart(*each) for each in requests]
        found = read_fetched(self._ask(FetchRequest07(parts, True)), is_multi=True)
        return [MessageSet07(request, each) for request, each in zip(requests, found, strict=True)]

    def get_offsets_before(self, topic: str, partition: int, time: int, max_offsets: int = 1) -> list[int]:
        """Up to `max_offsets` positions, newest first: of segments last written before `time`.

        `time` is in ms since 1970, or -1: the end, then the segments, or -2: the start.
        """
        error, offsets = read_offsets(self._ask(OffsetsRequest07(OffsetsPart(topic, partition, time, max_offsets))))
        if error:
            raise error_for(_CODES[int(error)], f"offsets of {topic}-{partition}")
        return offsets

    def _ask(self, request: Request) -> bytes:
        """The frame of the response. Raises KafkaError with NETWORK_EXCEPTION when there is none."""
        deadline = Deadline.after_ms(self._settings.request_timeout_ms)
        try:
            if self._socket is None:
                timeout_s = self._settings.connect_timeout_ms / 1000
                self._socket = socket.create_connection(self._address, timeout_s)
            self._socket.settimeout(deadline.remaining_s)
            unsent, send = memoryview(encode_request(request)), PlainTransport(self._socket).send
            while unsent:
                unsent = unsent[send(unsent) :]
            size = int.from_bytes(self._receive(self._socket, _SIZE_BYTES, deadline), "big", signed=True)
            if not 0 < size <= RESPONSE_BYTES_MAX:
                raise OSError(f"a response of {size} bytes: the peer does not speak the protocol of Kafka 0.7")
            return self._receive(self._socket, size, deadline)
        except OSError as cause:
            self.close()
            raise KafkaError(f"{self._address}: {cause}", ErrorCode.NETWORK_EXCEPTION) from cause

    @staticmethod
    def _receive(connection: socket.socket, size: int, deadline: Deadline) -> bytes:
        data = bytearray(size)
        view, filled = memoryview(data), 0
        receive_into = PlainTransport(connection).receive_into
        while filled < size:
            connection.settimeout(max(deadline.remaining_s, 0.001))
            count = receive_into(view[filled:])
            if not count:
                raise ConnectionError("the broker closed the connection")
            filled += count
        return bytes(data)


def _borders(messages: bytes | bytearray | memoryview) -> Iterator[tuple[int, int]]:
    """Start and end of each whole message in a set."""
    pos = 0
    while len(messages) - pos >= LENGTH_BYTES:
        end = pos + LENGTH_BYTES + int.from_bytes(messages[pos : pos + LENGTH_BYTES], "big", signed=True)
        if not pos < end <= len(messages):
            return
        yield pos, end
        pos = end
