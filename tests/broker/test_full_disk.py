"""A disk that is full, takes half a write, or fails to sync, under a running broker.

Full: a small tmpfs of the test's own, which needs the right to mount one. Half a write: the limit of a process's file
size, lowered while the broker runs; the write that crosses it is short, and the next one fails. A failing sync: strace.
"""

import os
import resource
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest

from headrace.errors import ErrorCode
from headrace.offline.verify import BadIndex, Damage, verify
from headrace.records.format2.batch import decode_records, iter_headers
from tests.asker import Asker
from tests.broker.admin_requests import delete_records
from tests.broker.forked_brokers import ForkedBrokers, missing_strace
from tests.conftest import StartHeadrace
from tests.eventually import WITHIN_SECONDS, eventually_equal
from tests.harness import HeadraceServer, receive_frame
from tests.wire import INIT_PRODUCER_ID, PRODUCE, Wire, batch, frame, produce_request, produced, string

pytestmark = pytest.mark.slow  # processes of its own


REFUSED = ErrorCode.KAFKA_STORAGE_ERROR
DISK_BYTES, BALLAST_BYTES = 4 << 20, 1 << 20
OFTEN = {
    "offsets.topic.num.partitions": "1",
    "log.flush.offset.checkpoint.interval.ms": "50",
    "replica.high.watermark.checkpoint.interval.ms": "50",
    "log.retention.check.interval.ms": "100",
    "log.segment.delete.delay.ms": "0",
}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """An empty file system of a few MiB, with a file `ballast` on it that can be removed to make space."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "headrace-test", str(path)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("mount is not installed")
    if mounted.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr.decode(errors='replace').strip()}")
    (path / "ballast").write_bytes(bytes(BALLAST_BYTES))
    yield path
    subprocess.run(["umount", str(path)], check=True)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[ForkedBrokers]:
    """Brokers under strace."""
    if reason := missing_strace():
        pytest.skip(reason)
    with ForkedBrokers(tmp_path) as process:
        yield process


def producer_id(wire: Wire) -> int:
    answer = wire.ask(INIT_PRODUCER_ID, 0, string(None) + struct.pack(">i", 60_000))
    return int(struct.unpack_from(">q", answer, 6)[0])


def read_values(bootstrap: str, topic: str, start: int = 0, partition: int = 0) -> list[bytes]:
    """Every value of a partition."""
    with Wire(bootstrap) as wire:
        code, _, end = wire.list_offset(topic, -1, partition=partition)
        assert code == 0
        values: list[bytes] = []
        while start + len(values) < end:
            fetched = wire.fetch(topic, start + len(values), partition=partition)
            assert fetched.error_code == 0
            for position, header in iter_headers(fetched.records):
                records = decode_records(fetched.records[position:], header)
                values += [record.value or b"" for record in records if record.offset == start + len(values)]
        return values


def commit(wire: Wire, offset: int) -> int:
    """Commit a group's offset; the error code."""
    part = struct.pack(">iiq", 1, 0, offset) + string(None)
    body = string("readers") + struct.pack(">i", -1) + string("") + struct.pack(">qi", -1, 1) + string("full") + part
    return int(struct.unpack(">h", wire.ask(8, 2, body)[-2:])[0])


def fill(wire: Wire, values: list[bytes], producer: int, bytes_each: int = 16_000) -> bytes:
    """Write until the disk is full; the value that it did not take."""
    while True:
        value = b"%d " % len(values) + b"x" * bytes_each
        code, offset = wire.produce("full", batch([value], producer=(producer, 0, len(values))))
        if code:
            assert code == REFUSED
            return value
        assert offset == len(values)
        values.append(value)


def make_topics(wire: Wire, settings: Mapping[str, str]) -> None:
    assert wire.create_topic("full", 1, {"retention.ms": "-1", **settings}) == 0
    eventually_equal(lambda: wire.ask(10, 0, string("readers"))[:2], bytes(2))  # makes the topic of offsets
    eventually_equal(lambda: commit(wire, 1), 0)


