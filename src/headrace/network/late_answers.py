# cython: language_level=3, annotation_typing=False, binding=False
"""The answers of one turn to requests of which the writes are put off, of many connections.

    each connection ── begin, note ──▶ LateAnswers ── flush: all is written, then each connection's answers are sent
                                            │
                          LateWriter: has the answers in its buffer, and writes what was put off

Answers that tell of no write, as those to heartbeats, are sent with the others: whom they wake would take the processor
in the middle of the turn. Whatever is not put off, and may see what is not written, comes after a `flush`. The
connection (`LateReceiver`) and its shortcut (`LateWriter`) derive from what is here. Compiled, since most produces pass
it; it also runs uncompiled.
"""

import logging
from contextlib import suppress

from headrace.limits import REQUESTS_PER_TURN_MAX, SHORT_ANSWER_BYTES_MAX
from headrace.network.receive_pass import Receiver, Turn

log = logging.getLogger(__name__)

OUT_BYTES = REQUESTS_PER_TURN_MAX * SHORT_ANSWER_BYTES_MAX
"""How far a buffer is filled with answers."""

LONG_ANSWER_BYTES_MAX = 72 << 10
"""Of the last answer in a buffer, which has room behind the others."""

_FILLED_MAX = OUT_BYTES // 2


class LateReceiver(Receiver):
    """A connection, to which answers are sent at the end of a turn."""

    __slots__ = ("_is_closed", "peer")

    _is_closed: bool
    peer: str

    def send_late(self, out: memoryview, start: int, end: int) -> None:
        """Sends the answers of `out[start:end]`, behind what the socket has not taken of those before."""
        raise NotImplementedError

    def send_written(self, answers: bytes) -> None:
        """The same for answers that were written elsewhere."""
        raise NotImplementedError

    def close(self, reason: str) -> None:
        """Closes the connection and drops unsent responses."""
        raise NotImplementedError


class LateWriter:
    """Writes answers into a buffer, and may put off to write what they tell of."""

    __slots__ = ("late", "mask", "out")

    def __init__(self) -> None:
        self.out = memoryview(bytearray(OUT_BYTES + LONG_ANSWER_BYTES_MAX))
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
        """Wakes who waits for what `write_late` has written. It may write to `out`."""


class LateAnswers(Turn):
    """What one turn has to answer when all of it is written."""

    __slots__ = ("_connections", "_ends", "_masks", "_starts", "_writer", "filled", "has_declined")

    def __init__(self) -> None:
        super().__init__()
        self._writer: LateWriter | None = None  # that puts off, and whose buffer has the answers
        self._connections: list[LateReceiver] = []
        self._starts: list[int] = []  # of each one's answers in the buffer
        self._ends: list[int] = []
        self._masks: list[int] = []
        self.filled = 0
        """Of the buffer."""
        self.has_declined = False
        """Whether the last request was none for the writer."""

    def begin(self, writer: LateWriter, size: int) -> bool:
        """Whether a request of this size can be put off, by this writer, which is asked for it next then."""
        if self._writer is not None and self._writer is not writer:
            return False
        if self.filled > _FILLED_MAX or not writer.has_room(size):
            return False
        self._writer = writer
        return True

    def note(self, connection: LateReceiver, writer: LateWriter, start: int, end: int) -> None:
        """Notes an answer that was written to this part of the writer's buffer."""
        self._writer = writer  # again, if the request was none to put off
        count = len(self._connections)
        is_same = count > 0 and self._connections[count - 1] is connection
        if is_same and bool(self._masks[count - 1]) == bool(writer.mask):  # what may be refused is sent apart
            self._ends[count - 1] = end
            self._masks[count - 1] |= writer.mask
        else:
            self._connections.append(connection)
            self._starts.append(start)
            self._ends.append(end)
            self._masks.append(writer.mask)
        self.filled = end

    def flush(self) -> None:
        """See `Turn`."""
        writer = self._writer
        if writer is None:
            return
        self._writer, self.filled = None, 0
        connections, self._connections = self._connections, []
        starts, ends, masks = self._starts, self._ends, self._masks
        self._starts, self._ends, self._masks = [], [], []
        failed = writer.write_late()
        for number in range(len(connections)):
            connection = connections[number]
            if connection._is_closed:
                continue
            try:
                if failed & masks[number]:
                    connection.send_written(writer.refused_late(starts[number], ends[number]))
                else:
                    connection.send_late(writer.out, starts[number], ends[number])
            except Exception:  # a bug of the broker: the others get their answers
                log.exception("an answer could not be sent", extra={"peer": connection.peer})
                with suppress(Exception):
                    connection.close("an internal error")
        writer.wake_late()
