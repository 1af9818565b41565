"""Handshakes of accepted connections. A connection is handed to the server when its handshake is complete.

    accepted ──▶ SILENT ── first byte ──▶ is it TLS? ── no ──▶ an alert, one line in the log, closed
                                             │ yes
                                             ▼
                        ┌── readable ──── BEGUN ◀──────────────┐
                        ▼                                      │ wants more
                   a step of OpenSSL, on a thread ─────────────┤
                                                               └─ complete ──▶ the server makes a Connection

Signing takes OpenSSL up to a millisecond, without Python's lock: on a thread it delays no produce. There is one thread,
so a storm of clients waits in a queue, in which the entrances take turns. When many wait the thread rests between two
of them, three times as long as a step takes, since it competes with the event loop for a core and for Python's lock:
with a lower priority instead it would lose its core while it has the lock. A silent connection has no state of OpenSSL.
Everything is bounded: the time in each state, the connections in it (above the limit the oldest of the entrance that
has most is closed), and the log lines.
"""

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from ssl import SSLSocket, SSLWantReadError, SSLWantWriteError
from threading import Thread
from typing import NamedTuple

from headrace.limits import HANDSHAKE_MS, HANDSHAKES_BEGUN_MAX, HANDSHAKES_MAX
from headrace.network.entrances import Entrance
from headrace.network.fairness import FairQueue, FairRoom
from headrace.network.refusals import Refusals
from headrace.network.tls.failures import handshake_failure
from headrace.network.tls.kernel import KernelTls
from headrace.network.tls.transport import KernelTlsTransport, TlsTransport
from headrace.network.transport import peek
from headrace.security.ssl_principals import NoRuleMatches

log = logging.getLogger(__name__)

_HANDSHAKE_RECORD = 0x16
_ALERT = bytes.fromhex("15030300020228")
"""A fatal alert, handshake_failure. To a client that does not speak TLS it is an answer of 352 MB."""
_NOT_TLS = (
    "the client does not speak TLS: it has to set security.protocol=SSL (or SASL_SSL), or connect to another listener"
)
_STORM = 8
"""So many waiting handshakes are a storm."""

_RESTS_PER_STEP = 3  # of 0, 1, 3 and 6 the one that costs produces little and clients half
_CLOSES_PER_TURN = 20  # each takes up to fifty microseconds


class CompletedHandshake(NamedTuple):
    """A connection whose handshake is complete."""

    sock: SSLSocket
    transport: TlsTransport | KernelTlsTransport
    entrance: Entrance
    address: tuple[str, int]
    principal: str


class _Step(Enum):
    READ = auto()
    WRITE = auto()
    DONE = auto()
    FAILED = auto()


class _Handshake:
    """One connection before the end of its handshake. The thread has it while `is_stepping`."""

    __slots__ = (
        "address", "deadline", "entrance", "failure", "fd", "is_over", "is_stepping", "kernel", "peer", "principal",
        "sock", "step", "tls", "transport", "wrapped",
    )  # fmt: skip

    def __init__(
        self, sock: socket.socket, entrance: Entrance, address: tuple[str, int], deadline: float, kernel: KernelTls
    ) -> None:
        assert entrance.tls is not None
        self.sock, self.entrance, self.tls, self.deadline = sock, entrance, entrance.tls, deadline
        self.kernel = kernel
        self.fd = sock.fileno()  # also while the thread wraps the socket
        self.address = address
        self.peer = f"{address[0]}:{address[1]}"
        self.wrapped: SSLSocket | None = None
        self.transport: TlsTransport | KernelTlsTransport | None = None
        self.step, self.failure, self.principal = _Step.READ, "", ""
        self.is_over = self.is_stepping = False

    def advance(self) -> None:
        """One step of the handshake. Runs on the thread."""
        try:
            if self.wrapped is None:
                self.wrapped = self.tls.wrap(self.sock, self.address[0])
            self.wrapped.do_handshake()
            self.principal = self.tls.principal(self.wrapped)
            kind = KernelTlsTransport if self.kernel.takes(self.wrapped) else TlsTransport
            self.transport = kind(self.wrapped, self.address)
            self.step = _Step.DONE
        except SSLWantReadError:
            self.step = _Step.READ
        except SSLWantWriteError:
            self.step = _Step.WRITE
        except NoRuleMatches as error:
            self.step, self.failure = _Step.FAILED, str(error)
        except OSError as error:
            self.step, self.failure = _Step.FAILED, handshake_failure(error)
        except Exception:  # a certificate that cannot be parsed: the thread must go on for the others
            log.exception("a handshake failed", extra={"peer": self.peer})
            self.step, self.failure = _Step.FAILED, "the handshake failed by an internal error"

    def close(self) -> None:
        """Closes the socket."""
        (self.wrapped or self.sock).close()


