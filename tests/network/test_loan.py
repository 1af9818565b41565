"""A connection that is lent to somebody who asks one thing after another: what it hears, and how the loan ends."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import uvloop

from headrace.network.peers import loan as compiled
from headrace.network.peers import peer_connection
from headrace.network.peers.peer_connection import PeerConnection
from headrace.network.peers.peers import PeerUnreachable
from headrace.network.transport import PlainTransport
from headrace.protocol import messages as m
from headrace.protocol.conversation.asking import SCRATCH_BYTES
from tests.eventually import eventually_async
from tests.uncompiled import uncompiled

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
LATE_MS = 60_000
Tell = Callable[..., None]


class Asker(compiled.Asker):
    """Asks a number of times, and takes answers that begin as it wants."""

    def __init__(self, times: int, request: bytes = b"what?") -> None:
        super().__init__(len(request) + 8)
        self.left, self.request = times, request
        self.heard: list[bytes] = []
        self.fails = False

    def ask(self, correlation_id: int, version: int, client_id: bytes) -> int:
        if not self.left:
            return 0
        self.left -= 1
        frame = correlation_id.to_bytes(4, "big") + self.request
        self.out[: len(frame) + 4] = len(frame).to_bytes(4, "big") + frame
        return len(frame) + 4

    def take(self, octets: memoryview, start: int, end: int) -> bool:
        if self.fails:
            raise RuntimeError("a bug")
        answer = bytes(memoryview(octets)[start + 4 : end])
        if answer.startswith(b"other"):
            return False
        self.heard.append(answer)
        return True


class Peer:
    """The other end, which answers with the id of what it has read."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        sock.setblocking(False)

    async def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            data += await asyncio.get_running_loop().sock_recv(self._sock, count - len(data))
        return data

    async def read(self) -> tuple[bytes, bytes]:
        """The correlation id of the next request, and what is behind it."""
        size = int.from_bytes(await self._exactly(4), "big")
        frame = await self._exactly(size)
        return frame[:4], frame[4:]

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._sock, data)

    async def answer(self, text: bytes) -> bytes:
        """Answers the next request; what it was."""
        number, asked = await self.read()
        await self.send(framed(number + text))
        return asked

    def close(self) -> None:
        self._sock.close()


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


@pytest.fixture(params=["compiled", "uncompiled"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param == "uncompiled":
        monkeypatch.setattr(peer_connection, "Loan", uncompiled(compiled).Loan)
    yield


@pytest.fixture(params=list(LOOPS))
def tell(request: pytest.FixtureRequest, form: None) -> Tell:
    """Runs a story of a connection and its peer, on each kind of event loop."""

    def run(story: Callable[[PeerConnection, Peer], Awaitable[None]], *, is_direct: bool = True) -> None:
        async def main() -> None:
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            transport = PlainTransport(ours, ("127.0.0.1", 1))
            if not is_direct:
                transport.direct_fd = -1
            connection = PeerConnection(
                transport, "peer", "test", loop=asyncio.get_running_loop(), answer_bytes_max=1 << 20
            )
            peer = Peer(theirs)
            try:
                await story(connection, peer)
            finally:
                connection.close()
                peer.close()

        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(main())

    return run


def lent(connection: PeerConnection, asker: Asker, timeout_ms: int = LATE_MS) -> "asyncio.Future[Any]":
    found = connection.lend(asker, 18, timeout_ms=timeout_ms)
    assert found is not None
    return found


async def asks_as_before(connection: PeerConnection, peer: Peer) -> None:
    """The connection is its owner's again."""
    asked = connection.send(m.ListGroupsRequest(), 0)
    number, _ = await read_request(peer)
    await peer.send(framed(number + b"as before"))
    assert bytes((await asked)[4:]) == b"as before"


async def read_request(peer: Peer) -> tuple[bytes, bytes]:
    head, rest = await peer.read()  # API key and version come first
    return rest[:4], head


def test_answers_are_taken_one_after_the_other_until_there_is_nothing_to_ask(tell: Tell) -> None:
    async def story(connection: PeerConnection, peer: Peer) -> None:
        asker = Asker(3)
        result = lent(connection, asker)
        assert await peer.answer(b"one") == b"what?"
        await peer.answer(bytes(200_000))  # more than the scratch buffer has room for
        assert not result.done()
        number, _ = await peer.read()
        for octet in framed(number + b"by the byte"):
            await peer.send(bytes([octet]))
            await asyncio.sleep(0)
        assert await result is None
        assert asker.heard == [b"one", bytes(200_000), b"by the byte"]
        await asks_as_before(connection, peer)
        again = lent(connection, Asker(1))
        await peer.answer(b"again")
        assert await again is None

    tell(story)


@pytest.mark.parametrize("size", [5, 200_000])
def test_the_answer_that_is_not_taken_is_the_result(size: int, tell: Tell) -> None:
    async def story(connection: PeerConnection, peer: Peer) -> None:
        asker = Asker(9)
        result = lent(connection, asker)
        await peer.answer(b"one")
        await peer.answer(b"other".ljust(size))
        frame = await result
        assert bytes(frame)[4:] == b"other".ljust(size)
        assert isinstance(frame.obj, bytearray) == (size > SCRATCH_BYTES), "a large one is not copied, a small one is"
        assert asker.heard == [b"one"]
        await asks_as_before(connection, peer)

    tell(story)


def test_answers_of_all_sizes_come_whole_however_they_are_cut(tell: Tell) -> None:
    sizes = [1, SCRATCH_BYTES - 8, SCRATCH_BYTES - 7, 5, 150_000, 100_000, 300_000, SCRATCH_BYTES, 0, 290_000]
    answers = [bytes([number]) * size for number, size in enumerate(sizes)]

    async def story(connection: PeerConnection, peer: Peer) -> None:
        asker = Asker(len(answers) + 1)
        result = lent(connection, asker)
        for first, answer in enumerate(answers, 1):
            number, _ = await peer.read()
            octets = framed(number + answer)
            for cut in filter(None, (octets[:first], octets[first : 7 * first], octets[7 * first :])):
                await peer.send(cut)
                await asyncio.sleep(0)
        await peer.answer(b"other".ljust(200_000))
        frame = await result
        assert asker.heard == answers
        assert bytes(frame[4:]) == b"other".ljust(200_000)
        await asks_as_before(connection, peer)
        assert bytes(frame[4:]) == b"other".ljust(200_000), "nobody else receives where it is"

    tell(story)


def test_it_is_not_lent_while_another_request_is_in_flight_or_without_a_question(tell: Tell) -> None:
    async def story(connection: PeerConnection, peer: Peer) -> None:
        assert connection.lend(Asker(0), 18, timeout_ms=LATE_MS) is None
        asked = connection.send(m.ListGroupsRequest(), 0)
        assert connection.lend(Asker(1), 18, timeout_ms=LATE_MS) is None
        number, _ = await read_request(peer)
        await peer.send(framed(number + b"x"))
        await asked
        connection.close()
        assert connection.lend(Asker(1), 18, timeout_ms=LATE_MS) is None

    tell(story)


def test_a_stream_whose_bytes_are_changed_is_not_lent(tell: Tell) -> None:
    async def story(connection: PeerConnection, peer: Peer) -> None:
        assert connection.lend(Asker(1), 18, timeout_ms=LATE_MS) is None

    tell(story, is_direct=False)


def test_a_request_that_the_socket_does_not_take_at_once_arrives_whole(tell: Tell) -> None:
    async def story(connection: PeerConnection, peer: Peer) -> None:
        asker = Asker(2, bytes(range(256)) * (16 << 10))
        result = lent(connection, asker)
        for _ in range(2):
            assert await peer.answer(b"got it") == asker.request
        assert await result is None
        await asks_as_before(connection, peer)

    tell(story)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(lambda number: b"", "closed the connection", id="closed"),
        pytest.param(lambda number: framed(b"\0\0\0\0not yours"), "another correlation id", id="another id"),
        pytest.param(
            lambda number: framed(number[:3] + bytes([number[3] + 1])), "another correlation id", id="next id"
        ),
        pytest.param(lambda number: framed(number[:3]), "another correlation id", id="cut off"),
        pytest.param(lambda number: framed(number + b"x") * 2, "another one behind it", id="two"),
        pytest.param(lambda number: b"\x7f\xff\xff\xff", "announced", id="too large"),
    ],
)
def test_who_answers_with_something_else_is_no_peer(answer: Callable[[bytes], bytes], why: str, tell: Tell) -> None:
    async def story(connection: PeerConnection, peer: Peer) -> None:
        asker = Asker(9)
        result = lent(connection, asker)
        number, _ = await peer.read()
        await peer.send(answer(number))
        if not answer(number):
            peer.close()
        with pytest.raises(PeerUnreachable, match=why):
            await result
        assert not asker.heard
        assert connection.failure is not None

    tell(story)


