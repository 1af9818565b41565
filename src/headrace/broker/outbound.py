# cython: language_level=3, annotation_typing=False, binding=False
"""What a connection has to send: bytes and file ranges, in order.

Runs of bytes leave in one `send`; a range of a log file leaves by `os.sendfile`, so fetched records never enter
this process. A file range is sent in chunks: before each, two bytes are asked for with `preadv(RWF_NOWAIT)`, and
when the kernel would have to go to the disk for them the chunk is first read on an executor, so that a cold
reader does not stall the loop; between the chunks of a long range other connections get their turn.
Compiled, as `connection` is.
"""

import os
import socket
from collections import deque
from enum import Enum, auto
from typing import Protocol

from headrace.limits import COLD_READ_CHUNK_BYTES

SEND_BYTES_PER_TURN = 4 << 20
_JOIN_BYTES_MAX = 256 << 10
_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_MSG_MORE = getattr(socket, "MSG_MORE", 0)


class OpenFile(Protocol):
    """A file that stays readable while somebody holds it."""

    @property
    def fd(self) -> int:
        """Its descriptor."""

    def read(self, size: int, position: int) -> bytes:
        """Bytes of it. A disk that fails to give them is told of here. Raises OSError."""


class FileRange(Protocol):
    """Bytes of a file, in place of themselves (log.FileRange)."""

    @property
    def file(self) -> OpenFile:
        """The file."""

    @property
    def position(self) -> int:
        """Of the first byte."""

    @property
    def size(self) -> int:
        """In bytes."""


class Progress(Enum):
    """Why `send` came back."""

    DONE = auto()
    SOCKET_FULL = auto()  # the peer must read first
    YIELD = auto()  # enough for this turn of the loop
    COLD = auto()  # the next chunk is on the disk: `warm` it on an executor, then send again


class Outbound:
    """The unsent part of one connection's answers."""

    __slots__ = ("_offset", "_queue", "_warm_until", "queued_bytes")

    def __init__(self) -> None:
        self._queue: deque[bytes | FileRange] = deque()
        self._offset = 0  # sent already of the first chunk
        self._warm_until = 0  # of the first chunk, when it is a file range
        self.queued_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._queue)

    def add(self, chunk: bytes | FileRange) -> None:
        """Queues one chunk; an empty one vanishes."""
        size = len(chunk) if isinstance(chunk, bytes) else chunk.size
        if size:
            self._queue.append(chunk)
            self.queued_bytes += size

    def send(self, sock: socket.socket) -> Progress:
        """Sends what the socket takes now. Raises `OSError` when the connection is gone."""
        budget = SEND_BYTES_PER_TURN
        queue = self._queue
        while queue:
            first = queue[0]
            try:
                if isinstance(first, bytes):
                    sent = sock.send(self._joined_bytes(first), _MSG_MORE if self._file_follows() else 0)
                    self._advance(sent)
                else:
                    size = min(first.size - self._offset, COLD_READ_CHUNK_BYTES)
                    if self._is_cold(first, size):
                        return Progress.COLD
                    sent = os.sendfile(sock.fileno(), first.file.fd, first.position + self._offset, size)
                    if sent == 0:
                        raise ConnectionAbortedError("a log file is shorter than the range that was to be sent of it")
                    self._advance(sent)
            except (BlockingIOError, InterruptedError):
                return Progress.SOCKET_FULL
            budget -= sent
            if budget <= 0 and queue:
                return Progress.YIELD
        return Progress.DONE

    def warm(self) -> None:
        """Reads the next chunk into the page cache. Blocks: for an executor, while the loop does not send. Raises
        `OSError`: what the disk cannot give is found out here, before it would be sent."""
        first = self._queue[0]
        if isinstance(first, bytes):
            return
        size = min(first.size - self._offset, COLD_READ_CHUNK_BYTES)
        first.file.read(size, first.position + self._offset)
        self._warm_until = self._offset + size

    def clear(self) -> None:
        """Drops everything, and with it the hold on files."""
        self._queue.clear()
        self.queued_bytes = self._offset = self._warm_until = 0

    def _joined_bytes(self, first: bytes) -> bytes | memoryview:
        """The first run of byte chunks as one, so that many small answers are one packet."""
        if self._offset:
            return memoryview(first)[self._offset :]
        queue = self._queue
        if len(queue) == 1 or not isinstance(queue[1], bytes):
            return first
        parts, size = [], 0
        while queue and size < _JOIN_BYTES_MAX:
            chunk = queue[0]
            if not isinstance(chunk, bytes):
                break
            parts.append(chunk)
            size += len(chunk)
            queue.popleft()
        joined = b"".join(parts)
        queue.appendleft(joined)
        return joined

    def _file_follows(self) -> bool:
        return len(self._queue) > 1 and not isinstance(self._queue[1], bytes)

    def _advance(self, sent: int) -> None:
        first = self._queue[0]
        size = len(first) if isinstance(first, bytes) else first.size
        self._offset += sent
        self.queued_bytes -= sent
        if self._offset == size:
            self._queue.popleft()
            self._offset = self._warm_until = 0

    def _is_cold(self, rng: FileRange, size: int) -> bool:
        """Whether the first or the last byte of the next chunk is not in the page cache."""
        if not _RWF_NOWAIT or self._offset < self._warm_until:
            return False
        start = rng.position + self._offset
        return not (_is_cached(rng.file.fd, start) and _is_cached(rng.file.fd, start + size - 1))


def _is_cached(fd: int, position: int) -> bool:
    try:
        os.preadv(fd, [bytearray(1)], position, _RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:  # a file system without RWF_NOWAIT (tmpfs): take it for cached
        return True
    return True
