"""The sockets of a simulated process: real ones, of which the simulated network holds the other ends.

    network ── a frame ──▶ _Side ══ a pair of sockets ══▶ ReceivePass ──▶ Connection ──▶ the compiled ways
            ◀── frames ───       ◀═════════════════════════════════════════

So a broker has the connections, the passes over readable sockets, and the late writes of one that runs alone. What is
written to a socket is there at once and in full, and what is readable is told in the order in which it came: the
kernel adds nothing that another run of the seed would not have.

    settle    after each callback of the process: what it has sent goes to the network
    _look     a turn of its event loop: who can be read or written is called. It comes at once, or a little later, so
              that several requests meet in one pass
"""

import select
import socket
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from headrace.limits import RECEIVERS_OF_THE_LOOP
from headrace.network.connection import Connection, Dispatch
from headrace.network.late_answers import LateAnswers
from headrace.network.receive_pass import ReceivePass, Turn
from headrace.network.response_memory import UNLIMITED, ResponseMemory
from headrace.network.transport import PlainTransport
from headrace.protocol.conversation.frames import SCRATCH_BYTES, FrameReader
from tests.simulation.network import End

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process

FRAME_BYTES_MAX = 100 << 20
LATER, LATER_US_MAX = 0.3, 400
"""How many turns come later, and by how much at most."""

_RECEIVE_BYTES = 1 << 16


class Sockets:
    """What the kernel does for one process."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._chance = Random(f"{process.scheduler.seed}/{process.name}/{len(process.scheduler.processes)}/sockets")
        self._poll = select.epoll()
        self._readers: dict[int, Callable[[], object]] = {}
        self._writers: dict[int, Callable[[], object]] = {}
        self._sides: dict[int, _Side] = {}
        self._ours: list[socket.socket] = []
        self._is_looking = self._is_over = False

    # What the process asks of its event loop

    def add_reader(self, fd: int, callback: Callable[[], object]) -> None:
        self._readers[fd] = callback
        self._watch(fd)

    def remove_reader(self, fd: int) -> bool:
        was_there = self._readers.pop(fd, None) is not None
        self._watch(fd)
        return was_there

    def add_writer(self, fd: int, callback: Callable[[], object]) -> None:
        self._writers[fd] = callback
        self._watch(fd)

    def remove_writer(self, fd: int) -> bool:
        was_there = self._writers.pop(fd, None) is not None
        self._watch(fd)
        return was_there

    def _watch(self, fd: int) -> None:
        if self._is_over:
            return
        wanted = (select.EPOLLIN if fd in self._readers else 0) | (select.EPOLLOUT if fd in self._writers else 0)
        try:
            if wanted:
                self._poll.modify(fd, wanted)
            else:
                self._poll.unregister(fd)
        except FileNotFoundError:
            if wanted:
                self._poll.register(fd, wanted)

    # What the kernel does

    def connect(self, end: End) -> PlainTransport:
        """The process's side of a connection of the network."""
        theirs, ours = socket.socketpair()
        theirs.setblocking(False)
        ours.setblocking(False)
        self._ours = [each for each in self._ours if each.fileno() >= 0]
        self._ours.append(ours)
        self._sides[theirs.fileno()] = _Side(self, end, theirs)
        self._poll.register(theirs.fileno(), select.EPOLLIN)
        return _Transport(ours, (end.peer_host, 1))

    def settle(self) -> None:
        """Takes what was sent, and has the process look when it has something to do."""
        for each in list(self._sides.values()):
            each.push()
        while not self._is_over:
            found = self._poll.poll(0)
            sent = [side for fd, _ in found if (side := self._sides.get(fd)) is not None]
            for side in sent:
                side.take()
            if len(sent) < len(found) and not self._is_looking:
                self._is_looking = True
                if self._chance.random() < LATER:
                    self._process.call_in(self._chance.randrange(LATER_US_MAX), self._look)
                else:
                    self._process.call(self._look)
            if not sent:
                return

    def _look(self) -> None:
        self._is_looking = False
        for fd, events in self._poll.poll(0):
            for mask, callbacks in ((~select.EPOLLOUT, self._readers), (select.EPOLLOUT, self._writers)):
                callback = callbacks.get(fd) if events & mask else None
                if callback is not None:
                    callback()

    def forget(self, side: "_Side", theirs: socket.socket) -> None:
        """A connection is over."""
        if not self._is_over:
            del self._sides[theirs.fileno()]
            self._poll.unregister(theirs.fileno())
        theirs.close()

    def end(self) -> None:
        """The process is dead."""
        self._is_over = True
        for side in self._sides.values():
            side.theirs.close()
        self._sides.clear()
        self._poll.close()

    def dispose(self) -> None:
        """Nobody looks at the process any more."""
        for each in self._ours:
            each.close()


class _Transport(PlainTransport):
    """A socket that is not of TCP."""

    __slots__ = ()

    def is_left(self) -> bool:
        """See `Transport`."""
        try:
            return not self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True


class _Side:
    """The network's side of a connection."""

    def __init__(self, sockets: Sockets, end: End, theirs: socket.socket) -> None:
        self._sockets, self._end, self.theirs = sockets, end, theirs
        self._to_send, self._received = bytearray(), bytearray()
        end.on_bytes, end.on_closed = self._on_bytes, self._on_closed

    def _on_bytes(self, frame: bytes) -> None:
        self._to_send += len(frame).to_bytes(4, "big") + frame
        self.push()

    def _on_closed(self, reason: str) -> None:
        self._sockets.forget(self, self.theirs)

    def push(self) -> None:
        """Sends what the process's socket has room for."""
        while self._to_send:
            try:
                del self._to_send[: self.theirs.send(self._to_send)]
            except OSError:  # it is full, or closed, which is read
                return

    def take(self) -> None:
        """Hands the frames to the network that the process has sent."""
        is_over = False
        while True:
            try:
                data = self.theirs.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                is_over = True
                break
            self._received += data
        received = self._received
        while len(received) >= 4 and len(received) >= 4 + (size := int.from_bytes(received[:4], "big")):
            self._end.send(bytes(received[4 : 4 + size]))
            del received[: 4 + size]
        if is_over:
            self._end.close()
            self._sockets.forget(self, self.theirs)


class SocketHost:
    """The connections of one broker's process."""

    def __init__(self, process: "Process", after: Turn) -> None:
        self._loop: Any = process.loop
        if process.sockets is None:
            process.sockets = Sockets(process)
        self._sockets = process.sockets
        left_to_loop = Random(f"{process.scheduler.seed}/{process.name}/loop").choice((0, RECEIVERS_OF_THE_LOOP))
        self._receive_pass = ReceivePass(self._loop, left_to_loop, LateAnswers(), after)
        self._memory = ResponseMemory(UNLIMITED)
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))

    def serve(self, end: End, dispatch: Dispatch, listener: str) -> Connection:
        """Takes up a connection."""
        inbound = FrameReader(self._scratch, FRAME_BYTES_MAX)
        transport = self._sockets.connect(end)
        return Connection(transport, listener, inbound, dispatch, self, self._loop, self._memory, self._receive_pass)

    def connection_closed(self, connection: Connection, reason: str) -> None:
        """See `Owner`. The network reads the end of the stream."""

    def close(self) -> None:
        """Ends the pass. All connections are closed."""
        self._receive_pass.close()
