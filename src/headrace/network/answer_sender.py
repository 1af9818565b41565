# cython: language_level=3, annotation_typing=False, binding=False, boundscheck=False, wraparound=False
# cython: initializedcheck=False
"""Sends the answers of one connection, in the order of its requests.

    place ──▶ AnswerOrder: waits for an earlier answer ── put_out ──▶ Outbound: waits for the socket ── send ──▶ socket
    send_written, send_frame, send_with_files: past both, where nothing waits; they queue what the socket does not take

It knows no event loop: the connection calls `send` again when the socket is writable. It counts what waits (`is_full`).
Compiled, since each answer passes it; it also runs uncompiled.
"""

from time import monotonic_ns
from typing import Any

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

from headrace.limits import (
    REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX,
    RESPONSE_BYTES_QUEUED_PER_CONNECTION_MAX,
    SHORT_ANSWER_BYTES_MAX,
)
from headrace.network.answer_buffer import AnswerBuffer
from headrace.network.answer_order import AnswerOrder, Slot
from headrace.network.outbound import Chunks, FilePart, Outbound, Progress
from headrace.network.request_times import Timed
from headrace.network.response_memory import UNCOUNTED_BYTES, ResponseMemory
from headrace.network.transport import PlainTransport, Transport

if cython.compiled:
    from cython.cimports.headrace.network.outbound import send_at_once
    from cython.cimports.headrace.network.socket_calls import MSG_NOSIGNAL, send
else:
    from headrace.octets import bytes_at

_DONE = Progress.DONE
_SHORT_MAX, _UNCOUNTED_BYTES, _TURN_BYTES = SHORT_ANSWER_BYTES_MAX, UNCOUNTED_BYTES, PlainTransport.turn_bytes
_SLOTS_MAX, _QUEUED_MAX = REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX, RESPONSE_BYTES_QUEUED_PER_CONNECTION_MAX


