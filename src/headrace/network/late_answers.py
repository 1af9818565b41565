# cython: language_level=3, annotation_typing=False, binding=False, boundscheck=False, wraparound=False
# cython: initializedcheck=False
"""The answers of one turn to requests whose writes are put off, of many connections.

    each connection ── begin, note ──▶ LateAnswers ── flush: all is written, then each connection's answers are sent
                                            │
                          LateWriter: has the answers in its buffer, and writes what was put off

Answers without a write, such as those to heartbeats, are sent with the others: the clients that they wake would take
the processor in the middle of the turn. A request that is not put off, and may see what is not written, comes after a
`flush`. The connection (`LateReceiver`) and its shortcut (`LateWriter`) derive from what is here. Compiled, since most
produces pass it; it also runs uncompiled.
"""

import logging
from array import array
from contextlib import suppress

from headrace.network.answer_buffer import OUT_BYTES, AnswerBuffer
from headrace.network.receive_pass import Receiver, Turn

log = logging.getLogger(__name__)

_FILLED_MAX = OUT_BYTES // 2
_NOTES_MAX = 1_024  # of one turn
_START, _END, _MASK, _NOTE_FIELDS = 0, 1, 2, 3


class LateReceiver(Receiver):
    """A connection, to which answers are sent at the end of a turn."""

    __slots__ = ("_is_closed", "peer")

    _is_closed: bool
    peer: str

    def send_late(self, buffer: AnswerBuffer, start: int, end: int) -> None:
        """Sends the answers in this part of the buffer, behind what the socket has not taken of those before."""
        raise NotImplementedError

    def send_written(self, answers: bytes) -> None:
        """The same for answers that were written elsewhere."""
        raise NotImplementedError

    def close(self, reason: str) -> None:
        """Closes the connection and drops unsent responses."""
        raise NotImplementedError


class LateWriter(AnswerBuffer):
    """Writes answers into a buffer, and may put off to write what they tell of."""

    __slots__ = ("late", "mask")

    def __init__(self) -> None:
        super().__init__()
        self.late: LateAnswers | None = None
        """Set while the answers are sent at the end of the turn: what they tell of may be written by `write_late`."""
        self.mask = 0
        """A bit for each of the writes that were put off by the last answer."""

    def has_room(self, size: int) -> bool:
        """Whether writes of a request of this size can be put off."""
        return False

    def write_late(self) -> int:
        """Writes what was put off. Returns the bits of the writes that failed, and are undone."""
        return 0

    def refused_late(self, start: int, end: int) -> bytes:
        """The answers of `out[start:end]`, with errors where they tell of what `write_late` could not write."""
        raise NotImplementedError

    def wake_late(self) -> None:
        """Wakes the requests that wait for what `write_late` has written. It may write to `out`."""


class LateAnswers(Turn):
    """What one turn has to answer when all of it is written."""

    __slots__ = ("_connections", "_last", "_notes", "_writer", "filled", "has_declined")

    def __init__(self) -> None:
        super().__init__()
        self._writer: LateWriter | None = None  # that puts off, and whose buffer has the answers
        self._connections: list[LateReceiver] = []
        self._last: LateReceiver | None = None  # of these
        self._notes = memoryview(array("q", bytes(8 * _NOTES_MAX * _NOTE_FIELDS)))
        """For each one the start and the end of its answers in the buffer, and their writes."""
        self.filled = 0
        """How much of the buffer has answers."""
        self.has_declined = False
        """Whether the last request was none for the writer."""

    def begin(self, writer: LateWriter, size: int) -> bool:
        """Whether a request of this size can be put off, by this writer, which is asked for it next then."""
        if self._writer is not None and self._writer is not writer:
            return False
        if self.filled > _FILLED_MAX or len(self._connections) == _NOTES_MAX or not writer.has_room(size):
            return False
        self._writer = writer
        return True

    def note(self, connection: LateReceiver, writer: LateWriter, start: int, end: int) -> None:
        """Notes an answer that was written to this part of the writer's buffer."""
        self._writer = writer  # again, if the request was none to put off
        notes, at = self._notes, (len(self._connections) - 1) * _NOTE_FIELDS
        if self._last is connection and (notes[at + _MASK] != 0) == (writer.mask != 0):
            notes[at + _END] = end
            notes[at + _MASK] |= writer.mask
        else:  # another one's, or what may be refused, which is sent apart
            at += _NOTE_FIELDS
            self._last = connection
            self._connections.append(connection)
            notes[at + _START], notes[at + _END], notes[at + _MASK] = start, end, writer.mask
        self.filled = end

    def flush(self) -> None:
        """See `Turn`."""
        writer = self._writer
        if writer is None:
            return
        self._writer = self._last = None
        self.filled = 0
        connections, notes, at = self._connections, self._notes, 0
        if connections:
            self._connections = []
        failed = writer.write_late()
        for connection in connections:
            start, end, mask = notes[at + _START], notes[at + _END], notes[at + _MASK]
            at += _NOTE_FIELDS
            if connection._is_closed:
                continue
            try:
                if failed & mask:
                    connection.send_written(writer.refused_late(start, end))
                else:
                    connection.send_late(writer, start, end)
            except Exception:  # a bug of the broker: the others get their answers
                log.exception("an answer could not be sent", extra={"peer": connection.peer})
                with suppress(Exception):
                    connection.close("an internal error")
        writer.wake_late()