def test_each_request_has_the_next_correlation_id(tell: Tell) -> None:
    async def story(connection: PeerConnection, peer: Peer) -> None:
        numbers = []
        for _ in range(2):
            result = lent(connection, Asker(3))
            for _ in range(3):
                number, _ = await peer.read()
                numbers.append(int.from_bytes(number, "big"))
                await peer.send(framed(number + b"one"))
            assert await result is None
            asked = connection.send(m.ListGroupsRequest(), 0)
            number, _ = await read_request(peer)
            numbers.append(int.from_bytes(number, "big"))
            await peer.send(framed(number + b"between"))
            await asked
        assert numbers == sorted(set(numbers))

    tell(story)


def test_silence_ends_the_loan_after_the_last_question(tell: Tell) -> None:
    async def story(connection: PeerConnection, peer: Peer) -> None:
        result = lent(connection, Asker(9), timeout_ms=40)
        await peer.answer(b"one")
        with pytest.raises(PeerUnreachable, match="no response within 40 ms"):
            await result

    tell(story)


def test_a_peer_that_has_gone_before_the_first_question_ends_the_loan(tell: Tell) -> None:
    async def story(connection: PeerConnection, peer: Peer) -> None:
        peer.close()  # noticed by the send: the loop has no turn in between
        with pytest.raises(PeerUnreachable):
            await lent(connection, Asker(9))
        assert connection.failure is not None

    tell(story)


def test_whoever_closes_the_connection_ends_the_loan(tell: Tell) -> None:
    async def story(connection: PeerConnection, peer: Peer) -> None:
        result = lent(connection, Asker(9))
        connection.close("the broker is no longer live")
        with pytest.raises(PeerUnreachable, match="no longer live"):
            await result

    tell(story)


def test_the_connection_is_closed_if_nobody_waits_for_the_answer(tell: Tell) -> None:
    async def story(connection: PeerConnection, peer: Peer) -> None:
        result = lent(connection, Asker(9))
        result.cancel()
        await eventually_async(lambda: connection.failure is not None)

    tell(story)


def test_a_bug_of_the_asker_is_told_and_the_connection_goes_on(tell: Tell) -> None:
    async def story(connection: PeerConnection, peer: Peer) -> None:
        asker = Asker(9)
        asker.fails = True
        result = lent(connection, asker)
        await peer.answer(b"one")
        with pytest.raises(RuntimeError, match="a bug"):
            await result
        await asks_as_before(connection, peer)

    tell(story)
