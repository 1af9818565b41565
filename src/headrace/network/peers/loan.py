# cython: language_level=3, annotation_typing=False, binding=False
"""A connection to another broker, lent to somebody who sends one request after another over it.

    lend ─▶ ask ─▶ send ─▶ readable ─▶ take ─▶ ask ─▶ …     no task and no future for a request
                                        └── not taken, or nothing to ask ─▶ the loan ends, and its future tells

The asker writes each request itself, and takes in each answer where it was received. One request is in flight. The
first answer that the asker leaves, done nothing with, is the result of the loan; None if it has nothing more to ask.
The connection ends the loan with its failure when it closes.

    buffer   [ size | answer … │ … ]      an answer is received where it is read, in one piece or in many
                     filled ──┘

The buffer is the connection's own, until an answer does not fit it. Then the loan has a larger one, for all further
answers: new memory costs more than the receiving. It grows as the bytes come, as in `conversation.frames`.

Compiled, as `network.connection` is; it also runs uncompiled.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Protocol

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

from headrace.errors import InvalidRequest
from headrace.limits import INT32_MAX
from headrace.protocol.conversation.asking import SCRATCH_BYTES

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_FromStringAndSize
    from cython.cimports.cpython.exc import PyErr_SetFromErrno
    from cython.cimports.headrace.clock_calls import monotonic
    from cython.cimports.headrace.network.socket_calls import MSG_NOSIGNAL, recv, send
    from cython.cimports.headrace.octets import int32_at
else:
    from headrace.octets import int32_at

if TYPE_CHECKING:
    from headrace.network.transport import Transport
    from headrace.protocol.conversation.frames import FrameReader

_SIZE_BYTES, _ID_BYTES, _ID_MASK = 4, 4, INT32_MAX
_SCRATCH_BYTES, _GROWTH = SCRATCH_BYTES, 16


class Asker:
    """Writes requests, and takes in their answers."""

    __slots__ = ("out",)

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max`: of a request."""
        self.out = memoryview(bytearray(bytes_max))

    def ask(self, correlation_id: int, version: int, client_id: bytes) -> int:
        """Writes the next request to the beginning of `out`, with its size before it. Returns its end; 0, with nothing
        done, if there is none for now."""
        raise NotImplementedError

    def take(self, octets: memoryview, start: int, end: int) -> bool:
        """Takes in the answer in `octets[start:end]`, with its header, which is valid until the call returns. False,
        with nothing done, if somebody else has to read it."""
        raise NotImplementedError


class Lender(Protocol):
    """The connection that is lent (`peer_connection`)."""

    def next_id(self) -> int:
        """The correlation id of the first request. The others have the next ones."""

    def send_rest(self, octets: bytes) -> None:
        """Sends what the socket has not taken of a request."""

    def give_back(self, last_id: int) -> None:
        """Ends the loan, whose last request had this correlation id."""

    def close(self, reason: str) -> None:
        """Closes the connection."""