class Handshakes:
    """The handshakes of all TLS listeners of a server."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        opened: Callable[[CompletedHandshake], None],
        failed: Callable[[Entrance, str], None],
        refusals: Refusals,
    ) -> None:
        """`opened` gets each connection whose handshake is complete, `failed` the entrance and host of any other."""
        self._loop, self._opened, self._failed = loop, opened, failed
        self._refusals = refusals
        self._silent: FairRoom[_Handshake] = FairRoom()
        self._begun: FairRoom[_Handshake] = FairRoom()
        self._queue: FairQueue[_Handshake] = FairQueue()
        self._stepped: deque[_Handshake] = deque()
        self._thread: Thread | None = None
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self.kernel = KernelTls()
        self.completed = 0
        """Handshakes that were completed."""
        self.failures = 0
        """Handshakes that failed, or took too long."""

    def __len__(self) -> int:
        """The number of connections whose handshake is not complete."""
        return len(self._silent) + len(self._begun)

    def begin(self, sock: socket.socket, entrance: Entrance, address: tuple[str, int]) -> None:
        """Takes an accepted, non-blocking connection through a TLS entrance from `address`."""
        if len(self) >= HANDSHAKES_MAX:
            self._make_room(self._silent if self._silent else self._begun)
        deadline = self._loop.time() + HANDSHAKE_MS / 1000
        this = _Handshake(sock, entrance, address, deadline, self.kernel)
        self._silent.add(this, entrance.name)
        self._loop.add_reader(this.fd, self._first_byte, this)
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._expire)

    def end(self, is_over: Callable[[Entrance, str], bool]) -> None:
        """Closes the connections for which `is_over` says so, given their entrance and host. Nothing is logged."""
        for among in (self._silent, self._begun):
            for this in [each for each in among if is_over(each.entrance, each.address[0])]:
                self.failures += 1
                self._end(this)

    def close(self) -> None:
        """Closes all connections, and ends the thread."""
        if self._timer is not None:
            self._timer.cancel()
        for this in [*self._silent, *self._begun]:
            self._end(this)
        self._is_closed = True  # the thread does not rest any more
        if self._thread is not None:
            self._queue.end()
            self._thread.join()
        while self._stepped:
            self._stepped.popleft().close()

    def _first_byte(self, this: _Handshake) -> None:
        try:
            first = peek(this.sock, 1)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        if not first:
            self._fail(this, "")
        elif first[0] != _HANDSHAKE_RECORD:
            try:
                this.sock.send(_ALERT)
            except OSError:
                pass
            self._fail(this, _NOT_TLS)
        else:
            if len(self._begun) >= HANDSHAKES_BEGUN_MAX:
                self._make_room(self._begun)
            this.deadline = self._loop.time() + HANDSHAKE_MS / 1000
            self._silent.remove(this)
            self._begun.add(this, this.entrance.name)
            self._submit(this)

    def _submit(self, this: _Handshake) -> None:
        self._loop.remove_reader(this.fd)
        self._loop.remove_writer(this.fd)
        this.is_stepping = True
        if self._thread is None:
            self._thread = Thread(target=self._work, name="tls-handshakes", daemon=True)
            self._thread.start()
        self._queue.put(this, this.entrance.name)

    def _work(self) -> None:
        """The thread: steps one handshake after the other. While many wait it rests after each, so that a storm of
        clients takes a quarter of a core."""
        while (this := self._queue.get()) is not None:
            began = time.thread_time()
            if not this.is_over:
                this.advance()
            self._stepped.append(this)
            if len(self._stepped) == 1:
                try:
                    self._loop.call_soon_threadsafe(self._take)
                except RuntimeError:  # the loop has ended
                    return
            if len(self._queue) >= _STORM and not self._is_closed:
                time.sleep(_RESTS_PER_STEP * (time.thread_time() - began))

    def _take(self) -> None:
        """Goes on with the handshakes that the thread has stepped. A new connection may have requests already, so it is
        one turn for each."""
        if not self._stepped:
            return
        this = self._stepped.popleft()
        if self._stepped:
            self._loop.call_soon(self._take)
        this.is_stepping = False
        if this.is_over:
            this.close()
            return
        if this.step is _Step.READ:
            self._loop.add_reader(this.fd, self._submit, this)
        elif this.step is _Step.WRITE:
            self._loop.add_writer(this.fd, self._submit, this)
        elif this.step is _Step.DONE:
            assert this.transport is not None
            self._begun.remove(this)
            self.completed += 1
            assert this.wrapped is not None
            self._opened(CompletedHandshake(this.wrapped, this.transport, this.entrance, this.address, this.principal))
        else:
            self._fail(this, this.failure)

    def _make_room(self, among: FairRoom[_Handshake]) -> None:
        self._fail(among.excess, "too many handshakes are in progress; the oldest is given up")

    def _expire(self) -> None:
        """Closes the connections that had their time; the clock runs for the next one."""
        self._timer = None
        now, left = self._loop.time(), _CLOSES_PER_TURN
        for among in (self._silent, self._begun):
            while left and among and (oldest := among.oldest).deadline <= now:
                self._fail(oldest, "the handshake was not complete in time")
                left -= 1
        waiting = [among.oldest.deadline for among in (self._silent, self._begun) if among]
        if waiting:
            self._timer = self._loop.call_at(max(min(waiting), now), self._expire)

    def _fail(self, this: _Handshake, why: str) -> None:
        """Ends a handshake. Without a reason the client has left before its first byte, as probes of ports do."""
        self.failures += 1
        if why:
            self._refusals.note(why, this.peer, this.entrance.name)
        self._end(this)

    def _end(self, this: _Handshake) -> None:
        this.is_over = True
        self._silent.remove(this)
        self._begun.remove(this)
        if not this.is_stepping:
            self._loop.remove_reader(this.fd)
            self._loop.remove_writer(this.fd)
            this.close()  # otherwise when the thread has given it back
        self._failed(this.entrance, this.address[0])
