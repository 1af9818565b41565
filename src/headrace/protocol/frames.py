"""Frames out of a byte stream, sans IO: feed what the socket gave, then take whole frames.

    frame:  size int32 | size bytes          a request or a response: header, then body

A frame that came in one piece is a view of that piece (writable if the piece is), one that came in several is a view
of a bytearray of its own; both may be kept. Memory grows with what was sent, never with what a size promises.
A size that is negative or over the limit is an InvalidRequest: the stream is lost, the connection must be closed.
"""

from struct import Struct

from headrace.errors import InvalidRequest
from headrace.protocol.wire import Buffer

_SIZE = Struct(">i")
_HEAD = _SIZE.size


class FrameReader:
    """Cuts one connection's bytes into frames; `max_bytes` is the largest size that is taken."""

    __slots__ = ("_max_bytes", "_partial", "_pos", "_view")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._view = memoryview(b"")  # the piece fed last ...
        self._pos = 0  # ... and how far it is taken
        self._partial = bytearray()  # a frame, with its size, whose end has not come yet

    def feed(self, data: Buffer) -> None:
        """More bytes; they must not change afterwards."""
        view = memoryview(data)
        if self._pos < len(self._view):  # frames of the last piece were left untaken
            view = memoryview(bytearray(self._view[self._pos :]) + view)
        self._view, self._pos = view, 0

    def next_frame(self) -> memoryview | None:
        """The next whole frame, without its size; None until more is fed."""
        if self._partial:
            return self._resume()
        view, start = self._view, self._pos
        if len(view) - start >= _HEAD:
            end = start + _HEAD + self._size(view, start)
            if end <= len(view):
                self._pos = end
                return view[start + _HEAD : end]
        self._take(len(view) - start)
        return None

    @property
    def buffered(self) -> int:
        """How many bytes wait for the rest of their frame, or to be taken."""
        return len(self._partial) + len(self._view) - self._pos

    def _resume(self) -> memoryview | None:
        """Goes on with a frame whose start came earlier."""
        self._take(max(0, _HEAD - len(self._partial)))
        if len(self._partial) < _HEAD:
            return None
        size = _HEAD + self._size(self._partial, 0)
        self._take(size - len(self._partial))
        if len(self._partial) < size:
            return None
        frame, self._partial = self._partial, bytearray()
        return memoryview(frame)[_HEAD:]

    def _take(self, count: int) -> None:
        """Moves up to `count` bytes from the piece to the partial frame; a piece used up is let go."""
        end = min(self._pos + count, len(self._view))
        self._partial += self._view[self._pos : end]
        self._pos = end
        if end == len(self._view):
            self._view, self._pos = memoryview(b""), 0

    def _size(self, buf: Buffer, pos: int) -> int:
        """A frame's size, checked."""
        size: int = _SIZE.unpack_from(buf, pos)[0]
        if not 0 <= size <= self._max_bytes:
            raise InvalidRequest(f"frame of {size} bytes; allowed are 0 to {self._max_bytes}")
        return size


def frame_head(size: int) -> bytes:
    """The four bytes before a frame of `size` bytes."""
    return _SIZE.pack(size)
