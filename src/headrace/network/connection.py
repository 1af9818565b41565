# cython: language_level=3, annotation_typing=False, binding=False, boundscheck=False, wraparound=False
# cython: initializedcheck=False
"""A client's connection: reads requests and sends responses in the order of the requests.

A request that can be answered at once is answered inside the read callback. A request that must wait (a long poll, a
join, acks=all) keeps its place in the order as a `Slot`. Requests behind it are dispatched all the same; their
responses wait for it.

A held connection (`held`) dispatches no request and reads nothing. A request that may not even be handled yet is
postponed: it stays the first of the received ones, and is dispatched again when the hold ends.

The module is compiled, since every request passes it four times (read, dispatched, answered, sent); it also runs
uncompiled.

The connection knows no API: it passes frames to the dispatcher and gets chunks back. Limits: while a peer does not read
its responses, or sends requests faster than they are answered, no request of it is dispatched; and after
`REQUESTS_PER_TURN_MAX` requests of one connection the others get their turn.
"""

import asyncio
import logging
from collections import deque
from time import monotonic_ns
from typing import Protocol

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

from headrace.errors import InvalidRequest
from headrace.limits import (
    LATE_FRAME_BYTES_MAX,
    REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX,
    REQUESTS_PER_TURN_MAX,
    SENT_AHEAD_BYTES_MAX,
    SHORT_ANSWER_BYTES_MAX,
)
from headrace.network.answer_buffer import OUT_BYTES, AnswerBuffer
from headrace.network.answer_order import Slot
from headrace.network.answer_sender import AnswerSender
from headrace.network.held import Held
from headrace.network.late_answers import LateAnswers, LateReceiver, LateWriter
from headrace.network.outbound import Chunks, Progress
from headrace.network.receive_pass import ReceivePass
from headrace.network.request_times import Timed
from headrace.network.response_memory import ResponseMemory
from headrace.network.transport import Transport, Wants
from headrace.protocol.conversation.frames import SCRATCH_BYTES, Announced, FrameReader
from headrace.security.access import ANONYMOUS, Decisions

if cython.compiled:
    from cython.cimports.cpython.exc import PyErr_SetFromErrno
    from cython.cimports.headrace.clock_calls import monotonic
    from cython.cimports.headrace.network.socket_calls import recv
else:
    from headrace.octets import bytes_at

log = logging.getLogger(__name__)

_THROTTLE, _FULL = int(Held.THROTTLE), int(Held.FULL)  # as C integers
_DONE, _COLD = Progress.DONE, Progress.COLD
_SIZE_BYTES = 4  # before each frame
_FRAME_BYTES = 256  # that a kept frame costs beside its own
_PER_TURN_MAX = REQUESTS_PER_TURN_MAX  # as a C integer
_SHORT_MAX, _OUT_BYTES, _LATE_FRAME_BYTES = SHORT_ANSWER_BYTES_MAX, OUT_BYTES, LATE_FRAME_BYTES_MAX
_SLOTS_MAX = REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX  # as a C integer
WAITS = _WAITS = 1
"""The end of no answer: a shortcut returns it for a request that waits."""

_NO_FRAMES: "deque[memoryview]" = deque()
"""The frames of each connection where none wait: an empty deque of its own would take 0.6 kB."""


def _kept(frame: memoryview) -> memoryview:
    """The frame for later: small ones lie in a buffer that other connections share."""
    return frame if len(frame) > SCRATCH_BYTES else memoryview(bytearray(frame))


class Shortcut(LateWriter):
    """Answers the most frequent requests without the dispatcher. This one answers none.

    A connection offers each frame to its dispatcher's shortcut, if it has one and nothing waits in the connection. The
    frame is a place in the buffer of received bytes, and the answer one in a buffer of answers: in compiled code, no
    objects. Ranges of files that belong into the answer are the exception. Connections of one event loop may share a
    shortcut."""

    __slots__ = ()

    def answer(self, connection: "Connection", octets: memoryview, start: int, end: int, at: int) -> int:
        """Writes the whole answer to the request in `octets[start:end]` to `out[at:]`, where `SHORT_ANSWER_BYTES_MAX`
        have room, and perhaps more. Returns its end. `WAITS` if the request has to wait and has a place in the order.
        0, with nothing done, if the dispatcher has to handle it. `octets` may be written to, as a frame may."""
        return 0

    def timed(self, connection: "Connection") -> Timed:
        """The times of the request that was just answered, if they are measured."""
        raise NotImplementedError