class AnswerSender:
    """The answers of one connection that are not sent."""

    __slots__ = ("_memory", "_transport", "_unsent", "counted_bytes", "direct_fd", "is_timed", "order", "outbound")

    def __init__(self, transport: Transport, memory: ResponseMemory, is_timed: bool) -> None:
        """`is_timed`: whether the times of requests are measured, which metrics need."""
        self._transport, self.direct_fd = transport, transport.direct_fd
        self._memory = memory
        self.counted_bytes = 0
        """This connection's part of `memory`."""
        self.order, self.outbound = AnswerOrder(), Outbound()
        self.is_timed = is_timed
        self._unsent: list[Timed] = []  # requests whose answers are in `outbound`, or about to be sent past it

    # -- taking answers

    def add(self, chunks: Chunks, request: Timed | None) -> None:
        """Queues an answer behind all others."""
        if self.order.count:
            self.fill(self.order.place(), chunks, request)
        elif chunks:
            self._put(chunks, request)

    def fill(self, slot: Slot, chunks: Chunks, request: Timed | None) -> None:
        """Gives a request that had to wait its answer."""
        self.order.fill(slot, chunks, request)
        if slot.memory > _UNCOUNTED_BYTES:
            self._count()

    def note(self, request: Timed) -> None:
        """Notes a request whose answer is the next to be sent: its times end when that is with the kernel."""
        self._unsent.append(request)

    def put_out(self) -> None:
        """Queues the answers that wait for none before them, or sends them, if they are short ones and nothing else."""
        frames: list[bytes] = []
        slot = self.order.take()
        while slot is not None:
            chunks = slot.chunks
            if chunks:
                first = chunks[0]
                is_short = len(chunks) == 1 and isinstance(first, bytes) and len(first) <= _SHORT_MAX
                if is_short and not self.is_timed:
                    frames.append(first)  # type: ignore[arg-type]
                else:
                    for frame in frames:
                        self.outbound.add(frame)
                    frames = []
                    self._put(chunks, slot.request)
            slot = self.order.take()
        if frames:
            self.send_frame(frames[0] if len(frames) == 1 else b"".join(frames))

    def _put(self, chunks: Chunks, request: Timed | None) -> None:
        for chunk in chunks:
            self.outbound.add(chunk)
        if self.is_timed and request is not None:
            self._unsent.append(request)

    # -- sending

    def send_written(self, buffer: AnswerBuffer, start: int, end: int) -> bool:
        """Sends answers that were written to a buffer; queues what the socket does not take. Whether it took all."""
        sent, size = 0, end - start
        if cython.compiled and self.direct_fd >= 0 and not self.outbound.queued_bytes:
            sent = send(self.direct_fd, cython.address(buffer.out[start]), size, MSG_NOSIGNAL)
            if sent == size:
                if self._unsent:
                    self._note_sent()
                return True
            sent = max(sent, 0)  # sent again, a failure raises
        self.outbound.add(bytes_at(buffer.out, start + sent, end))
        return False

    def send_frame(self, frame: bytes) -> bool:
        """The same for answers in one piece, whose times are not measured."""
        sent = 0
        if cython.compiled and self.direct_fd >= 0 and not self.outbound.queued_bytes:
            octets: Any = frame
            sent = send(self.direct_fd, cython.cast(cython.p_char, octets), len(octets), MSG_NOSIGNAL)
            if sent == len(octets):
                return True
            sent = max(sent, 0)  # sent again, a failure raises
        self.outbound.add(frame)
        if sent:
            self.outbound.skip(sent)
        return False

    def send_with_files(self, buffer: AnswerBuffer, size: int) -> bool:
        """The same for the first `size` bytes of a buffer, with its file ranges. Nothing may be queued."""
        sent = file_bytes = 0
        if cython.compiled and self.direct_fd >= 0:
            for each in buffer.files:
                if not isinstance(each, FilePart):  # bytes: the queue joins them with what is around them
                    file_bytes = _TURN_BYTES + 1
                    break
                part = each
                file_bytes += part.size
            if file_bytes <= _TURN_BYTES:  # more is sent in turns with other connections
                ranges: Any = buffer.files
                sent = send_at_once(self.direct_fd, buffer.out, size, buffer.cuts, ranges)
                if sent == size + file_bytes:
                    buffer.files.clear()
                    if self._unsent:
                        self._note_sent()
                    return True
        for chunk in buffer.take(size):
            self.outbound.add(chunk)
        self.outbound.skip(sent)
        return False

    def send(self) -> Progress:
        """Sends what is queued, as far as the socket takes it. Raises `OSError` when the connection is broken."""
        progress = self.outbound.send(self._transport)
        if self._unsent and (progress is _DONE or len(self._unsent) > _SLOTS_MAX):
            self._note_sent()
        return progress

    def _note_sent(self) -> None:
        """Ends the times of queued requests: their answers are sent, or too many wait to be tracked apart."""
        now_ns = monotonic_ns()
        for request in self._unsent:
            request.times.add(request, now_ns)
        self._unsent.clear()

    # -- how much waits

    def is_full(self) -> bool:
        """Whether so much waits that no further request may be dispatched."""
        queued = self.outbound.queued_bytes + self.order.waiting_bytes
        if queued > _UNCOUNTED_BYTES or self.counted_bytes:
            self._count()
            if self.counted_bytes and self._memory.is_exhausted:
                return True
        return queued > _QUEUED_MAX or self.order.count > _SLOTS_MAX

    def _count(self) -> None:
        """Updates this connection's part of the broker's total."""
        queued = self.outbound.memory_bytes + self.order.waiting_memory
        self.counted_bytes = self._memory.recount(self.counted_bytes, queued)

    def clear(self) -> None:
        """Drops what is not sent, and abandons the work on answers: the connection closes."""
        self.direct_fd = -1
        self.outbound.clear()
        self.counted_bytes = self._memory.recount(self.counted_bytes, 0)
        self.order.abandon()
        self._unsent.clear()