class Loan:
    """A lent connection."""

    __slots__ = (
        "_asked_at", "_asker", "_buffer", "_bytes_max", "_client_id", "_connection", "_direct_fd", "_filled", "_id",
        "_is_answered", "_late", "_loop", "_octets", "_out", "_reader", "_receive_into", "_received", "_room",
        "_timeout_s", "_transport", "_version", "answered",
    )  # fmt: skip

    def __init__(
        self,
        connection: Lender,
        transport: Transport,
        reader: FrameReader,
        asker: Asker,
        *,
        version: int,
        client_id: bytes,
        timeout_ms: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`reader`: of the connection, which has received whole frames only. `timeout_ms`: of an answer."""
        self._connection, self._transport, self._reader, self._asker = connection, transport, reader, asker
        self._version, self._client_id, self._timeout_s, self._loop = version, client_id, timeout_ms / 1000, loop
        self._direct_fd, self._receive_into = transport.direct_fd, transport.receive_into
        self._bytes_max = reader.frame_bytes_max
        self._use(reader.target())
        self._filled = 0  # of an answer that is not whole yet, with its size before it
        self._id = 0
        self._asked_at = 0.0
        self._late: asyncio.TimerHandle | None = None
        self.answered: Any = loop.create_future()
        """The result of the loan."""
        self._is_answered = self.answered.done

    def _use(self, buffer: memoryview) -> None:
        """Receives into this buffer from now on."""
        self._buffer = self._octets = buffer  # the same twice: to cut views from, and to read bytes of
        self._room = len(buffer)
        if cython.compiled:
            self._received, self._out = cython.address(self._octets[0]), cython.address(self._asker.out[0])

    def begin(self) -> bool:
        """Sends the first request. Whether there is one, and the socket has taken it."""
        self._id = self._connection.next_id()
        size = self._asker.ask(self._id, self._version, self._client_id)
        if not size:
            return False
        self._asked_at = _now_s()
        self._late = self._loop.call_later(self._timeout_s, self._look_at_the_time)
        self.answered.add_done_callback(self._note_done)
        self._send(size)
        return True

    def on_readable(self) -> None:
        """Receives, and takes in the answer if it is whole."""
        try:
            count = self._receive()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._connection.close(error.strerror or str(error))
            return
        if count == 0:
            self._connection.close("the peer closed the connection")
            return
        filled = self._filled + count
        self._filled = filled
        if filled < _SIZE_BYTES:
            return
        octets: Any = self._received if cython.compiled else self._octets
        size = int32_at(octets, 0)
        end = _SIZE_BYTES + size
        if end == filled and 0 < size <= self._bytes_max:
            self._filled = 0
            self._take(_SIZE_BYTES, end)
        else:
            self._receive_more(end)

    def _receive_more(self, end: int) -> None:
        """Goes on with an answer that is not whole, which ends at `end` of the buffer."""
        filled = self._filled
        try:
            self._reader.check_size(self._buffer[:_SIZE_BYTES])
        except InvalidRequest as error:
            self._connection.close(f"the response is malformed: {error.message}")
            return
        if end < filled:
            self._connection.close("the response is malformed: there is another one behind it")
            return
        room = min(max(end, 2 * self._room), _GROWTH * filled)
        if room > self._room:
            larger = PyByteArray_FromStringAndSize(cython.NULL, room) if cython.compiled else bytearray(room)
            buffer = memoryview(larger)
            buffer[:filled] = self._buffer[:filled]
            self._use(buffer)

    def _receive(self) -> int:
        if cython.compiled and self._direct_fd >= 0:
            count: int = recv(self._direct_fd, self._received + self._filled, self._room - self._filled, 0)
            if count < 0:
                PyErr_SetFromErrno(OSError)
            return count
        return self._receive_into(self._buffer[self._filled :])

    def _take(self, start: int, end: int) -> None:
        if self._is_answered():
            return  # nobody waits any more, and the connection is about to be closed
        octets: Any = self._received if cython.compiled else self._octets
        if end - start < _ID_BYTES or int32_at(octets, start) != self._id:
            self._connection.close("the response is malformed: it has another correlation id")
            return
        try:
            if not self._asker.take(self._octets, start, end):
                frame = self._buffer[start:end]
                is_own = self._buffer is not self._reader.target()  # nobody uses it after the loan
                self._end(frame if is_own and end - start > _SCRATCH_BYTES else memoryview(bytes(frame)))
                return
            self._id = self._id + 1 & _ID_MASK
            size = self._asker.ask(self._id, self._version, self._client_id)
        except Exception as error:  # a bug of the broker: whoever waits logs it
            self._connection.give_back(self._id)
            self.answered.set_exception(error)
            return
        if size:
            self._asked_at = _now_s()
            self._send(size)
        else:
            self._end(None)

    def _send(self, size: int) -> None:
        if cython.compiled and self._direct_fd >= 0:
            sent: int = send(self._direct_fd, self._out, size, MSG_NOSIGNAL)
        else:
            try:
                sent = self._transport.send(self._asker.out[:size])
            except OSError:
                sent = 0
        if sent != size:  # the connection sends the rest when it can, or finds out why not
            self._connection.send_rest(bytes(self._asker.out[max(sent, 0) : size]))

    def _end(self, frame: memoryview | None) -> None:
        self._connection.give_back(self._id)
        self.answered.set_result(frame)

    def _note_done(self, answered: Any) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
        if answered.cancelled():
            self._connection.close("its answer is not waited for any more")

    def _look_at_the_time(self) -> None:
        """Closes the connection if the answer is late: those behind it would be late, too."""
        left_s = self._asked_at + self._timeout_s - _now_s()
        if left_s > 0:
            self._late = self._loop.call_later(left_s, self._look_at_the_time)
        else:
            self._connection.close(f"no response within {round(1000 * self._timeout_s)} ms")


def _now_s() -> float:
    """The time of an event loop's clock."""
    if cython.compiled:
        now_s: float = monotonic() / 1e9
        return now_s
    return time.monotonic()