@pytest.mark.parametrize("segment_bytes", [70_000, 100 << 20])
def test_a_full_disk_refuses_records_and_heals(
    small_disk: Path, headrace_server: StartHeadrace, segment_bytes: int
) -> None:
    server = headrace_server(data=small_disk, settings=OFTEN)
    values: list[bytes] = []
    with Wire(server.bootstrap) as wire:
        make_topics(wire, {"segment.bytes": str(segment_bytes)})
        producer = producer_id(wire)
        refused = fill(wire, values, producer)
        filler = [(small_disk / f"filler-{size}", size) for size in (4096, 4096)]
        for path, size in filler:  # not a page is left
            with suppress(OSError):
                path.write_bytes(bytes(size))
        for _ in range(20):
            answer = wire.produce("full", batch([refused], producer=(producer, 0, len(values))))
            assert answer.error_code == REFUSED
        assert wire.create_topic("another") == REFUSED
        while (code := commit(wire, 2)) == 0:  # its page has space for some more
            pass
        assert code in (ErrorCode.NOT_COORDINATOR, REFUSED)
        time.sleep(0.3)  # checkpoints and retention are tried, and fail
        assert read_values(server.bootstrap, "full") == values
        # Space returns.
        (small_disk / "ballast").unlink()
        assert wire.produce("full", batch([refused], producer=(producer, 0, len(values)))) == (0, len(values))
        values.append(refused)
        assert wire.produce("full", batch([refused], producer=(producer, 0, len(values) - 1))) == (0, len(values) - 1)
        eventually_equal(lambda: wire.create_topic("another") in (0, ErrorCode.TOPIC_ALREADY_EXISTS), True)
        assert wire.produce("another", batch([b"first"])) == (0, 0)
        eventually_equal(lambda: commit(wire, 3), 0)
        for number in range(20):
            value = b"%d after" % number
            assert wire.produce("full", batch([value], producer=(producer, 0, len(values)))).error_code == 0
            values.append(value)
    for ending in (server.kill, server.stop):
        ending()
        server.restart()
        assert read_values(server.bootstrap, "full") == values
        assert read_values(server.bootstrap, "another") == [b"first"]
    assert server.stop() == 0
    assert not [found for found in verify(small_disk, deep=True) if isinstance(found, Damage | BadIndex)]


def test_deleting_records_makes_space_on_a_full_disk(small_disk: Path, headrace_server: StartHeadrace) -> None:
    server = headrace_server(data=small_disk, settings=OFTEN)
    values: list[bytes] = []
    with Wire(server.bootstrap) as wire, Asker(server.bootstrap) as asker:
        make_topics(wire, {"segment.bytes": "70000"})
        producer = producer_id(wire)
        refused = fill(wire, values, producer)
        eventually_equal(lambda: delete_records(asker, "full", {0: 100}), {0: (100, "NONE")})
        eventually_equal(
            lambda: wire.produce("full", batch([refused], producer=(producer, 0, len(values)))), (0, len(values))
        )
        values.append(refused)
        assert read_values(server.bootstrap, "full", 100) == values[100:]
    server.kill()
    server.restart()
    assert read_values(server.bootstrap, "full", 100) == values[100:]


def test_a_stop_and_a_start_on_a_full_disk_lose_nothing(small_disk: Path, headrace_server: StartHeadrace) -> None:
    server = headrace_server(data=small_disk, settings=OFTEN)
    values: list[bytes] = []
    with Wire(server.bootstrap) as wire:
        producer = producer_id(wire)
    for ending in (HeadraceServer.stop, HeadraceServer.kill):
        with Wire(server.bootstrap) as wire:
            if not values:
                make_topics(wire, {"segment.bytes": "70000"})
                fill(wire, values, producer)
        with (small_disk / "more").open("ab", buffering=0) as more, suppress(OSError):
            while more.write(bytes(4096)) == 4096:
                pass
        assert ending(server) in (0, None)
        try:
            server.restart()
        except RuntimeError as error:  # it says why, and waits for space
            assert "space" in str(error) or "full" in str(error), error
        else:
            server.kill()
        (small_disk / "more").unlink(missing_ok=True)
        (small_disk / "ballast").unlink(missing_ok=True)
        server.restart()
        assert read_values(server.bootstrap, "full") == values
    with Wire(server.bootstrap) as wire:
        assert wire.produce("full", batch([b"last"], producer=(producer, 0, len(values)))) == (0, len(values))


