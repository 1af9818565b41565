"""Requests and answers over simulated connections: the two ends of a connection, without a socket.

    Caller    sends encoded requests, hands the decoded answers back in their order
    Served    a broker's end: what `RequestContext` needs of a connection, over frames that arrive whole; it offers
              each to the shortest ways of followers and of groups' members first, as behind a socket, and to that of
              produces where a test wants it
    SimPeers  `headrace.network.peers.peers.Peers` on such callers, one for each broker and lane

Everything is encoded and decoded by the broker's own codec: bytes travel.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar, cast

from headrace.broker.handlers import all_modules
from headrace.errors import InvalidRequest
from headrace.log.segment_list import SegmentRange
from headrace.network.answer_order import Slot
from headrace.network.connection import WAITS
from headrace.network.held import Held
from headrace.network.peers.loan import Asker
from headrace.network.peers.peers import PeerAddress, PeerRefused, PeerUnreachable
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Message
from headrace.protocol.headers import read_response_header, write_request_header
from headrace.security.access import ANONYMOUS, Decisions
from headrace.types import BrokerId
from tests.simulation.network import End, Network
from tests.simulation.scheduler import Process

R = TypeVar("R", bound=Message)


_PRODUCE, _FETCH = b"\0\0", b"\0\1"
_OF_GROUPS = tuple(
    key.to_bytes(2, "big")
    for key in (
        ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.OFFSET_COMMIT,
    )
)  # fmt: skip
_KEYS = {key.title + "Request": key for key in ApiKey}
_NEWEST = {module.API_KEY: module.VERSIONS[-1] for module in all_modules()}


def newest_version(request: Message) -> tuple[ApiKey, int]:
    """The key of a request, and the newest version that a broker of ours serves."""
    key = _KEYS[type(request).__name__]
    if key not in _NEWEST:
        raise PeerUnreachable(f"no broker serves {key.name}")
    return key, _NEWEST[key]


class Caller:
    """A client's connection: made at the first request, gone for good once it broke."""

    def __init__(
        self, network: Network, process: Process, source: str, target: str, client_id: str, port: int = 0
    ) -> None:
        self._end = network.connect(process, source, target, port)
        self._end.on_bytes, self._end.on_closed = self._on_answer, self._on_closed
        self._client_id, self._correlation = client_id, 0
        self._waiting: deque[tuple[asyncio.Future[Any], type[Message], ApiKey, int]] = deque()
        self.is_open = True
        self._over = asyncio.Event()
        self.on_frame: Callable[[ApiKey, bytes], None] = lambda key, frame: None
        """Called with each answer as it arrived."""
        self._asker: Asker | None = None  # to which it is lent
        self._late: asyncio.TimerHandle | None = None  # of a loan
        self._timeout_ms = 0

    async def broken(self) -> None:
        """Returns when it is not open any more."""
        await self._over.wait()

    def ask(
        self, request: Message, answer: type[R], version: int | None = None, client_id: str = ""
    ) -> "asyncio.Future[R]":
        """The answer, or `PeerUnreachable`."""
        key, newest = newest_version(request)
        version = newest if version is None else version
        self._correlation += 1
        header = write_request_header(key, version, self._correlation, client_id or self._client_id)
        self._end.send(header + request.encode(version))
        waiting: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((waiting, answer, key, version))
        return waiting

    def lend(
        self, asker: Asker, request: type[Message], answer: type[R], timeout_ms: int
    ) -> "asyncio.Future[R | None] | None":
        """See `Peers.lend`."""
        key, version = newest_version(request())
        if not self.is_open or self._waiting or not self._ask_on(asker, version, timeout_ms):
            return None
        self._asker = asker
        waiting: asyncio.Future[R | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((waiting, answer, key, version))
        self._timeout_ms = timeout_ms
        waiting.add_done_callback(self._end_loan)
        return waiting

    def _ask_on(self, asker: Asker, version: int, timeout_ms: int) -> bool:
        size = asker.ask(self._correlation + 1, version, self._client_id.encode())
        if size:
            self._correlation += 1
            self._end.send(bytes(asker.out[4:size]))
            loop = asyncio.get_running_loop()
            self._late = loop.call_later(timeout_ms / 1000, self.close, "the time was up")
        return bool(size)

    def _end_loan(self, waiting: "asyncio.Future[Any]") -> None:
        self._asker = None
        if self._late is not None:
            self._late.cancel()
        if waiting.cancelled():
            self.close("nobody waits")

    def _is_taken(self, asker: Asker, frame: bytes) -> bool:
        """Whether the one who has borrowed this takes an answer, and goes on or ends."""
        waiting, _, _, version = self._waiting[0]
        assert self._late is not None
        self._late.cancel()
        if not asker.take(cast(Any, frame), 0, len(frame)):
            self._asker = None
            return False
        if not self._ask_on(asker, version, self._timeout_ms):
            self._asker = None
            self._waiting.popleft()
            waiting.set_result(None)
        return True

    def _on_answer(self, frame: bytes) -> None:
        key = self._waiting[0][2]
        if self._asker is not None and not self._waiting[0][0].done() and self._is_taken(self._asker, frame):
            self.on_frame(key, frame)
            return
        waiting, answer, key, version = self._waiting.popleft()
        self.on_frame(key, frame)
        _, pos = read_response_header(frame, key, version)
        decoded, _ = answer.decode(version, memoryview(frame), pos)
        if not waiting.done():
            waiting.set_result(decoded)

    def _on_closed(self, reason: str) -> None:
        self._end_all(reason)

    def close(self, reason: str = "it is no longer needed") -> None:
        """Nobody is interested any more; what was sent may be done all the same."""
        self._end.close()
        self._end_all(reason)

    def _end_all(self, reason: str) -> None:
        self.is_open = False
        self._over.set()
        for waiting, *_ in self._waiting:
            if not waiting.done():
                kind = PeerRefused if "refused" in reason else PeerUnreachable
                waiting.set_exception(kind(reason))
        self._waiting.clear()


class SimPeers:
    """A broker's way to the others."""

    def __init__(self, network: Network, process: Process, host: str, client_id: str) -> None:
        self._network, self._process, self._host, self._client_id = network, process, host, client_id
        self._callers: dict[tuple[PeerAddress, str], Caller] = {}

    async def send(
        self,
        to: PeerAddress,
        request: Message,
        answer: type[R],
        *,
        timeout_ms: int,
        lane: str = "",
        client_id: str = "",
    ) -> R:
        """See `Peers.ask`."""
        key = (to, lane)
        caller = self._callers.get(key)
        if caller is None or not caller.is_open:
            caller = self._callers[key] = Caller(self._network, self._process, self._host, to.host, self._client_id)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await caller.ask(request, answer, client_id=client_id)
        except TimeoutError:
            caller.close("the time was up")
            raise PeerUnreachable(f"broker {to.id} did not answer within {timeout_ms} ms") from None

    def lend(
        self, to: PeerAddress, asker: Asker, request: type[Message], answer: type[R], *, timeout_ms: int, lane: str = ""
    ) -> "asyncio.Future[R | None] | None":
        """See `Peers.lend`."""
        caller = self._callers.get((to, lane))
        return None if caller is None else caller.lend(asker, request, answer, timeout_ms)

    async def hold(self, to: PeerAddress, *, timeout_ms: int) -> Caller:
        """See `Peers.hold`."""
        caller = Caller(self._network, self._process, self._host, to.host, self._client_id)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await caller.ask(m.ApiVersionsRequest(), m.ApiVersionsResponse)
        except TimeoutError:
            caller.close()
            raise PeerUnreachable(f"broker {to.id} did not answer within {timeout_ms} ms") from None
        except BaseException:
            caller.close()
            raise
        return caller

    def disconnect(self, broker: BrokerId, why: str) -> None:
        """See `Peers.disconnect`."""
        for (to, _), caller in self._callers.items():
            if to.id == broker:
                caller.close(why)

    async def close(self) -> None:
        """See `Peers.close`."""
        for caller in self._callers.values():
            caller.close("this broker stops")


class Served:
    """A broker's end of a connection, as handlers see it: `headrace.network.connection.Connection` without a socket."""

    is_timed = False
    principal = ANONYMOUS
    admitted: Decisions | None = None
    received_ns = looked_ns = 0
    offers_produces = False

    def __init__(self, end: End, dispatch: Callable[[Any, memoryview], None], listener: str = "PLAINTEXT") -> None:
        self._end, self._dispatch, self.listener = end, dispatch, listener
        self._slots: deque[Slot] = deque()
        self._held: deque[bytes] = deque()
        self._reasons = Held(0)
        self._is_postponed = False
        self.is_closed = False
        self.host = self.peer = end.peer_host
        self.software = ""
        end.on_bytes, end.on_closed = self._on_frame, self.close

    def _on_frame(self, frame: bytes) -> None:
        if self._reasons:
            self._held.append(frame)
            return
        if self._is_answered_shortly(frame):
            return
        try:
            self._dispatch(self, memoryview(bytearray(frame)))
        except InvalidRequest as error:
            self.close(error.message)
        if self._is_postponed:
            self._is_postponed = False
            self._held.appendleft(frame)

    def _is_answered_shortly(self, frame: bytes) -> bool:
        """Whether a request took the shortest way."""
        key, shortcut = frame[:2], getattr(self._dispatch, "shortcut", None)
        if shortcut is None:
            return False
        if key == _PRODUCE and self.offers_produces:
            way = shortcut.produces
        elif self._slots or not (key == _FETCH or key in _OF_GROUPS):
            return False
        else:
            way = shortcut.follows if key == _FETCH else shortcut.groups
        end = way.offer(self, memoryview(bytearray(frame)))
        if end > WAITS:
            self.answer(shortcut.take(end), None)
        return bool(end)

    def hold(self, reason: Held, until_ms: float | None = None) -> None:
        self._reasons |= reason
        if until_ms is not None:
            asyncio.get_running_loop().call_at(until_ms / 1000, self.release, reason)

    def postpone(self, reason: Held) -> None:
        self.hold(reason)
        self._is_postponed = True

    def release(self, reason: Held) -> None:
        self._reasons &= ~reason
        while self._held and not self._reasons and not self.is_closed:
            self._on_frame(self._held.popleft())

    def place(self) -> Slot:
        slot = Slot()
        self._slots.append(slot)
        return slot

    def answer(self, chunks: list[Any], request: object) -> None:
        if self._slots:
            self.place().chunks = chunks
        else:
            self._send(chunks)

    def answer_later(self, slot: Slot, chunks: list[Any], request: object) -> None:
        slot.chunks, slot.abandon, slot.waiter = chunks, None, None
        while self._slots and self._slots[0].chunks is not None:
            self._send(self._slots.popleft().chunks or [])

    def _send(self, chunks: list[Any]) -> None:
        if chunks and not self.is_closed:
            data = b"".join(
                bytes(each) if isinstance(each, bytes | bytearray | memoryview) else _read(each) for each in chunks
            )
            self._end.send(data[4:])

    def close(self, reason: str) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._end.close()
        for slot in self._slots:
            if slot.waiter is not None:
                slot.waiter.abandon()
            elif slot.abandon is not None:
                slot.abandon()
            slot.waiter = None
        self._slots.clear()
        self._held.clear()


def _read(part: SegmentRange) -> bytes:
    data = part.file.read(part.size, part.position)
    return data + bytes(part.size - len(data))
