"""A connection on an event loop: why it takes up no request, and what lets it go on."""

import asyncio
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.limits import REQUESTS_PER_TURN_MAX, RESPONSE_BYTES_QUEUED_PER_CONNECTION_MAX
from headrace.network.connection import Connection, Shortcut
from headrace.network.held import Held
from headrace.network.late_answers import LateAnswers
from headrace.network.outbound import FilePart, file_part
from headrace.network.receive_pass import ReceivePass, Turn
from headrace.network.request_times import AnsweredAtOnce, RequestTimes
from headrace.network.response_memory import UNLIMITED, ResponseMemory
from headrace.network.tls import TlsTransport
from headrace.network.transport import PlainTransport, Transport
from headrace.protocol.conversation.frames import FrameReader
from tests.eventually import WITHIN_SECONDS
from tests.harness import receive_exactly
from tests.rotation import random_bytes


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be put forward."""

    skipped_s = 0.0

    def time(self) -> float:
        return super().time() + self.skipped_s


class OpenedFile(NamedTuple):
    """A file that stays open."""

    fd: int

    def read(self, size: int, position: int) -> bytes:
        return os.pread(self.fd, size, position)


class Range(NamedTuple):
    """Bytes of a file."""

    file: OpenedFile
    position: int
    size: int


class Served:
    """A connection whose requests are noted, and answered with themselves; and its peer."""

    def __init__(
        self,
        loop: SkippingLoop,
        certificate: Path | None = None,
        send_buffer_bytes: int | None = None,
        turn: Turn | None = None,
    ) -> None:
        """`certificate`: of the served side, which speaks TLS then. `send_buffer_bytes`: None is the kernel's. `turn`:
        what puts off; over a pair of sockets then, whose buffers are full or not at once."""
        self.loop = loop
        if turn is not None:
            self.peer, sock = socket.socketpair()
        else:
            with socket.create_server(("127.0.0.1", 0)) as listening:
                self.peer = socket.create_connection(listening.getsockname())
                sock, _ = listening.accept()
        sock.setblocking(False)
        self.sock = sock
        if send_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        self.peer.settimeout(WITHIN_SECONDS)
        self.requests: list[bytes] = []
        self.holds_at: dict[bytes, Held] = {}
        self.postpones: dict[bytes, Held] = {}
        self.answer_bytes = 1
        self.ranges: list[Range] = []
        self.reason = ""
        inbound = FrameReader(memoryview(bytearray(1 << 10)), 1 << 20)
        transport: Transport = PlainTransport(sock, None if turn is None else ("127.0.0.1", 1))
        if certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificate)
            transport = TlsTransport(context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False))
        self.receive_pass = ReceivePass(loop, 0, turn)
        self.connection = Connection(
            transport, "PLAINTEXT", inbound, self.dispatch, self, loop, ResponseMemory(UNLIMITED), self.receive_pass
        )

    def dispatch(self, connection: Connection, frame: memoryview) -> None:
        request = bytes(frame)
        if request in self.postpones:
            connection.postpone(self.postpones.pop(request))
            return
        self.requests.append(request)
        connection.answer([request * self.answer_bytes, *self.ranges], None)
        if request in self.holds_at:
            connection.hold(self.holds_at.pop(request))

    def connection_closed(self, connection: Connection, reason: str) -> None:
        self.reason = reason

    def ask(self, *requests: bytes) -> None:
        """Sends requests, and lets the loop do what it can."""
        self.peer.sendall(b"".join(len(each).to_bytes(4, "big") + each for each in requests))
        self.settle()

    def settle(self) -> None:
        """Runs the loop until it has had its turn with everything that is there now."""
        for _ in range(10):
            self.loop.run_until_complete(asyncio.sleep(0))

    def received(self, count: int) -> bytes:
        """So many bytes of answers."""
        found = b""
        while len(found) < count:
            self.settle()
            found += self.peer.recv(count - len(found))
        return found

    def put_forward(self, seconds: float) -> None:
        self.loop.skipped_s += seconds
        self.settle()

    def now_ms(self) -> float:
        return self.loop.time() * 1000


@pytest.fixture
def served() -> Iterator[Served]:
    loop = SkippingLoop()
    found = Served(loop)
    yield found
    found.connection.close("the test is over")
    found.peer.close()
    found.receive_pass.close()
    loop.close()


def test_a_connection_that_is_held_takes_up_nothing_until_it_is_released(served: Served) -> None:
    served.holds_at[b"a"] = Held.ORDER
    served.ask(b"a", b"b")
    served.ask(b"c")
    assert served.requests == [b"a"]
    assert served.connection.held is Held.ORDER
    assert served.peer.recv(10) == b"a"
    served.connection.release(Held.ORDER)
    served.settle()
    assert served.requests == [b"a", b"b", b"c"]
    assert served.received(2) == b"bc"


@pytest.mark.parametrize("first", [Held.ORDER, Held.THROTTLE, Held.AUTHENTICATION])
@pytest.mark.parametrize("second", [Held.ORDER, Held.THROTTLE, Held.AUTHENTICATION])
def test_the_end_of_one_reason_leaves_another_in_force(served: Served, first: Held, second: Held) -> None:
    if first is second:
        return
    served.connection.hold(first)
    served.connection.hold(second)
    served.ask(b"a")
    served.connection.release(first)
    served.settle()
    assert (served.requests, served.connection.held) == ([], second)
    served.connection.release(second)
    served.settle()
    assert (served.requests, served.connection.held) == ([b"a"], Held(0))


@pytest.mark.parametrize("size", [1, 300 << 10])
def test_a_postponed_request_is_dispatched_again_before_those_behind_it(served: Served, size: int) -> None:
    late = b"b" * size
    served.postpones[late] = Held.FLOW_IN
    served.ask(b"a", late, b"c")
    assert served.requests == [b"a"]
    assert served.connection.held is Held.FLOW_IN
    served.connection.release(Held.FLOW_IN)
    served.settle()
    assert served.requests == [b"a", late, b"c"]


def test_a_throttled_connection_goes_on_by_itself_when_its_time_is_over(served: Served) -> None:
    served.connection.hold(Held.THROTTLE, served.now_ms() + 30_000)
    served.ask(b"a")
    served.put_forward(29)
    assert (served.requests, served.connection.is_idle) == ([], False)
    served.put_forward(2)
    assert served.requests == [b"a"]


def test_the_latest_end_of_a_throttle_counts(served: Served) -> None:
    served.connection.hold(Held.THROTTLE, served.now_ms() + 30_000)
    served.connection.hold(Held.THROTTLE, served.now_ms() + 60_000)
    served.connection.hold(Held.THROTTLE, served.now_ms() + 10_000)
    served.ask(b"a")
    served.put_forward(59)
    assert served.requests == []
    served.put_forward(2)
    assert served.requests == [b"a"]


def test_answers_leave_while_a_connection_is_throttled(served: Served) -> None:
    served.holds_at[b"b"] = Held.THROTTLE
    served.ask(b"a", b"b", b"c")
    assert served.requests == [b"a", b"b"]
    assert served.peer.recv(10) == b"ab"


def test_a_full_connection_goes_on_when_its_peer_has_read_and_stays_throttled(served: Served) -> None:
    served.answer_bytes = RESPONSE_BYTES_QUEUED_PER_CONNECTION_MAX + (8 << 20)
    served.ask(b"a", b"b")
    assert served.requests == [b"a"]
    assert served.connection.held is Held.FULL
    served.connection.hold(Held.THROTTLE)
    expected = served.answer_bytes
    served.answer_bytes = 1
    received = 0
    while received < expected:
        served.settle()
        received += len(served.peer.recv(1 << 20))
    served.settle()
    assert (served.requests, served.connection.held) == ([b"a"], Held.THROTTLE)
    served.connection.release(Held.THROTTLE)
    served.settle()
    assert served.requests == [b"a", b"b"]


def test_a_throttled_connection_that_ends_leaves_no_timer(served: Served) -> None:
    served.connection.hold(Held.THROTTLE, served.now_ms() + 30_000)
    served.connection.close("enough")
    served.put_forward(31)
    assert (served.requests, served.reason) == ([], "enough")
    served.connection.hold(Held.THROTTLE, served.now_ms() + 30_000)
    assert served.connection.held is Held(0)


def test_a_throttled_connection_is_idle_once_its_peer_has_gone(served: Served) -> None:
    """Else each attempt of a client with a debt of days would keep a socket for days."""
    served.connection.hold(Held.THROTTLE, served.now_ms() + 10 * 86_400_000)
    served.ask(b"a")
    idle = [served.connection.is_idle]  # its client may wait as it was told
    served.connection.hold(Held.ORDER)
    served.peer.shutdown(socket.SHUT_WR)
    idle.append(served.connection.is_idle)  # a request is in progress
    served.connection.release(Held.ORDER)
    idle.append(served.connection.is_idle)
    assert (idle, served.requests) == ([False, False, True], [])


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and its certificate for localhost, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", path, "-out", f"{path}.crt"], check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + Path(f"{path}.crt").read_bytes())
    return path


def test_a_tls_stream_carries_large_requests_and_answers_out_of_files(certificate: Path, tmp_path: Path) -> None:
    content = random_bytes("a file", 3 << 20)
    (tmp_path / "segment").write_bytes(content)
    requests = [random_bytes("first", 300_000), b"b", random_bytes("third", 20_000), b"c"]
    loop = SkippingLoop()
    served = Served(loop, certificate)
    fd = os.open(tmp_path / "segment", os.O_RDONLY)
    served.ranges = [Range(OpenedFile(fd), 100, len(content) - 100)]
    expected = b"".join(each + content[100:] for each in requests)

    def talk() -> bytes:
        context = ssl.create_default_context(cafile=f"{certificate}.crt")
        with context.wrap_socket(served.peer, server_hostname="localhost") as peer:
            peer.sendall(b"".join(len(each).to_bytes(4, "big") + each for each in requests))
            received = bytearray()
            while len(received) < len(expected):
                received += peer.recv(1 << 20)
            return bytes(received)

    received = loop.run_until_complete(loop.run_in_executor(None, talk))
    assert served.requests == requests
    assert received == expected
    served.connection.close("the test is over")
    os.close(fd)
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def test_a_failed_handshake_ends_the_connection(certificate: Path) -> None:
    loop = SkippingLoop()
    served = Served(loop, certificate)
    served.peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
    served.settle()
    assert "handshake failed" in served.reason
    served.peer.close()
    loop.close()


class FileAnswers(Shortcut):
    """Answers a request with itself, a range of a file, a comma, the other ranges, and a full stop."""

    def __init__(self, ranges: Sequence[FilePart | bytes]) -> None:
        super().__init__()
        self.ranges = ranges

    def answer(self, connection: Connection, octets: memoryview, start: int, end: int, at: int) -> int:
        pos = at + end - start
        self.out[at:pos] = octets[start:end]
        for number, each in enumerate(self.ranges):
            self.cuts[number] = pos
            self.files.append(each)
            if not number:
                self.out[pos] = ord(",")
                pos += 1
        self.out[pos] = ord(".")
        return pos + 1


class ShortWay:
    """A dispatcher with a shortcut. It answers as that does, what comes while an answer waits."""

    def __init__(self, shortcut: FileAnswers) -> None:
        self.shortcut = shortcut

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        first, *others = self.shortcut.ranges
        connection.answer([bytes(frame), first, b",", *others, b"."], None)


@pytest.mark.parametrize("send_buffer_bytes", [None, 64 << 10])
@pytest.mark.parametrize("is_warm", [True, False])
@pytest.mark.parametrize(
    "sizes", [(1,), (256 << 10,), ((256 << 10) + 1,), (1 << 20,), (300_000, 5, 400_000), ((1 << 20) + 1, 9)]
)
def test_a_shortcuts_answers_out_of_files_arrive_whole_and_in_order(
    sizes: tuple[int, ...], is_warm: bool, send_buffer_bytes: int | None, tmp_path: Path
) -> None:
    content = random_bytes("a file", 2 << 20)
    (tmp_path / "segment").write_bytes(content)
    with (tmp_path / "segment").open("rb") as file:
        if not is_warm and hasattr(os, "posix_fadvise"):
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        opened, fds = OpenedFile(file.fileno()), (-1, file.fileno())
        ranges = [file_part(opened, fds[number % 2], 100 + number, size) for number, size in enumerate(sizes, is_warm)]
        parts = [content[each.position : each.position + each.size] for each in ranges]
        requests = [b"first", b"b", b"third"]
        expected = b"".join(each + parts[0] + b"," + b"".join(parts[1:]) + b"." for each in requests)
        loop = SkippingLoop()
        served = Served(loop, send_buffer_bytes=send_buffer_bytes)
        served.connection.hand_over(ShortWay(FileAnswers(ranges)), 1 << 20)

        def talk() -> bytes:
            received = bytearray()
            for each in requests:
                served.peer.sendall(len(each).to_bytes(4, "big") + each)
            while len(received) < len(expected):
                got = served.peer.recv(1 << 20)
                assert got, "the connection was closed"
                received += got
            return bytes(received)

        assert loop.run_until_complete(loop.run_in_executor(None, talk)) == expected
        served.connection.close("the test is over")
        served.peer.close()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def test_what_a_socket_does_not_take_of_a_shortcuts_answer_waits_as_a_range_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(bytes(1 << 20))
    loop = SkippingLoop()
    served = Served(loop, send_buffer_bytes=8192)
    served.peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    with (tmp_path / "segment").open("rb") as file:
        served.connection.hand_over(
            ShortWay(FileAnswers([file_part(OpenedFile(file.fileno()), -1, 0, 1 << 20)])), 1 << 20
        )
        served.ask(b"a")
        assert not served.connection.is_idle
        assert served.peer.recv(1) == b"a"
    served.connection.close("the test is over")
    served.peer.close()
    loop.close()


def test_a_shortcuts_answer_out_of_a_file_that_ends_early_closes_the_connection(served: Served, tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(b"abc")
    with (tmp_path / "segment").open("rb") as file:
        ranges = [file_part(OpenedFile(file.fileno()), -1, 0, 10)]
        served.connection.hand_over(ShortWay(FileAnswers(ranges)), 1 << 20)
        served.ask(b"a")
        assert "ends before the end" in served.reason


def test_a_shortcuts_answer_may_have_bytes_among_the_ranges_of_files(tmp_path: Path) -> None:
    content = random_bytes("a file", 1000)
    (tmp_path / "segment").write_bytes(content)
    loop = SkippingLoop()
    served = Served(loop)
    with (tmp_path / "segment").open("rb") as file:
        chunks: list[FilePart | bytes] = [bytes(40_000), file_part(OpenedFile(file.fileno()), -1, 0, 1000), b"few"]
        served.connection.hand_over(ShortWay(FileAnswers(chunks)), 1 << 20)
        served.ask(b"a")
        expected = b"a" + bytes(40_000) + b"," + content + b"few."
        received = b""
        while len(received) < len(expected):
            got = served.peer.recv(1 << 20)
            assert got, served.reason
            received += got
    assert received == expected
    served.connection.close("the test is over")
    served.peer.close()
    loop.close()


class LateWays(Shortcut):
    """Puts off answers of 500 bytes. At the third request, the two answers before leave first, and then it calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.then: Callable[[], object] = lambda: None

    def has_room(self, size: int) -> bool:
        return True

    def answer(self, connection: Connection, octets: memoryview, start: int, end: int, at: int) -> int:
        self.calls += 1
        if self.calls == 3 and self.late is not None:
            self.late.flush()
            self.then()
        self.out[at : at + 500] = bytes([self.calls]) * 500
        return at + 500