def limit_file_size(pid: int, size: int) -> None:
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if size < 0 else size, hard))


def test_half_a_write_is_taken_back(headrace_server: StartHeadrace) -> None:
    server = headrace_server()
    assert server.process is not None
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("full", configs={"retention.ms": "-1"}) == 0
        value = b"x" * 900_000
        for number in range(8):  # the metadata store's files stay below the limit
            assert wire.produce("full", batch([value])) == (0, number)
        log = server.data / "full-0" / f"{0:020d}.log"
        size = log.stat().st_size
        limit_file_size(server.process.pid, size + 1000)
        for _ in range(3):
            assert wire.produce("full", batch([value])).error_code == REFUSED
            assert log.stat().st_size == size
        assert wire.produce("full", batch([b"small"])) == (0, 8)
        limit_file_size(server.process.pid, -1)
        assert wire.produce("full", batch([b"large" * 10_000])) == (0, 9)
    for ending in (server.kill, server.stop):
        ending()
        server.restart()
        assert read_values(server.bootstrap, "full") == [value] * 8 + [b"small", b"large" * 10_000]


def test_half_a_write_that_stays_is_cut_off_at_the_next_start(brokers: ForkedBrokers, tmp_path: Path) -> None:
    data = tmp_path / "data"
    log = data / "full-0" / f"{0:020d}.log"
    broker = brokers.start(data, {})
    assert broker.wait_until_ready()
    with Wire(broker.bootstrap) as wire:
        assert wire.create_topic("full", configs={"retention.ms": "-1"}) == 0
        assert wire.produce("full", batch([b"x" * 900_000])) == (0, 0)
    broker.end(signal.SIGTERM)
    for ending in (signal.SIGKILL, signal.SIGTERM):
        broker = brokers.start(data, {}, ["ftruncate:error=EIO:when=1+"], only=[log])
        assert broker.wait_until_ready()
        size = log.stat().st_size
        limit_file_size(broker.pid, size + 1000)
        with Wire(broker.bootstrap) as wire:
            assert wire.produce("full", batch([b"y" * 900_000])).error_code == REFUSED
            assert log.stat().st_size == size + 1000
        broker.end(ending)
        assert broker.faults_seen()
        broker = brokers.start(data, {})
        assert broker.wait_until_ready()
        assert read_values(broker.bootstrap, "full") == [b"x" * 900_000]
        assert log.stat().st_size == size
        assert broker.end(signal.SIGTERM) == 0


