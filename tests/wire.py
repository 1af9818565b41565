"""Kafka's protocol written out by hand, for tests that must not depend on headrace's own codec.

Only versions without compact fields; every layout is the one line of `struct` that it needs. A `Wire` is one
connection; its methods send one request and read one answer.
"""

import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple

import crc32c

from tests.eventually import WITHIN_SECONDS
from tests.harness import receive_frame

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, INIT_PRODUCER_ID = (
    0, 1, 2, 3, 18, 19, 20, 22,
)  # fmt: skip


class Produced(NamedTuple):
    """A partition's part of a Produce answer."""

    error_code: int
    base_offset: int


class Fetched(NamedTuple):
    """A partition's part of a Fetch answer."""

    error_code: int
    high_watermark: int
    records: bytes


def string(text: str | None) -> bytes:
    """int16 length, UTF-8."""
    if text is None:
        return struct.pack(">h", -1)
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def varint(number: int) -> bytes:
    """Zig-zag, seven bits a byte, low first."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def batch(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    timestamp_ms: int = 1_700_000_000_000,
    base_offset: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """An uncompressed record batch, format v2; `producer` is (id, epoch, base sequence)."""
    records = bytearray()
    for number, value in enumerate(values):
        key = keys[number] if keys else None
        body = b"\0" + varint(0) + varint(number)
        for part in (key, value):
            body += varint(-1) if part is None else varint(len(part)) + part
        body += varint(0)
        records += varint(len(body)) + body
    last = len(values) - 1
    checked = struct.pack(">hiqqqhii", 0, last, timestamp_ms, timestamp_ms, *producer, len(values)) + records
    head = struct.pack(">ibI", -1, 2, crc32c.crc32c(checked))
    return struct.pack(">qi", base_offset, len(head) + len(checked)) + head + checked


def frame(api_key: int, version: int, body: bytes, correlation_id: int = 1, client_id: str | None = "wire") -> bytes:
    """A whole request with its size and header version 1."""
    request = struct.pack(">hhi", api_key, version, correlation_id) + string(client_id) + body
    return struct.pack(">i", len(request)) + request


def produce_request(topic: str, records: bytes, *, partition: int = 0, acks: int = -1) -> bytes:
    """The body of Produce version 3."""
    head = string(None) + struct.pack(">hii", acks, 30_000, 1) + string(topic)
    return head + struct.pack(">iii", 1, partition, len(records)) + records


def fetch_request(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int | None = None,
    min_bytes: int = 1,
    max_wait_ms: int = 500,
) -> bytes:
    """The body of Fetch version 4."""
    head = struct.pack(">iiiibi", -1, max_wait_ms, min_bytes, max_bytes, 0, 1) + string(topic)
    return head + struct.pack(">iiqi", 1, partition, offset, partition_max_bytes or max_bytes)


def produced(topic: str, answer: bytes) -> Produced:
    """What the body of an answer to such a request says."""
    return Produced(*struct.unpack_from(">hq", answer, 4 + 2 + len(topic.encode()) + 4 + 4))


class Wire:
    """One connection to a broker."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), WITHIN_SECONDS)
        self.correlation_id = 0

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, api_key: int, version: int, body: bytes) -> int:
        """Send one request; its correlation id."""
        self.correlation_id += 1
        self.socket.sendall(frame(api_key, version, body, self.correlation_id))
        return self.correlation_id

    def receive(self) -> tuple[int, bytes]:
        """Correlation id and body of the next answer (response header version 0)."""
        answer = receive_frame(self.socket)
        return int.from_bytes(answer[:4], "big"), answer[4:]

    def ask(self, api_key: int, version: int, body: bytes) -> bytes:
        """Send one request and return the body of its answer."""
        expected = self.send(api_key, version, body)
        correlation_id, answer = self.receive()
        assert correlation_id == expected
        return answer

    def create_topic(self, name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> int:
        """CreateTopics version 2, one topic of one replica; its error code."""
        settings = configs or {}
        body = struct.pack(">i", 1) + string(name) + struct.pack(">ihii", partitions, 1, 0, len(settings))
        body += b"".join(string(key) + string(value) for key, value in settings.items())
        answer = self.ask(CREATE_TOPICS, 2, body + struct.pack(">i?", 30_000, False))
        after_name = 8 + 2 + len(name.encode())
        return int.from_bytes(answer[after_name : after_name + 2], "big", signed=True)

    def produce(self, topic: str, records: bytes, *, partition: int = 0, acks: int = -1) -> Produced:
        """Produce version 3, one batch to one partition."""
        answer = self.ask(PRODUCE, 3, produce_request(topic, records, partition=partition, acks=acks))
        return produced(topic, answer)

    def fetch(self, topic: str, offset: int, **how: int) -> Fetched:
        """Fetch version 4, one partition; `how` as in `fetch_request`."""
        body = fetch_request(topic, offset, **how)
        answer = self.ask(FETCH, 4, body)
        position = 4 + 4 + 2 + len(topic.encode()) + 4 + 4
        error_code, high_watermark, _stable, aborted = struct.unpack_from(">hqqi", answer, position)
        position += 22 + 16 * max(aborted, 0)
        (size,) = struct.unpack_from(">i", answer, position)
        return Fetched(error_code, high_watermark, answer[position + 4 : position + 4 + max(size, 0)])

    def list_offset(self, topic: str, timestamp_ms: int, *, partition: int = 0) -> tuple[int, int, int]:
        """ListOffsets version 1: (error code, timestamp, offset); -1 asks for the end, -2 for the start."""
        body = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">iiq", 1, partition, timestamp_ms)
        answer = self.ask(LIST_OFFSETS, 1, body)
        error_code, timestamp, offset = struct.unpack_from(">hqq", answer, 4 + 2 + len(topic.encode()) + 4 + 4)
        return error_code, timestamp, offset


class StoredBatch(NamedTuple):
    """What a test wants to know of a batch in a Fetch answer."""

    base_offset: int
    size: int
    codec: int
    record_count: int
    producer_id: int
    base_sequence: int


def stored_batches(records: bytes) -> list[StoredBatch]:
    """The headers of all whole batches in a Fetch answer's records."""
    found = []
    position = 0
    while position + 61 <= len(records):
        base_offset, length = struct.unpack_from(">qi", records, position)
        (attributes,) = struct.unpack_from(">h", records, position + 21)
        producer_id, _, base_sequence, count = struct.unpack_from(">qhii", records, position + 43)
        if position + 12 + length > len(records):
            break
        found.append(StoredBatch(base_offset, 12 + length, attributes & 7, count, producer_id, base_sequence))
        position += 12 + length
    return found
