"""Produces that nobody should send get the same answer, or the same end of their connection, all ways.

Batches that are damaged but have a checksum, partitions named twice, topics that are not there, and frames with a wrong
count or length. What each way stores is the same.
"""

import random
import re
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from headrace.broker.request import dispatch
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import write_request_header
from headrace.records.codecs.crc import crc32c
from tests import rotation
from tests.broker.test_produce_shortcut import (
    TOPICS,
    WAYS,
    Client,
    Setting,
    batch,
    name_of,
    setting,
    state_of,
)
from tests.examples import QUICK
from tests.harness import receive_frame

__all__ = ["setting"]

Harm = Callable[[bytearray, random.Random], bytes]
Topics = list[tuple[str, list[tuple[int, bytes | None]]]]
Ask = Callable[[Callable[[Client], bytes]], list[bytes]]
REQUESTS = 40 if QUICK else 120
_LENGTH, _MAGIC, _CRC, _ATTRIBUTES, _DELTA, _BASE_TIME, _MAX_TIME = 8, 16, 17, 21, 23, 27, 35
_PRODUCER, _EPOCH, _SEQUENCE, _COUNT, _RECORDS = 43, 51, 53, 57, 61


def put(at: int, width: int, *values: int) -> Harm:
    """Sets a field to one of the values, with the checksum of the result."""

    def harm(data: bytearray, chance: random.Random) -> bytes:
        data[at : at + width] = chance.choice(values).to_bytes(width, "big", signed=True)
        return checked(data)

    return harm


def checked(data: bytearray) -> bytes:
    data[_CRC : _CRC + 4] = crc32c(memoryview(data)[_ATTRIBUTES:]).to_bytes(4, "big")
    return bytes(data)


def cut(data: bytearray, chance: random.Random) -> bytes:
    return bytes(data[: chance.choice((0, 1, 11, 12, 16, 60, 61, 62, len(data) - 1))])


def cut_and_measured(data: bytearray, chance: random.Random) -> bytes:
    """Ends too early, but its length and its checksum are right."""
    del data[chance.choice((61, 62, len(data) - 1)) :]
    data[_LENGTH : _LENGTH + 4] = (len(data) - 12).to_bytes(4, "big")
    return checked(data)


def two(data: bytearray, _: random.Random) -> bytes:
    return bytes(data) + batch()


def longer(data: bytearray, chance: random.Random) -> bytes:
    return bytes(data) + bytes(chance.choice((1, 12, 61, 100)))


def longer_and_measured(data: bytearray, _: random.Random) -> bytes:
    data += b"\0\0\0"
    data[_LENGTH : _LENGTH + 4] = (len(data) - 12).to_bytes(4, "big")
    return checked(data)


def record(data: bytearray, chance: random.Random) -> bytes:
    """A byte of a record, which may be its length."""
    data[chance.choice((_RECORDS, _RECORDS + 1, _RECORDS + 3, chance.randrange(_RECORDS, len(data))))] = chance.choice(
        (0, 1, 0x7F, 0x80, 0xFF)
    )
    return checked(data)


INT32, INT64 = (1 << 31) - 1, (1 << 63) - 1
HARMS: tuple[Harm, ...] = (
    put(0, 8, -1, 7, INT64, -INT64),
    put(_LENGTH, 4, 0, -1, -12, 48, 49, 50, INT32, -INT32),
    put(12, 4, -1, 5, INT32),
    put(_MAGIC, 1, -1, 0, 1, 3, 127),
    put(_ATTRIBUTES, 2, 1, 4, 5, 8, 0x10, 0x20, 0x30, 0x40, 0x80, 0x100, -1),
    put(_DELTA, 4, 0, 2, -1, INT32, -INT32),
    put(_BASE_TIME, 8, -1, 0, INT64, -INT64),
    put(_MAX_TIME, 8, -1, 0, INT64, -INT64),
    put(_PRODUCER, 8, 0, 5, INT64, -2, -INT64),
    put(_EPOCH, 2, 0, 5, -2, -32768, 32767),
    put(_SEQUENCE, 4, 0, 5, -2, INT32, -INT32),
    put(_COUNT, 4, 0, 2, -1, 100_000, INT32, -INT32),
    cut,
    cut_and_measured,
    two,
    longer,
    longer_and_measured,
    record,
)


