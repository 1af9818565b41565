# cython: language_level=3, annotation_typing=False, binding=False, boundscheck=False, wraparound=False
"""Frames out of a byte stream.

    frame:  size int32 | payload[size]            size does not count itself

Small frames are parsed in place, in a scratch buffer that several connections of one loop may share. An incomplete
frame gets a buffer of its own, and the kernel writes the rest directly into it. So only the first part of a frame is
copied, and an idle connection with a shared scratch buffer needs no memory.

A frame's own buffer is at most sixteen times as large as the received bytes (or 4 KiB), so a peer that announces 100 MB
and sends nothing costs almost no memory. A side that trusts its peer passes `SpareBuffers` instead. They allocate the
full size at once and reuse it later, since page faults and zeroing of new memory cost more than the receiving.

Sans-IO: the caller receives into `target()` and passes the count to `received()`. Frames in the scratch buffer are
valid until the next `received()` of any connection that shares it; a caller that keeps a frame longer must copy it.
The module is compiled, as `network.connection` is.
"""

from collections.abc import Callable

from headrace.errors import InvalidRequest

Announced = Callable[[int], None]

SCRATCH_BYTES = 256 << 10
"""The size of the buffer that a broker's connections share."""

REQUEST = "a request of {size} bytes: it must have 1 to {limit} (socket.request.max.bytes)"
"""What is said of a request with an impossible size."""

ANSWER = "an answer of {size} bytes is announced: it must have 1 to {limit}. Is this a Kafka broker?"
"""What is said of an answer with an impossible size."""

TLS_HELLO = "the client speaks TLS on a listener without it: it has to connect to a TLS listener, or use PLAINTEXT"
"""What is said of a request that is the beginning of a TLS handshake."""

TLS_ALERT = (
    "the broker's listener speaks TLS: set security.protocol=SSL (or SASL_SSL), or connect to its PLAINTEXT listener"
)
"""What is said of an answer that is TLS."""

_TLS_HANDSHAKE, _TLS_ALERT = b"\x16\x03", b"\x15\x03"
_SIZE_BYTES = 4
_OWN_BYTES_MIN = 4096
_OWN_GROWTH = 16
_SPARES_MAX = 3
_SPARE_WASTE = 4


class SpareBuffers:
    """Buffers for the large frames of one connection. A buffer is reused when no view of it is left."""

    __slots__ = ("_buffers",)

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []  # the newest last: one to be read, one to come, and the one being filled

    def take(self, size: int) -> memoryview:
        """An unused buffer of `size` bytes."""
        del self._buffers[:-_SPARES_MAX]
        fitting = (each for each in self._buffers if size <= len(each) <= size * _SPARE_WASTE)
        found = next(filter(_is_free, fitting), None)
        if found is None:
            found = bytearray(size)
        else:
            self._buffers = [each for each in self._buffers if each is not found]
        self._buffers.append(found)
        return memoryview(found)[:size]


def _is_free(buffer: bytearray) -> bool:
    """Whether no view of it is held: Python refuses to resize one that is."""
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)
    return True


class FrameReader:
    """The frames of one connection."""

    __slots__ = (
        "_announced", "_filled", "_frame_bytes_max", "_frame_bytes_min", "_octets", "_own", "_refusal", "_scratch",
        "_size", "_spares",
    )  # fmt: skip

    def __init__(
        self, scratch: memoryview, frame_bytes_max: int, refusal: str = REQUEST, spares: SpareBuffers | None = None
    ) -> None:
        """`refusal`: REQUEST or ANSWER. `spares`: the source of buffers for frames that are larger than `scratch`."""
        self._scratch = self._octets = scratch  # the same twice: to cut views from, and to read bytes of
        self._frame_bytes_max, self._frame_bytes_min = frame_bytes_max, 1
        self._refusal, self._spares = refusal, spares
        self._own: memoryview | None = None  # the frame (or the size before it) that is being filled
        self._filled = 0
        self._size = 0  # of the frame that `_own` is for; 0 while that is the size itself
        self._announced: Announced | None = None

    def limit(self, frame_bytes_max: int, frame_bytes_min: int = 1, announced: Announced | None = None) -> None:
        """Sets the size of the largest frame, for those whose size is read from now on. `frame_bytes_min`: 0 where an
        empty one is a message, or 1. `announced`: called with the size of each frame of which a part is kept."""
        self._frame_bytes_max, self._frame_bytes_min, self._announced = frame_bytes_max, frame_bytes_min, announced

    @property
    def frame_bytes_max(self) -> int:
        """The size of the largest frame."""
        return self._frame_bytes_max

    def check_size(self, field: memoryview) -> None:
        """Raises `InvalidRequest` if a frame may not have the size in `field`; for a caller that cuts frames itself."""
        self._checked_size(field)

    def target(self) -> memoryview:
        """The buffer for the next bytes."""
        return self._scratch if self._own is None else self._own[self._filled :]

    def end_of_frame(self, pos: int, count: int) -> int:
        """The end of the frame that begins at `pos` (with its size) of the scratch buffer, into which `count` bytes
        were received; -1 if it is not whole there, or has a bad size."""
        if self._own is not None or count - pos < _SIZE_BYTES:
            return -1
        size = self._octets[pos] << 24 | self._octets[pos + 1] << 16 | self._octets[pos + 2] << 8
        size |= self._octets[pos + 3]
        if not 0 < size <= self._frame_bytes_max or pos + _SIZE_BYTES + size > count:
            return -1
        return pos + _SIZE_BYTES + size

    def received(self, count: int, pos: int = 0) -> list[memoryview]:
        """The frames that became whole with `count` more bytes at `target()`. Raises `InvalidRequest` on a bad size:
        the stream cannot be followed after that. `pos`: the end of the last frame that `end_of_frame` found."""
        if self._own is not None:
            return self._received_own(self._own, count)
        frames = []
        scratch, octets = self._scratch, self._octets
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
            if not self._size:
                self._own = None
                return [own[:0]]
            self._allocate(own[:0])
        return []

    def _keep(self, rest: memoryview) -> None:
        """Copies the beginning of a frame out of the scratch buffer."""
        if len(rest) < _SIZE_BYTES:
            self._size, self._filled = 0, len(rest)
            self._own = memoryview(bytearray(_SIZE_BYTES))
            self._own[: len(rest)] = rest
        else:
            self._size = self._checked_size(rest[:_SIZE_BYTES])
            self._allocate(rest[_SIZE_BYTES:])

    def _allocate(self, begun: memoryview) -> None:
        """A buffer for the frame that begins with `begun`, or for as much of it as the limit allows."""
        self._filled = len(begun)
        if self._spares is not None and self._size > len(self._scratch):
            self._own = self._spares.take(self._size)
        else:
            self._own = memoryview(bytearray(min(self._size, max(_OWN_BYTES_MIN, _OWN_GROWTH * self._filled))))
        self._own[: self._filled] = begun

    def _checked_size(self, field: memoryview) -> int:
        size = int.from_bytes(field, "big", signed=True)
        if field[:2] == _TLS_HANDSHAKE and self._refusal is REQUEST:  # as a size: 369 MB
            raise InvalidRequest(TLS_HELLO)
        if field[:2] == _TLS_ALERT and self._refusal is ANSWER:  # 352 MB
            raise InvalidRequest(TLS_ALERT)
        if not self._frame_bytes_min <= size <= self._frame_bytes_max:
            raise InvalidRequest(self._refusal.format(size=size, limit=self._frame_bytes_max))
        if self._announced is not None:
            self._announced(size)
        return size