class LateWay:
    """A dispatcher with a shortcut that puts off."""

    def __init__(self, shortcut: Shortcut) -> None:
        self.shortcut = shortcut

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        raise AssertionError("the shortcut answers all")


def test_late_answers_stay_behind_what_the_socket_did_not_take_of_earlier_ones() -> None:
    loop, late = SkippingLoop(), LateWays()
    served = Served(loop, send_buffer_bytes=1, turn=LateAnswers())
    filled = 0
    with suppress(BlockingIOError):
        while True:
            filled += served.sock.send(bytes(100))
    late.then = lambda: receive_exactly(served.peer, filled)  # there is room again, while the first two wait
    served.connection.hand_over(LateWay(late), 1 << 20)
    served.ask(*[b"\0\0 a produce"] * 3)
    assert served.received(1500) == b"".join(bytes([number]) * 500 for number in (1, 2, 3))
    served.connection.close("the test is over")
    served.peer.close()
    loop.close()


@pytest.mark.parametrize("way", ["in chunks", "as a frame"])
@pytest.mark.parametrize("answers", [1, 3])
def test_the_answer_to_a_request_that_waited_arrives_whole_however_much_the_socket_takes(
    way: str, answers: int
) -> None:
    loop = SkippingLoop()
    served = Served(loop, send_buffer_bytes=1, turn=Turn())
    frames = [random_bytes(f"answer {number}", 300_000) for number in range(answers)]
    slots = [served.connection.place() for _ in frames]
    request = AnsweredAtOnce(RequestTimes(range(1)), 0, 0, 0)
    for slot, frame in zip(slots[::-1], frames[::-1], strict=True):  # the first one's lets the others go
        if way == "in chunks":
            served.connection.answer_later(slot, [frame], request)
        else:
            served.connection.answer_frame_later(slot, frame, request)
    late = served.connection.place()
    assert served.received(answers * 300_000) == b"".join(frames)
    served.connection.answer_frame_later(late, b"more", request)
    assert served.received(4) == b"more"
    served.connection.close("the test is over")
    served.peer.close()
    loop.close()


