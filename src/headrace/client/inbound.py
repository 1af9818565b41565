"""Response frames out of received bytes, without a copy of the large ones. Does no IO.

    frame:  size int32 | size bytes

The owner of the socket asks for `writable()`, receives into it, says `wrote(count)` and takes what `next_frame()`
gives. Small frames share one scratch buffer and are copied out of it; a frame that does not fit the scratch gets a
buffer of its own, into which the rest is received straight: a fetch of 50 MB is written once by the kernel and
read in place by the decoder. Such a buffer is used again once nobody holds a view of it, since fresh memory costs
more (page faults and zeroing) than what is received into it. (`headrace.protocol.frames` serves the broker's side,
where frames are small.)
"""

from struct import Struct

from headrace.client.settings import RESPONSE_BYTES_MAX
from headrace.errors import InvalidRequest

SCRATCH_BYTES = 64 << 10
SPARE_BUFFERS = 3
"""How many buffers of large frames are kept: one being filled, one being read, one to come."""

_SPARE_WASTE = 4  # a buffer over so many times the frame is not used for it
_SIZE = Struct(">i")


class FrameBuffer:
    """Collects one connection's bytes and cuts them into frames."""

    __slots__ = ("_end", "_filled", "_frame", "_max_bytes", "_scratch", "_size", "_spares", "_start")

    def __init__(self, max_bytes: int = RESPONSE_BYTES_MAX) -> None:
        self._max_bytes = max_bytes
        self._scratch = bytearray(SCRATCH_BYTES)
        self._start = self._end = 0
        self._frame: bytearray | None = None
        self._size = self._filled = 0  # of the frame in `_frame`
        self._spares: list[bytearray] = []  # the newest last; some may still be looked at

    def writable(self) -> memoryview:
        """Where the next received bytes belong; never empty."""
        if self._frame is not None:
            return memoryview(self._frame)[self._filled : self._size]
        if self._start:
            self._compact()
        return memoryview(self._scratch)[self._end :]

    def wrote(self, count: int) -> None:
        """`count` bytes were received into the last `writable()`."""
        if self._frame is not None:
            self._filled += count
        else:
            self._end += count

    def next_frame(self) -> memoryview | None:
        """The next complete frame without its size, or None when more bytes are needed.

        InvalidRequest when a size is negative or above the limit: the stream cannot be followed after that.
        """
        if self._frame is not None:
            return self._take_large()
        held = self._end - self._start
        if held < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(self._scratch, self._start)
        if not 0 <= size <= self._max_bytes:
            raise InvalidRequest(f"an answer of {size} bytes announced, limit {self._max_bytes}: not a Kafka broker?")
        body = self._start + _SIZE.size
        if held - _SIZE.size >= size:
            self._start = body + size
            return memoryview(bytes(self._scratch[body : body + size]))
        if _SIZE.size + size > SCRATCH_BYTES:
            self._begin_large(size, body)
        return None

    def _take_large(self) -> memoryview | None:
        frame = self._frame
        if frame is None or self._filled < self._size:
            return None
        self._frame = None
        self._spares.append(frame)
        return memoryview(frame)[: self._size]

    def _begin_large(self, size: int, body: int) -> None:
        frame = self._buffer(size)
        self._size, self._filled = size, self._end - body
        frame[: self._filled] = memoryview(self._scratch)[body : self._end]
        self._frame = frame
        self._start = self._end = 0

    def _buffer(self, size: int) -> bytearray:
        """A buffer of `size` bytes or more that nobody looks at."""
        del self._spares[:-SPARE_BUFFERS]
        for index, spare in enumerate(self._spares):
            if size <= len(spare) <= size * _SPARE_WASTE and _is_free(spare):
                return self._spares.pop(index)
        return bytearray(size)

    def _compact(self) -> None:
        held = self._end - self._start
        self._scratch[:held] = self._scratch[self._start : self._end]
        self._start, self._end = 0, held


def _is_free(buffer: bytearray) -> bool:
    """Whether no view of it is held: Python refuses to resize one that is."""
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)
    return True
