# cython: language_level=3, annotation_typing=False, binding=False, boundscheck=False, wraparound=False
"""Where a connection's bytes land until they are whole frames.

    frame:  size int32 | payload[size]            size does not count itself

Small frames are parsed where the kernel wrote them, in one scratch buffer that all connections of the loop
share; a frame that does not fit what has arrived gets a buffer of its own, which the kernel then fills directly.
So a frame's first part is copied, and an idle connection holds no buffer. The buffer is never more than sixteen
times what has arrived (or 4 KiB): a peer that announces 100 MB and sends nothing costs next to nothing.

Sans-IO: the caller receives into `target()` and hands the count to `received()`. Frames in the scratch buffer are
valid until the next `received()` of any connection: whoever keeps one longer copies it. Compiled, as `connection` is.
"""

from headrace.errors import InvalidRequest

SCRATCH_BYTES = 256 << 10
_SIZE_BYTES = 4
_OWN_BYTES_MIN = 4096
_OWN_GROWTH = 16


class Inbound:
    """The frames of one connection."""

    __slots__ = ("_filled", "_frame_bytes_max", "_octets", "_own", "_scratch", "_size")

    def __init__(self, scratch: memoryview, frame_bytes_max: int) -> None:
        self._scratch = self._octets = scratch  # the same twice: to cut views from, and to read bytes of
        self._frame_bytes_max = frame_bytes_max
        self._own: memoryview | None = None  # the frame (or the size before it) that is being filled
        self._filled = 0
        self._size = 0  # of the frame that `_own` is for; 0 while that is the size itself

    def target(self) -> memoryview:
        """Where the next bytes go."""
        return self._scratch if self._own is None else self._own[self._filled :]

    def received(self, count: int) -> list[memoryview]:
        """The frames that became whole with `count` more bytes at `target()`. Raises `InvalidRequest` on a bad size."""
        if self._own is not None:
            return self._received_own(self._own, count)
        frames = []
        scratch, octets, pos = self._scratch, self._octets, 0
        while count - pos >= _SIZE_BYTES:
            size = octets[pos] << 24 | octets[pos + 1] << 16 | octets[pos + 2] << 8 | octets[pos + 3]
            if not 0 < size <= self._frame_bytes_max:
                size = self._checked_size(scratch[pos : pos + _SIZE_BYTES])
            end = pos + _SIZE_BYTES + size
            if end > count:
                break
            frames.append(scratch[pos + _SIZE_BYTES : end])
            pos = end
        if pos < count:
            self._keep(scratch[pos:count])
        return frames

    def _received_own(self, own: memoryview, count: int) -> list[memoryview]:
        self._filled += count
        if self._filled < len(own):
            return []
        if self._size == len(own):
            self._own = None
            return [own]
        if self._size:
            self._allocate(own)
        else:
            self._size = self._checked_size(own)
            self._allocate(own[:0])
        return []

    def _keep(self, rest: memoryview) -> None:
        """Moves the beginning of a frame out of the scratch buffer."""
        if len(rest) < _SIZE_BYTES:
            self._size, self._filled = 0, len(rest)
            self._own = memoryview(bytearray(_SIZE_BYTES))
            self._own[: len(rest)] = rest
        else:
            self._size = self._checked_size(rest[:_SIZE_BYTES])
            self._allocate(rest[_SIZE_BYTES:])

    def _allocate(self, begun: memoryview) -> None:
        """A buffer for the frame that begins with `begun`, or for as much of it as may be believed."""
        self._filled = len(begun)
        self._own = memoryview(bytearray(min(self._size, max(_OWN_BYTES_MIN, _OWN_GROWTH * self._filled))))
        self._own[: self._filled] = begun

    def _checked_size(self, field: memoryview) -> int:
        size = int.from_bytes(field, "big", signed=True)
        if not 0 < size <= self._frame_bytes_max:
            raise InvalidRequest(
                f"a request of {size} bytes: it must have 1 to {self._frame_bytes_max} (socket.request.max.bytes)"
            )
        return size