def _shortcut_of(dispatch: "Dispatch") -> Shortcut | None:
    """The way past the dispatcher."""
    return getattr(dispatch, "shortcut", None)


class Dispatch(Protocol):
    """The receiver of a connection's frames. Its attribute `shortcut`, if it has one, is offered each frame first."""

    def __call__(self, connection: "Connection", frame: memoryview) -> None:
        """Handles one request frame, which is valid until the call returns."""


class Owner(Protocol):
    """The owner of connections: the server."""

    def connection_closed(self, connection: "Connection", reason: str) -> None:
        """Removes a closed connection."""


class Connection(LateReceiver):
    """One accepted stream, owned by the event loop."""

    __slots__ = (
        "_answers", "_direct_fd", "_dispatch", "_fd", "_frames", "_goes_on", "_inbound", "_is_beginning",
        "_is_buffering", "_is_guarded", "_is_postponed", "_is_reading", "_is_sending", "_late", "_left", "_loop",
        "_owner", "_reasons", "_receive_into", "_receive_pass", "_shortcut",
        "_throttle", "_throttled_until_ms", "_transport", "_turn", "admitted", "host", "is_timed",
        "listener", "looked_ns", "principal", "received_ns", "session", "software",
    )  # fmt: skip

    def __init__(
        self,
        transport: Transport,
        listener: str,
        inbound: FrameReader,
        dispatch: Dispatch,
        owner: Owner,
        loop: asyncio.AbstractEventLoop,
        memory: ResponseMemory,
        receive_pass: ReceivePass,
        *,
        is_timed: bool = False,
    ) -> None:
        """`is_timed`: whether the times of requests are measured, which metrics need."""
        self.is_timed = is_timed
        self._receive_pass, self._turn = receive_pass, receive_pass.turn
        self._late = self._turn if isinstance(self._turn, LateAnswers) else None
        self._transport, self._loop, self._owner, self._dispatch = transport, loop, owner, dispatch
        self._shortcut = _shortcut_of(dispatch)
        self._fd, self._direct_fd = transport.fileno(), transport.direct_fd
        self._receive_into = transport.receive_into
        self._is_buffering = transport.is_buffering
        self._inbound, self._answers = inbound, AnswerSender(transport, memory, is_timed)
        self._frames = _NO_FRAMES  # received, not yet dispatched
        self._reasons = 0  # of `Held`
        self._throttle: asyncio.TimerHandle | None = None
        self._throttled_until_ms = 0.0
        self._is_closed = self._is_reading = self._is_sending = self._goes_on = False
        self._is_guarded = self._is_postponed = self._is_beginning = False
        self._left = 0  # requests that may still be taken up in this turn
        self.listener = listener
        self.host, port = transport.address()
        self.peer = f"{self.host}:{port}"
        self.principal = ANONYMOUS
        self.session: object = None  # of a peer that has authenticated by SASL: what its gate keeps of it
        self.admitted: Decisions | None = None  # what the admission decided for this connection
        self.software = ""  # the client's name and version, from ApiVersions
        self.received_ns = monotonic_ns()  # when bytes were last received
        self.looked_ns = self.received_ns  # when the current request was dispatched
        self._begin()

    # -- handshake

    def _begin(self) -> None:
        """Continues the handshake; begins to read when it is complete."""
        wants = self._transport.handshake()
        if wants is Wants.NOTHING:
            self._read_again()
        elif wants is Wants.READ:
            self._is_reading = self._is_beginning = True
            self._loop.add_reader(self._fd, self._go_on_beginning)
        else:
            self._is_sending = True
            self._loop.add_writer(self._fd, self._go_on_beginning)

    def _go_on_beginning(self) -> None:
        self._stop_reading()
        if self._is_sending:
            self._is_sending = False
            self._loop.remove_writer(self._fd)
        try:
            self._begin()
        except OSError as error:
            self.close(f"the handshake failed: {error.strerror or error}")

    # -- in

    def on_readable(self) -> None:
        """See `Receiver`."""
        inbound = self._inbound
        try:
            count = self._receive()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._turn.flush()
            self.close(error.strerror or str(error))
            return
        if count == 0:
            self._turn.flush()
            self.close("closed by the client")
            return
        self.received_ns = self.looked_ns = monotonic() if cython.compiled else monotonic_ns()
        self._left = _PER_TURN_MAX
        answered = self._answer_by_shortcut(count)
        if answered == count or self._is_closed:
            if self._answers.order.count:
                self._pace()
            if self._is_buffering:
                self._read_pending()
            return
        try:
            frames = inbound.received(count, answered)
        except InvalidRequest as error:
            self._turn.flush()
            self.close(error.message)
            return
        if frames:
            self._turn.flush()
        taken = self._take_up(frames)
        if taken < len(frames) and not self._is_closed:
            self._keep(frames[taken:])
        self._flush()
        if self._is_buffering:
            self._read_pending()

    def _receive(self) -> int:
        """Receives into the target of the frames. Raises `OSError`."""
        if cython.compiled and self._direct_fd >= 0 and self._inbound._own is None:
            inbound = self._inbound
            count: int = recv(self._direct_fd, cython.address(inbound._octets[0]), len(inbound._octets), 0)
            if count < 0:
                PyErr_SetFromErrno(OSError)
            return count
        return self._receive_into(self._inbound.target())

    def _is_quiet(self) -> bool:
        """Whether nothing waits in the connection: what is answered now can be sent now."""
        return not self._answers.order.count and self._is_free()

    def _is_free(self) -> bool:
        """Whether a shortcut may be asked: nothing waits but answers, for their time."""
        if self._reasons or self._is_closed or self._is_sending or self._answers.outbound.queued_bytes:
            return False
        if self._frames is not _NO_FRAMES and self._frames:
            return False
        return self._answers.order.count < _SLOTS_MAX

    def _answer_by_shortcut(self, count: int) -> int:
        """Answers the frames at the beginning of what was received, as long as the shortcut does. Returns their end."""
        shortcut, late, answered = self._shortcut, self._late, 0
        if shortcut is None or not self._is_free():
            return 0
        if late is not None and (late.is_open or self._has_several(count)):
            answered = self._answer_late(shortcut, late, count)
            if not late.is_open:
                late.flush()
            if late.has_declined or self._inbound.end_of_frame(answered, count) < 0:
                return answered
            late.flush()
            if self._is_closed or not self._is_free():
                return answered
        return self._answer_shortly(shortcut, answered, count)

    def _has_several(self, count: int) -> bool:
        """Whether more than one frame was received, of which the first one is whole."""
        end = self._inbound.end_of_frame(0, count)
        return 0 < end < count

    def _answer_late(self, shortcut: Shortcut, late: LateAnswers, count: int) -> int:
        """As `_answer_shortly`, for requests whose answers are sent at the end of the turn."""
        inbound, pos, left = self._inbound, 0, self._left
        shortcut.late, late.has_declined = late, False
        try:
            while left:
                end = inbound.end_of_frame(pos, count)
                if end < 0 or end - pos > _LATE_FRAME_BYTES or inbound._octets[pos + 4]:
                    break
                if inbound._octets[pos + 5] not in (0, 12, 68, 76):
                    break  # what it has to be is a produce, or a heartbeat, which looks at no log
                if not late.begin(shortcut, end - pos):
                    late.flush()
                    if self._is_closed or not self._is_free() or not late.begin(shortcut, end - pos):
                        break
                at = late.filled
                answer_end = shortcut.answer(self, inbound._octets, pos + _SIZE_BYTES, end, at)
                if not answer_end:
                    late.has_declined = True
                    break
                pos = end
                left -= 1
                if answer_end == _WAITS:
                    if not self._is_free():
                        break
                elif self._answers.order.count:  # it tells of nothing that was put off
                    self._answer_behind(shortcut, at, answer_end)
                else:
                    late.note(self, shortcut, at, answer_end)
                    if self.is_timed:
                        self._answers.note(shortcut.timed(self))
        except Exception:  # as in `_take_up`
            log.exception("a request could not be handled", extra={"peer": self.peer})
            late.flush()
            self.close("an internal error")
        finally:
            shortcut.late, self._left = None, left
        return pos

    @property
    def has_waiting(self) -> bool:
        """Whether an answer has to wait for that to an earlier request."""
        return self._answers.order.count > 0

    def _answer_behind(self, shortcut: Shortcut, start: int, end: int) -> None:
        """Lets an answer that a shortcut wrote wait for those before it."""
        self._answers.add([bytes_at(shortcut.out, start, end)], shortcut.timed(self) if self.is_timed else None)

    def send_late(self, buffer: AnswerBuffer, start: int, end: int) -> None:
        """See `LateReceiver`."""
        if not self._answers.send_written(buffer, start, end):
            self._flush()

    def send_written(self, answers: bytes) -> None:
        """See `LateReceiver`."""
        self._answers.outbound.add(answers)
        self._flush()

    def _answer_shortly(self, shortcut: Shortcut, pos: int, count: int) -> int:
        """Answers the frames from `pos` on of what was received, as long as the shortcut does. Returns their end."""
        inbound, left, filled = self._inbound, self._left, 0
        try:
            while left:
                end = inbound.end_of_frame(pos, count)
                if end < 0 or filled > _OUT_BYTES - _SHORT_MAX:
                    break
                if self._answers.order.count and (inbound._octets[pos + 4] or inbound._octets[pos + 5]):
                    break  # of those behind a request that waits, only produces
                answer_end = shortcut.answer(self, inbound._octets, pos + _SIZE_BYTES, end, filled)
                if not answer_end:
                    break
                pos = end
                left -= 1
                if answer_end == _WAITS:
                    if not self._is_free():
                        break
                    continue
                if self._answers.order.count:
                    self._answer_behind(shortcut, filled, answer_end)
                    continue
                filled = answer_end
                if self.is_timed:
                    self._answers.note(shortcut.timed(self))
                if shortcut.files:
                    if not self._answers.send_with_files(shortcut, filled):
                        self._flush()
                    filled = 0
                    if self._is_closed or not self._is_quiet():
                        break
        except Exception:  # as in `_take_up`
            log.exception("a request could not be handled", extra={"peer": self.peer})
            shortcut.files.clear()
            self.close("an internal error")
            return pos
        self._left = left
        if filled and not self._answers.send_written(shortcut, 0, filled):
            self._flush()
        return pos

    def _keep(self, frames: list[memoryview]) -> None:
        """Keeps frames that cannot be dispatched yet. A peer that has yet to authenticate may send few ahead."""
        if self._is_guarded and sum(map(len, frames)) + _FRAME_BYTES * len(frames) > SENT_AHEAD_BYTES_MAX:
            self.close("too much was sent ahead of the authentication")
            return
        self._own_frames().extend([_kept(frame) for frame in frames])

    def _own_frames(self) -> "deque[memoryview]":
        if self._frames is _NO_FRAMES:
            self._frames = deque()
        return self._frames

    def _read_pending(self) -> None:
        """Schedules a read of bytes that the transport has buffered: the socket does not become readable for them."""
        if self._is_reading and not self._is_closed and self._transport.pending():
            self._loop.call_soon(self._read_if_reading)

    def _read_if_reading(self) -> None:
        if self._is_reading:
            self.on_readable()

    def _take_up(self, frames: list[memoryview]) -> int:
        """Dispatches as many frames as the limits allow; returns their number."""
        taken = 0
        try:
            for frame in frames:
                if taken >= self._left or self._is_closed or self._is_held():
                    break
                taken += 1
                self._dispatch(self, frame)
                if self._is_postponed:
                    self._is_postponed = False
                    taken -= 1
                    break
        except InvalidRequest as error:
            self.close(error.message)
        except Exception:  # a bug of the broker: the client must not wait for a response that never comes
            log.exception("a request could not be handled", extra={"peer": self.peer})
            self.close("an internal error")
        return taken

    @property
    def held(self) -> Held:
        """The reasons for which no request is dispatched; empty while requests are."""
        return Held(self._reasons)

    def hold(self, reason: Held, until_ms: float | None = None) -> None:
        """Dispatches no further request until `release(reason)`.

        `until_ms`, for THROTTLE: the event loop's time, in ms, at which the hold ends by itself. The latest one counts.
        """
        if self._is_closed:
            return
        if until_ms is not None:
            self._throttle_until(until_ms)
        self._reasons |= reason
        self._stop_reading()

    def release(self, reason: Held) -> None:
        """Ends the hold for one reason. When none is left, the connection resumes with the frames already received."""
        self._reasons &= ~reason
        if reason & _THROTTLE:
            self._unthrottle()
        self._go_on()

    def postpone(self, reason: Held) -> None:
        """As `hold`, for the frame as well that is being dispatched: it is dispatched again when no reason is left.
        Called by the dispatcher, which has done nothing about the frame."""
        if not self._is_closed:
            self.hold(reason)
            self._is_postponed = True

    def _throttle_until(self, until_ms: float) -> None:
        if self._throttle is not None:
            if until_ms <= self._throttled_until_ms:
                return
            self._throttle.cancel()
        self._throttled_until_ms = until_ms
        self._throttle = self._loop.call_at(until_ms / 1000, self.release, Held.THROTTLE)

    def _unthrottle(self) -> None:
        if self._throttle is not None:
            self._throttle.cancel()
            self._throttle = None

    def _go_on(self) -> None:
        self._goes_on, self._left = False, _PER_TURN_MAX
        self.looked_ns = monotonic_ns()
        frames = [self._frames.popleft() for _ in range(min(len(self._frames), REQUESTS_PER_TURN_MAX))]
        taken = self._take_up(frames)
        if taken < len(frames) and not self._is_closed:
            self._own_frames().extendleft(frames[: taken - 1 : -1] if taken else frames[::-1])
        if not self._frames:
            self._frames = _NO_FRAMES
        self._flush()

    def hand_over(
        self, dispatch: Dispatch, frame_bytes_max: int, frame_bytes_min: int = 1, announced: Announced | None = None
    ) -> None:
        """Gives the frames from the next one on to `dispatch`; they may have up to `frame_bytes_max` bytes.

        `announced`, for a peer that has yet to authenticate: called with the size of each frame of which a part is
        kept; of requests that cannot be dispatched, few are kept then."""
        self._dispatch, self._is_guarded = dispatch, announced is not None
        self._shortcut = _shortcut_of(dispatch)
        self._inbound.limit(frame_bytes_max, frame_bytes_min, announced)

    # -- out

    def place(self) -> Slot:
        """Reserves the next place in the order of the responses."""
        return self._answers.order.place()

    def answer(self, chunks: Chunks, request: Timed | None) -> None:
        """Queues the response to the current request; it is sent when the read callback ends. `request`: None if its
        times are not measured."""
        self._answers.add(chunks, request)

    def answer_later(self, slot: Slot, chunks: Chunks, request: Timed) -> None:
        """Sends the response to a request that had to wait. Without chunks it has none (acks=0)."""
        if len(chunks) == 1 and self._is_only(slot):
            chunk = chunks[0]
            if isinstance(chunk, bytes):
                self._send_only(slot, chunk)
                return
        self._fill(slot, chunks, request)

    def answer_frame_later(self, slot: Slot, frame: bytes, request: Timed) -> None:
        """As `answer_later`, for an answer of few bytes in one piece."""
        if self._is_only(slot):
            self._send_only(slot, frame)
        else:
            self._fill(slot, [frame], request)

    def _is_only(self, slot: Slot) -> bool:
        """Whether the answer in this place is all that the connection has to do."""
        if not self._is_reading or self.is_timed or self._answers.counted_bytes:
            return False
        return self._answers.order.count == 1 and self._answers.order.first is slot and self._is_free()

    def _send_only(self, slot: Slot, frame: bytes) -> None:
        self._answers.order.take_only(slot)
        if not self._answers.send_frame(frame):
            self._flush()

    def _fill(self, slot: Slot, chunks: Chunks, request: Timed) -> None:
        self._answers.fill(slot, chunks, request)
        if self._answers.order.first is slot:
            self._flush()

    def answer_written_later(self, slot: Slot, shortcut: Shortcut, size: int, request: Timed) -> None:
        """As `answer_later`, for an answer that a shortcut has written to the first `size` bytes of its buffer."""
        answers = self._answers
        is_plain = self._is_reading and not answers.counted_bytes
        if not (is_plain and self._is_free() and answers.order.take_only(slot)):
            self.answer_later(slot, shortcut.take(size), request)
            return
        if self.is_timed:
            answers.note(request)
        if shortcut.files:
            is_sent = answers.send_with_files(shortcut, size)
        else:
            is_sent = answers.send_written(shortcut, 0, size)
        if not is_sent:
            self._flush()

    def _flush(self) -> None:
        if self._is_closed:
            return
        if self._answers.order.count:
            self._answers.put_out()
        if self._answers.outbound.queued_bytes and not self._is_sending:
            self._send()
        else:
            self._pace()

    def _send(self) -> None:
        try:
            progress = self._answers.send()
        except OSError as error:
            self.close(error.strerror or str(error))
            return
        if progress is _DONE:
            if self._is_sending:
                self._loop.remove_writer(self._fd)
                self._is_sending = False
        elif progress is _COLD:
            self._warm_up()
        elif not self._is_sending:
            self._loop.add_writer(self._fd, self._send)
            self._is_sending = True
        self._pace()

    def _warm_up(self) -> None:
        if not self._is_sending:
            self._is_sending = True
        else:
            self._loop.remove_writer(self._fd)
        outbound = (
            self._answers.outbound
        )  # compiled, an attribute without a type: its methods can be called by the executor
        self._loop.run_in_executor(None, outbound.warm).add_done_callback(self._warmed)

    def _warmed(self, warming: "asyncio.Future[None]") -> None:
        self._is_sending = False
        error = warming.exception()
        if error is not None:
            self.close(f"reading the log failed: {error}")
        elif not self._is_closed:
            self._send()

    # -- pace

    def _pace(self) -> None:
        """Resumes or stops reading, by the amount that waits to be sent."""
        if self._is_closed:
            return
        if self._is_held():
            self._stop_reading()
        elif self._frames is not _NO_FRAMES and self._frames:
            self._stop_reading()
            if not self._goes_on:
                self._goes_on = True
                self._loop.call_soon(self._go_on)
        elif not self._is_reading:
            self._read_again()

    def _is_held(self) -> bool:
        if self._answers.is_full():
            self._reasons |= _FULL
        else:
            self._reasons &= ~_FULL
        return self._reasons != 0

    def _read_again(self) -> None:
        self._is_reading = True
        self._receive_pass.add(self._fd, self)
        if self._is_buffering:
            self._read_pending()

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            if self._is_beginning:
                self._is_beginning = False
                self._loop.remove_reader(self._fd)
            else:
                self._receive_pass.remove(self._fd)

    # -- end

    @property
    def last_active(self) -> float:
        """When bytes were last received, by the event loop's clock."""
        return self.received_ns / 1e9

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed."""
        return self._is_closed

    @property
    def is_idle(self) -> bool:
        """Whether no request waits for a response. A throttled connection is idle once its peer has closed its side:
        nothing is read until the throttle ends, which may take days."""
        if self._answers.order.count or self._answers.outbound or self._reasons & ~_THROTTLE:
            return False
        return self._transport.is_left() if self._reasons else not self._frames

    @property
    def is_left(self) -> bool:
        """Whether the connection is closed, or the peer has closed its side, unread (Linux)."""
        return self._is_closed or self._transport.is_left()

    def is_left_behind(self) -> bool:
        """Whether the peer has closed its side while the connection is full, and so does not read the end of the stream
        (Linux)."""
        if not self._answers.is_full() or self._is_closed:
            return False
        return self._transport.is_left()

    def finish(self, chunks: Chunks, reason: str) -> None:
        """Sends a last response, as far as the socket takes it, and closes the connection."""
        if self._is_closed:
            return
        if not self._answers.order.count and not self._is_sending:
            self._answers.add(chunks, None)
            try:
                self._answers.send()
            except OSError:
                pass  # the peer has gone
        self.close(reason)

    def close(self, reason: str) -> None:
        """See `LateReceiver`."""
        if self._is_closed:
            return
        self._is_closed = True
        self._direct_fd = -1
        self._reasons = 0
        self._unthrottle()
        self._stop_reading()
        if self._is_sending:
            self._loop.remove_writer(self._fd)
        self._transport.close()
        self._answers.clear()
        self._frames = _NO_FRAMES
        self._owner.connection_closed(self, reason)