class Hostile:
    """Draws requests."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def records(self) -> bytes | None:
        chance = self.chance
        if chance.random() < 0.02:
            return None
        kind = chance.random()
        if kind < 0.3:
            made = batch(chance.choice((1, 3)), producer=77, sequence=chance.choice((0, 0, 1, 3)))
        else:
            made = batch(chance.choice((1, 1, 3)))
        if chance.random() < 0.35:
            return chance.choice(HARMS)(bytearray(made), chance)
        return made

    def topics(self) -> Topics:
        """The same topic or partition may come again."""
        chance = self.chance
        names = ["small", "small", "small", "rolls", "nowhere", "x" * 260, "", "é"]
        found: Topics = []
        for _ in range(chance.choice((1, 1, 1, 2, 3, 0))):
            name = chance.choices(names, (20, 20, 20, 20, 1, 1, 1, 1))[0]
            indexes = chance.choices(
                (0, 1, 2, 3, -1, INT32, -INT32), (30, 30, 30, 10, 1, 1, 1), k=chance.choice((1, 2, 3))
            )
            found.append((name, [(each, self.records()) for each in indexes if chance.random() < 0.98]))
        return found


def frame_of(client: Client, version: int, acks: int, topics: Topics) -> bytes:
    data = []
    for topic, partitions in topics:
        name = name_of(client.way, topic) if topic in TOPICS else topic
        parts = [m.ProduceRequest.PartitionProduceData(index=i, records=r) for i, r in partitions]
        topic_id = client.setting.ids.get(name, b"?" * 16)
        data.append(m.ProduceRequest.TopicProduceData(name=name, topic_id=topic_id, partition_data=parts))
    request = m.ProduceRequest(acks=acks, timeout_ms=1000, topic_data=data)
    return write_request_header(ApiKey.PRODUCE, version, 7, "t") + request.encode(version)


def told(client: Client, frame: bytes) -> bytes:
    """The answer to a frame, with names that all ways share; empty if the connection ends."""
    with pytest.MonkeyPatch.context() as patch:
        if client.way == "general":
            patch.setattr(dispatch, "append_plainly", lambda *_: None)
        try:
            client.socket.sendall(len(frame).to_bytes(4, "big") + frame)
            answer = receive_frame(client.socket)
        except (EOFError, ConnectionError, AssertionError):
            return b""
    for topic in TOPICS:
        answer = answer.replace(client.setting.ids[name_of(client.way, topic)], topic.encode().ljust(16, b"~"))
    answer = answer.replace(name_of(client.way, "").encode(), b"~" * 11)
    return re.sub(rb"within \[[^]]*\]", b"within the clock's bounds", answer)


def harmed(client: Client, version: int, parts: Topics, harms: list[tuple[float, int]], is_cut: bool) -> bytes:
    """The frame of a request with other bytes at such places, but not in names, since those of the ways differ."""
    frame = bytearray(frame_of(client, version, -1, parts))
    name, is_kept = name_of(client.way, parts[0][0]), bytearray(len(frame))
    for called in (name.encode(), client.setting.ids[name]):
        for found in re.finditer(re.escape(called), frame):
            is_kept[found.start() : found.end()] = b"\1" * len(called)
    for place, value in harms:
        at = 4 + int(place * (len(frame) - 4))
        if not is_kept[at]:
            frame[at] = value
    return bytes(frame[: int(harms[0][0] * len(frame))] if is_cut else frame)


@pytest.fixture
def asked(setting: Setting) -> Iterator[Ask]:
    """Sends a frame of each way, through connections that are made anew when they end."""
    clients = {way: Client(setting, way) for way in WAYS}

    def ask(make: Callable[[Client], bytes]) -> list[bytes]:
        answers = []
        for way in WAYS:
            answer = told(clients[way], make(clients[way]))
            if not answer:
                clients[way].socket.close()
                clients[way] = Client(setting, way)
            answers.append(answer)
        return answers

    yield ask
    for each in clients.values():
        each.socket.close()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2))
def test_hostile_batches_are_refused_alike(setting: Setting, asked: Ask, number: int) -> None:
    drawn, before = Hostile(rotation.drawn("hostile batches", number)), setting.taken()
    for _ in range(120):
        version = drawn.chance.randrange(3, 14)
        acks = drawn.chance.choices((1, -1, 2), (20, 20, 1))[0]
        topics = drawn.topics()
        answers = asked(partial(frame_of, version=version, acks=acks, topics=topics))
        assert len(set(answers)) == 1, (version, acks, topics, answers)
    for way in WAYS[:-1]:
        assert state_of(setting, way) == state_of(setting, "general")
    assert all(now > then for now, then in zip(setting.taken(), before, strict=True))


@pytest.mark.parametrize("number", range(2))
def test_frames_with_wrong_counts_and_lengths_are_refused_alike(setting: Setting, asked: Ask, number: int) -> None:
    chance = random.Random(rotation.drawn("hostile frames", number))
    for _ in range(REQUESTS):
        version = chance.randrange(3, 14)
        parts: Topics = [
            (chance.choice(("small", "rolls")), [(n, batch(size=10)) for n in chance.choices((0, 1, 2), k=2)])
        ]
        parts *= chance.choice((1, 2))
        harms = [
            (chance.random(), chance.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF))) for _ in range(chance.choice((1, 1, 2)))
        ]
        is_cut = chance.random() < 0.15
        answers = asked(partial(harmed, version=version, parts=parts, harms=harms, is_cut=is_cut))
        assert len(set(answers)) == 1, (version, parts, harms, is_cut, answers)
    for way in WAYS[:-1]:
        assert state_of(setting, way) == state_of(setting, "general")