def test_a_failed_sync_of_the_only_disk_ends_the_broker_and_is_not_tried_again(
    brokers: ForkedBrokers, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    broker = brokers.start(data, {})
    assert broker.wait_until_ready()
    with Wire(broker.bootstrap) as wire:
        for topic in ("bad", "good"):
            assert (
                wire.create_topic(topic, configs={"flush.messages": "1", "flush.ms": "20", "retention.ms": "-1"}) == 0
            )
            assert wire.produce(topic, batch([b"before"])) == (0, 0)
    broker.end(signal.SIGTERM)
    broken = data / "bad-0" / f"{0:020d}.log"
    broker = brokers.start(data, OFTEN, ["fdatasync:error=EIO:when=1"], only=[broken])
    assert broker.wait_until_ready()
    with Wire(broker.bootstrap) as wire:
        producer, good = producer_id(wire), 1
        assert wire.produce("bad", batch([b"doubtful"], producer=(producer, 0, 0))).error_code == REFUSED
        with suppress(ConnectionError):
            for number in range(1, 10_000):
                code, _ = wire.produce("good", batch([b"%d" % number]))
                if code == 0:
                    good += 1
                else:
                    assert code == REFUSED
    assert os.waitstatus_to_exitcode(broker.end(signal.SIGCONT)) == 1
    assert broker.strace_file.read_text().count("fdatasync") == broker.faults_seen() == 1
    broker = brokers.start(data, {})
    assert broker.wait_until_ready()
    found = read_values(broker.bootstrap, "bad")
    assert found in ([b"before"], [b"before", b"doubtful"])
    with Wire(broker.bootstrap) as wire:
        assert wire.produce("bad", batch([b"doubtful"], producer=(producer, 0, 0))) == (0, 1)
        assert wire.produce("bad", batch([b"after"])) == (0, 2)
    assert len(read_values(broker.bootstrap, "good")) >= good
    assert broker.end(signal.SIGTERM) == 0


class Crowd:
    """Many connections to a broker, which sends them all at once what it has for them. `stored`: by partition, what was
    answered with an offset."""

    def __init__(self, server: HeadraceServer, partitions: int) -> None:
        assert server.process is not None
        self.pid, self.partitions = server.process.pid, partitions
        self.sockets = [socket.create_connection(("127.0.0.1", server.port), WITHIN_SECONDS) for _ in range(24)]
        self.stored: list[dict[int, bytes]] = [{} for _ in range(partitions)]
        self.sent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.sockets:
            each.close()

    def round(self, size: int = 1000) -> int:
        """A few produces of each connection; how many of them were refused for the disk. None ends a connection."""
        sent: list[list[tuple[int, bytes]]] = []
        os.kill(self.pid, signal.SIGSTOP)  # so that they meet in a turn
        try:
            for number, each in enumerate(self.sockets):
                values = [
                    (n % self.partitions, b"%d %d " % (self.sent, n) + bytes(size)) for n in range(number, number + 3)
                ]
                self.sent += 1
                requests = [produce_request("full", batch([value]), partition=of) for of, value in values]
                each.sendall(b"".join(frame(PRODUCE, 3, request) for request in requests))
                sent.append(values)
        finally:
            os.kill(self.pid, signal.SIGCONT)
        refused = 0
        for each, values in zip(self.sockets, sent, strict=True):
            for partition, value in values:
                code, offset = produced("full", receive_frame(each)[4:])
                if code:
                    assert code == REFUSED
                    refused += 1
                else:
                    assert self.stored[partition].setdefault(offset, value) is value
        return refused

    def check(self, bootstrap: str) -> None:
        """What was answered with an offset is stored there, and nothing else is."""
        for partition, stored in enumerate(self.stored):
            found = read_values(bootstrap, "full", partition=partition)
            assert dict(enumerate(found)) == stored


def test_many_clients_learn_which_of_their_batches_a_full_disk_took(
    small_disk: Path, headrace_server: StartHeadrace
) -> None:
    server = headrace_server(data=small_disk, settings=OFTEN)
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("full", 3, {"retention.ms": "-1"}) == 0
    with Crowd(server, 3) as crowd:
        full_rounds = 0
        while full_rounds < 5:
            full_rounds += crowd.round() > 0
        assert "batches of" in server.stderr_file.read_text(), "no write was put off"
        crowd.check(server.bootstrap)
        (small_disk / "ballast").unlink()
        assert [crowd.round() for _ in range(3)] == [0, 0, 0]
        crowd.check(server.bootstrap)
        server.kill()
        server.restart()
        crowd.check(server.bootstrap)


def test_many_clients_outlive_a_broker_that_has_no_descriptor_for_a_next_segment(
    headrace_server: StartHeadrace,
) -> None:
    server = headrace_server()
    assert server.process is not None
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("full", 3, {"retention.ms": "-1", "segment.bytes": "200000"}) == 0
        refused = wire.produce("full", batch([b""]), partition=9)  # it reads what it needs to refuse one
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with Crowd(server, 3) as crowd:
        assert crowd.round() == 0
        open_ones = {int(name) for name in os.listdir(f"/proc/{server.process.pid}/fd")}
        limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        lowest = next(number for number in range(len(open_ones) + 1) if number not in open_ones)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (lowest, limits[1]))
        counts = [crowd.round() for _ in range(20)]
        assert counts[0] == 0, "the segment has room"
        assert counts[-1] > 0
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, limits)
        assert [crowd.round() for _ in range(3)] == [0, 0, 0]
        crowd.check(server.bootstrap)