class Refused(LateWays):
    """Its first write fails."""

    woken = 0

    def write_late(self) -> int:
        return 1

    def wake_late(self) -> None:
        self.woken += 1


def test_a_connection_that_cannot_be_closed_keeps_no_late_answer_from_others(caplog: pytest.LogCaptureFixture) -> None:
    loop, late, turn = SkippingLoop(), Refused(), LateAnswers()
    bad, good = Served(loop, turn=turn), Served(loop, turn=turn)

    def fail(connection: Connection, reason: str) -> None:
        raise ValueError("a bug")

    bad.connection_closed = fail  # type: ignore[method-assign]
    late.out[:6] = b"badfor"
    assert turn.begin(late, 6)
    for mask, each, start, end in ((1, bad, 0, 3), (2, good, 3, 6)):
        late.mask = mask
        turn.note(each.connection, late, start, end)
    turn.flush()
    assert bad.connection.is_closed
    assert good.received(3) == b"for"
    assert late.woken == 1
    assert "an answer could not be sent" in caplog.text
    good.connection.close("the test is over")
    for each in (bad, good):
        each.peer.close()
    loop.close()


class InThreeWays(LateWays):
    """Puts off what is a produce, answers `?` at once, and leaves `!` to the dispatcher, which answers nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[bytes] = []

    @property
    def shortcut(self) -> Shortcut:
        return self

    def answer(self, connection: Connection, octets: memoryview, start: int, end: int, at: int) -> int:
        request = bytes(octets[start:end])
        if request == b"!":
            return 0
        self.taken.append(request)
        self.out[at] = request[-1]
        return at + 1

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        self.taken.append(bytes(frame))


@pytest.mark.parametrize("counts", [(100, 0, 0), (0, 100, 0), (0, 0, 100), (30, 20, 90), (30, 0, 100), (1, 63, 30)])
def test_a_connection_has_one_budget_for_a_turn_however_its_requests_are_answered(counts: tuple[int, ...]) -> None:
    loop, ways = SkippingLoop(), InThreeWays()
    served = Served(loop, turn=LateAnswers())
    served.connection.hand_over(ways, 1 << 20)
    requests = [each for each, count in zip((b"\0\0p", b"?", b"!"), counts, strict=True) for _ in range(count)]
    served.peer.sendall(b"".join(len(each).to_bytes(4, "big") + each for each in requests))
    served.receive_pass.take_turn()
    assert ways.taken == requests[:REQUESTS_PER_TURN_MAX]
    served.settle()
    assert ways.taken == requests
    served.connection.close("the test is over")
    served.peer.close()
    loop.close()
