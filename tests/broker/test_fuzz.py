"""Requests of real clients, damaged at random: no crash, no hang, no exception of the broker's own, no growth.

The seeds are what three client libraries sent through a proxy, and one request of every API at every version. Each
round damages a few and sends them over a connection of their own. The random seed is printed; put it into
HEADRACE_FUZZ_SEED to send the very same bytes again.
"""

import os
import random
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.broker.handlers import all_modules
from headrace.errors import KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import read_request_header, write_request_header
from tests import rotation
from tests.broker.recording_proxy import recorded, run_clients
from tests.broker.siege import MIB, Bystander, assert_unharmed, growing_at_most, memory_bytes
from tests.broker.test_every_version import TOPIC, requests
from tests.harness import HeadraceServer
from tests.wire import Wire

PARTITIONS_MAX = 8
INTERESTING = (0, 1, -1, -2, 0x7F, 0x7FFF, 0x7FFFFFFF, -0x80, -0x8000, -0x80000000, 1 << 62)
SETTINGS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "max.connections.per.ip": "1000",
}


def one_of_every_version() -> list[bytes]:
    """A request of each API that is served, at each of its versions."""
    return [
        write_request_header(module.API_KEY, version, 1, "fuzz") + request.encode(version)
        for module in all_modules()
        for version in module.VERSIONS
        for request in requests(module.API_KEY, version, {})
    ]


def overwritten(data: bytearray, rng: random.Random) -> None:
    """A number that is likely to be a border, where there may have been one."""
    size, code = rng.choice(((1, ">b"), (2, ">h"), (4, ">i"), (8, ">q")))
    if len(data) >= size:
        bits = 8 * size
        value = (rng.choice(INTERESTING) + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
        struct.pack_into(code, data, rng.randrange(len(data) - size + 1), value)


def flipped(data: bytearray, rng: random.Random) -> None:
    """A bit or a few."""
    for _ in range(rng.randrange(1, 5)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def cut_short(data: bytearray, rng: random.Random) -> None:
    """The end is missing."""
    del data[rng.randrange(1, len(data) + 1) :]


def shortened(data: bytearray, rng: random.Random) -> None:
    """Some bytes in the middle are missing."""
    start = rng.randrange(len(data))
    del data[start : start + rng.randrange(1, 9)]


def lengthened(data: bytearray, rng: random.Random) -> None:
    """Noise in the middle, or at the end."""
    start = rng.choice((rng.randrange(len(data) + 1), len(data)))
    data[start:start] = rng.randbytes(rng.choice((1, 2, 4, 8, 100)))


def repeated(data: bytearray, rng: random.Random) -> None:
    """Some bytes come twice."""
    start = rng.randrange(len(data))
    part = data[start : start + rng.randrange(1, 65)]
    data[start:start] = part * rng.choice((1, 1, 2, 50))


def of_another_version(data: bytearray, rng: random.Random) -> None:
    """The header promises another form."""
    if len(data) >= 4:
        struct.pack_into(">h", data, 2, rng.randrange(-1, 20))


def of_another_api(data: bytearray, rng: random.Random) -> None:
    """The header promises another request."""
    if len(data) >= 2:
        struct.pack_into(">h", data, 0, rng.randrange(-1, 93))


DAMAGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    overwritten, overwritten, flipped, flipped, cut_short, shortened, lengthened, repeated, of_another_version,
    of_another_api,
)  # fmt: skip


def damaged(frame: bytes, rng: random.Random) -> bytes:
    """A frame with its size, damaged once to three times; now and then the size is what is wrong."""
    data = bytearray(frame)
    for _ in range(rng.randrange(1, 4)):
        if data:
            rng.choice(DAMAGES)(data, rng)
    size = len(data) + (rng.randrange(-8, 9) if rng.random() < 0.05 else 0)
    return struct.pack(">i", size) + data


def asks_for_too_much(frame: bytes) -> bool:
    """Whether a broker would be right to obey, and busy for minutes: thousands of partitions."""
    with suppress(KafkaError):
        header, pos = read_request_header(frame)
        if header.api_key == ApiKey.CREATE_TOPICS:
            wishes, _ = m.CreateTopicsRequest.decode(header.api_version, frame, pos)
            return any(topic.num_partitions > PARTITIONS_MAX for topic in wishes.topics)
        if header.api_key == ApiKey.CREATE_PARTITIONS:
            growth, _ = m.CreatePartitionsRequest.decode(header.api_version, frame, pos)
            return any(topic.count > PARTITIONS_MAX for topic in growth.topics)
    return False


def send(port: int, data: bytes) -> None:
    """Sends it all and takes what comes for a moment, as long as the broker wants to hear and talk."""
    with suppress(ConnectionError, TimeoutError), socket.create_connection(("127.0.0.1", port), 15) as connection:
        connection.sendall(data)
        connection.settimeout(0.002)
        while connection.recv(1 << 16):
            pass


def fuzz(port: int, seeds: Sequence[bytes], seconds: float, seed: int) -> int:
    """Sends damaged requests for so long; how many."""
    rng = random.Random(seed)
    sent = 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        frames = [damaged(rng.choice(seeds), rng) for _ in range(rng.randrange(1, 9))]
        frames = [frame for frame in frames if not asks_for_too_much(frame[4:])]
        send(port, b"".join(frames))
        sent += len(frames)
    return sent


@pytest.fixture
def seed(capsys: pytest.CaptureFixture[str]) -> int:
    """The random seed, printed also when all goes well."""
    number = int(os.environ.get("HEADRACE_FUZZ_SEED", rotation.drawn("fuzz", 0)))
    with capsys.disabled():
        print(f"\nHEADRACE_FUZZ_SEED={number}")
    return number


def besiege(directory: Path, seconds: float, seed: int) -> None:
    """Records, damages, sends, and looks at what has become of the broker."""
    server = HeadraceServer(directory / "data", dict(SETTINGS))
    try:
        with recorded(server) as (frames, bootstrap):
            run_clients(bootstrap)
            seeds = sorted({*one_of_every_version(), *frames})
        assert {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.JOIN_GROUP} <= {int.from_bytes(f[:2], "big") for f in frames}
        address = f"127.0.0.1:{server.port}"
        with Wire(address) as wire:
            assert wire.create_topic(TOPIC) == 0
        with Bystander(address) as bystander:
            fuzz(server.port, seeds, min(60, seconds / 2), seed)  # it has met everything once: what grows now is a leak
            with growing_at_most(server, 64 * MIB):
                sent = fuzz(server.port, seeds, seconds / 2 if seconds < 120 else seconds - 60, seed + 1)
        print(
            f"{len(seeds)} requests, {sent} damaged ones sent; {bystander.exchanges} exchanges beside them, "
            f"{memory_bytes(server) / MIB:.0f} MiB at the end"
        )
        assert_unharmed(server)
    finally:
        server.stop()


@pytest.mark.slow
def test_damaged_requests_of_real_clients_harm_nobody(tmp_path: Path, seed: int) -> None:
    besiege(tmp_path, 10, seed)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_damaged_requests_harm_nobody_for_ten_minutes(tmp_path: Path, seed: int) -> None:
    besiege(tmp_path, 600, seed)
