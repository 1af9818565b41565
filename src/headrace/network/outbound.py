# cython: language_level=3, annotation_typing=False, binding=False
"""The send queue of a connection: bytes and file ranges, in order.

Runs of bytes are sent in one `send`. A range of a log file is sent by `sendfile`, so fetched records never enter this
process. Where the transport has to change bytes on their way (TLS), the range is read and sent as bytes.

A file range is sent in chunks. Before each chunk, `preadv(RWF_NOWAIT)` probes its first and last byte. If the kernel
would have to read them from the disk, an executor reads the chunk first, so that a cold reader does not stall the event
loop. Apache Kafka lets such a read block a network thread; here it would block every connection.
Between the chunks of a long range other connections get their turn.
Compiled, as `connection` is.
"""

import os
from collections import deque
from enum import Enum, auto
from typing import Protocol

try:
    import cython
except ImportError:
    from headrace.records import uncompiled as cython

from headrace.limits import COLD_READ_CHUNK_BYTES
from headrace.network.transport import MORE, Transport

if cython.compiled:
    from cython.cimports.cpython.exc import PyErr_SetFromErrno
    from cython.cimports.headrace.network.socket_calls import MSG_NOSIGNAL, send

_JOIN_BYTES_MAX = 256 << 10
_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_READ_BYTES = 128 << 10  # read from a file for each send of TLS, which makes eight records of it in one call


class OpenFile(Protocol):
    """A file that stays readable while a reference to it exists."""

    @property
    def fd(self) -> int:
        """Its descriptor."""

    def read(self, size: int, position: int) -> bytes:
        """Reads bytes. Raises OSError; the failure is reported to the file's data directory, too."""


class FileRange(Protocol):
    """A reference to bytes of a file (`log.segment_list.FileRange`)."""

    @property
    def file(self) -> OpenFile:
        """The file."""

    @property
    def position(self) -> int:
        """The position of the first byte."""

    @property
    def size(self) -> int:
        """The size in bytes."""


class Progress(Enum):
    """Why `send` returned."""

    DONE = auto()
    SOCKET_FULL = auto()  # the peer must read first
    YIELD = auto()  # enough for this turn of the loop
    COLD = auto()  # the next chunk is on the disk: `warm` it on an executor, then send again


class Outbound:
    """The unsent part of one connection's responses."""

    __slots__ = ("_offset", "_queue", "_warm_until", "memory_bytes", "queued_bytes")

    def __init__(self) -> None:
        self._queue: deque[bytes | FileRange] = deque()
        self._offset = 0  # bytes of the first chunk that are sent
        self._warm_until = 0  # of the first chunk, when it is a file range
        self.queued_bytes = 0
        self.memory_bytes = 0  # of those, bytes that are not in files

    def __bool__(self) -> bool:
        return bool(self._queue)

    def add(self, chunk: bytes | FileRange) -> None:
        """Queues one chunk; ignores an empty one."""
        if isinstance(chunk, bytes):
            size = len(chunk)
            self.memory_bytes += size
        else:
            size = chunk.size
        if size:
            self._queue.append(chunk)
            self.queued_bytes += size

    def send(self, transport: Transport) -> Progress:
        """Sends as much as the transport accepts now. Raises `OSError` when the connection is broken."""
        budget = transport.turn_bytes
        queue = self._queue
        while queue:
            first = queue[0]
            try:
                if isinstance(first, bytes):
                    data = self._joined_bytes(first)
                    sent = self._send_bytes(transport, data, MORE if self._file_follows() else 0)
                    self._advance(sent)
                else:
                    size = min(first.size - self._offset, COLD_READ_CHUNK_BYTES)
                    if self._is_cold(first, size):
                        return Progress.COLD
                    if transport.can_send_file:
                        sent = transport.send_file(first.file.fd, first.position + self._offset, size)
                    else:
                        data = os.pread(first.file.fd, min(size, _READ_BYTES), first.position + self._offset)
                        sent = transport.send(data) if data else 0
                    if sent == 0:
                        raise ConnectionAbortedError("a log file ends before the end of the range to send")
                    self._advance(sent)
            except (BlockingIOError, InterruptedError):
                return Progress.SOCKET_FULL
            budget -= sent
            if budget <= 0 and queue:
                return Progress.YIELD
        return Progress.DONE

    def _send_bytes(self, transport: Transport, data: bytes | memoryview, flags: int) -> int:
        fd = transport.direct_fd if cython.compiled else -1
        if fd < 0 or not isinstance(data, bytes):
            return transport.send(data, flags)
        sent: int = send(fd, cython.cast(cython.p_char, data), len(data), flags | MSG_NOSIGNAL)
        if sent < 0:
            PyErr_SetFromErrno(OSError)
        return sent

    def warm(self) -> None:
        """Reads the next chunk into the page cache. Blocks, so it runs on an executor while the event loop does not
        send. Raises `OSError` for a read that the disk fails: it must not fail inside `sendfile`."""
        first = self._queue[0]
        if isinstance(first, bytes):
            return
        size = min(first.size - self._offset, COLD_READ_CHUNK_BYTES)
        first.file.read(size, first.position + self._offset)
        self._warm_until = self._offset + size

    def clear(self) -> None:
        """Drops all chunks and with them the references to files."""
        self._queue.clear()
        self.queued_bytes = self.memory_bytes = self._offset = self._warm_until = 0

    def _joined_bytes(self, first: bytes) -> bytes | memoryview:
        """Joins the first run of byte chunks, so that many small responses leave in one packet."""
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
        if isinstance(first, bytes):
            size = len(first)
            self.memory_bytes -= sent
        else:
            size = first.size
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
    except OSError:  # a file system without RWF_NOWAIT (tmpfs): assume that the page is cached
        return True
    return True
