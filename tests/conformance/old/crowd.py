"""Clients of all times on the same topics at the same time: each writes in every codec it has, and reads everything.

crowd = gather(bootstrap, {Place(2): "topic", Place(0): "topic-in-format-0"}, clients)
crowd.writes("java 0.9.0.1", "gzip", Place(2))     the records, or Failure
crowd.reads("java 0.9.0.1", Place(2))                what it read of all that was written, or Failure
"""

import threading
import traceback
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.conformance.model import BASE_TIME_MS, FROM_START, Client, Consumed, Message, Writing
from tests.conformance.old.old_clients import FIRST_CODECS, OLD_CLIENTS

GATHER_SECONDS = 240
RECORDS = 6
NEWEST_MAGIC = 2


FAIL_ON_LZ4_OF_FORMAT_0 = ("aiokafka", "franz-go", "sarama")
"""They find the checksum in its frames wrong, which it is (KAFKA-3160); Apache Kafka itself sends them nothing else."""


class Failure(Exception):
    """A client did not do its part; its own error as text."""


class Place(NamedTuple):
    """What a topic is for. A reader fails on the first batch in a codec that it lacks, so lz4 has its own topics."""

    magic: int
    """The message format that the topic is stored in."""
    lz4: bool = False

    def codecs_of(self, client: Client) -> list[str]:
        """The codecs in which a client writes to it."""
        return [codec for codec in FIRST_CODECS if codec not in client.gaps and (codec == "lz4") == self.lz4]

    def is_read_by(self, client: Client) -> bool:
        """Whether a client knows all that is in it."""
        is_odd = self == (0, True) and client.name.startswith(FAIL_ON_LZ4_OF_FORMAT_0)
        return bool(self.codecs_of(client)) and not is_odd


class Part(NamedTuple):
    """What one client wrote in one codec to one topic."""

    client: str
    codec: str
    place: Place


class Crowd:
    """What everybody wrote and read."""

    def __init__(self, clients: Sequence[Client]) -> None:
        self.clients = clients
        self._written: dict[Part, list[Message] | Failure] = {}
        self._read: dict[tuple[str, Place], list[Consumed] | Failure] = {}

    def writes(self, client: str, codec: str, place: Place) -> list[Message]:
        """The records that a client wrote; Failure when it could not."""
        found = self._written[Part(client, codec, place)]
        if isinstance(found, Failure):
            raise found
        return found

    def reads(self, client: str, place: Place) -> list[Consumed]:
        """All that a client read from the start; Failure when it could not."""
        found = self._read[client, place]
        if isinstance(found, Failure):
            raise found
        return found

    def parts(self, place: Place) -> Mapping[Part, list[Message]]:
        """Everything that was written to one topic."""
        written = self._written.items()
        return {part: done for part, done in written if part.place == place and not isinstance(done, Failure)}

    def readers(self, place: Place) -> list[Client]:
        """Who can read a topic."""
        return [each for each in self.clients if place.is_read_by(each)]

    def take_part(self, client: Client, bootstrap: str, topics: Mapping[Place, str], ready: threading.Barrier) -> None:
        """One client's work: each codec to each topic, then each topic, up to all that everybody is to write."""
        ready.wait(GATHER_SECONDS)
        for place, topic in topics.items():
            for codec in place.codecs_of(client):
                self._written[Part(client.name, codec, place)] = _write(client, bootstrap, topic, codec)
        for place, topic in topics.items():
            if place.is_read_by(client):
                count = sum(len(place.codecs_of(each)) * RECORDS for each in self.clients)
                self._read[client.name, place] = _read(client, bootstrap, topic, count)


def gather(bootstrap: str, topics: Mapping[Place, str], clients: Sequence[Client]) -> Crowd:
    """Everybody at once, a thread each."""
    crowd = Crowd(clients)
    ready = threading.Barrier(len(clients))
    threads = [
        threading.Thread(target=crowd.take_part, args=(each, bootstrap, topics, ready), daemon=True) for each in clients
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GATHER_SECONDS)
    return crowd


def records_of(client: Client, codec: str) -> list[Message]:
    """What a client writes: keys, values, nulls, headers, times; each names the client in its key or its value."""
    name = mark(client.name, codec)
    records = [
        Message(name + b"key", b"value " * 40, (), BASE_TIME_MS),
        Message(None, name + b"no key", (), BASE_TIME_MS + 1),
        Message(name + b"tombstone", None, (), BASE_TIME_MS + 2),
        Message(name + bytes(range(256)), bytes(range(255, -1, -1)) * 4, (("header", b"\x80\xff"),), BASE_TIME_MS + 3),
        Message(name + b"empty", b"", (), BASE_TIME_MS - 60_000),
        Message("schlüssel".encode(), name + "значение 值 🎉".encode() * 9, (), BASE_TIME_MS + 5),
    ]
    assert len(records) == RECORDS
    return [client.seen(each) for each in records]


def mark(client: str, codec: str) -> bytes:
    """What every record of a client in a codec has in its key or its value."""
    return f"<{client}/{codec}>".encode()


def is_marked(message: Message, by: bytes) -> bool:
    """Whether a record bears this mark."""
    return (message.key or b"").startswith(by) or (message.value or b"").startswith(by)


def magic_of(client: Client) -> int:
    """The message format that a client writes and reads."""
    return next((each.knows.magic for each in OLD_CLIENTS if each is client), NEWEST_MAGIC)


def kept(message: Message, *formats: int) -> Message:
    """What is left of a record that came through these formats: headers are format 2's, times format 1's and 2's."""
    oldest = min(formats)
    return message._replace(
        headers=message.headers if oldest == NEWEST_MAGIC else (),
        timestamp_ms=message.timestamp_ms if oldest > 0 else -1,
    )


def _write(client: Client, bootstrap: str, topic: str, codec: str) -> list[Message] | Failure:
    messages = records_of(client, codec)
    try:
        client.produce(bootstrap, topic, messages, Writing(codec))
    except Exception:
        return Failure(traceback.format_exc())
    return messages


def _read(client: Client, bootstrap: str, topic: str, count: int) -> list[Consumed] | Failure:
    try:
        return client.read(bootstrap, topic, FROM_START, count)
    except Exception:
        return Failure(traceback.format_exc())
