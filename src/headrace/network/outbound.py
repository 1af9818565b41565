# cython: language_level=3, annotation_typing=False, binding=False, boundscheck=False, wraparound=False
# cython: initializedcheck=False
"""The send queue of a connection: bytes and file ranges, in order.

Runs of bytes are sent in one `send`. A range of a log file is sent by `sendfile`, so fetched records never enter this
process. Where the transport has to change bytes on their way (TLS), the range is read and sent as bytes.

A file range is sent in pieces of up to a mebibyte. Before each, `preadv(RWF_NOWAIT)` probes its first byte and the last
one of every chunk of it, and the piece ends before the first chunk that the kernel would have to read from the disk. If
that is the next one, an executor reads it first, so that a cold reader does not stall the event loop. Apache Kafka lets
such a read block a network thread; here it would block every connection.
Between the pieces of a long range other connections get their turn.
What a shortcut answers is sent without the queue (`send_at_once`), except for what is left.
Compiled, as `connection` is.
"""

import os
from collections import deque
from enum import Enum, auto
from typing import Protocol

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

from headrace.limits import COLD_READ_CHUNK_BYTES, FILE_SEND_BYTES_MAX
from headrace.network.transport import MORE, Transport

if cython.compiled:
    from cython.cimports.cpython.exc import PyErr_SetFromErrno
    from cython.cimports.headrace.network.socket_calls import (
        HAS_SEND_FILE,
        MSG_NOSIGNAL,
        is_cached,
        send,
        send_file,
    )

_EMPTY: "deque[bytes | FileRange]" = deque()
"""The queue of each connection that has nothing to send: an empty deque of its own would take 0.6 kB."""

_JOIN_BYTES_MAX = 256 << 10
_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_CHUNK_BYTES, _FILE_BYTES = COLD_READ_CHUNK_BYTES, FILE_SEND_BYTES_MAX  # as C integers
_MORE = MORE
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


class FilePart:
    """A `FileRange` of an answer that a shortcut writes. Compiled code reads it without objects for its numbers."""

    __slots__ = ("fd", "file", "position", "size")

    file: OpenFile
    fd: int
    """The file's descriptor, if it is known, else -1."""
    position: int
    size: int


def file_part(file: OpenFile, fd: int, position: int, size: int) -> FilePart:
    """See `FilePart`."""
    part = FilePart.__new__(FilePart)
    part.file, part.fd, part.position, part.size = file, fd, position, size
    return part


Chunks = list[bytes | FileRange]
"""An answer, in pieces."""


class Progress(Enum):
    """Why `send` returned."""

    DONE = auto()
    SOCKET_FULL = auto()  # the peer must read first
    YIELD = auto()  # enough for this turn of the loop
    COLD = auto()  # the next chunk is on the disk: `warm` it on an executor, then send again


_DONE, _SOCKET_FULL, _YIELD, _COLD = Progress  # members looked up in their class cost 50 ns each time


class Outbound:
    """The unsent part of one connection's responses."""

    __slots__ = ("_offset", "_queue", "_warm_until", "memory_bytes", "queued_bytes")

    def __init__(self) -> None:
        self._queue = _EMPTY
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
            if self._queue is _EMPTY:
                self._queue = deque()
            self._queue.append(chunk)
            self.queued_bytes += size

    def send(self, transport: Transport) -> Progress:
        """Sends as much as the transport accepts now. Raises `OSError` when the connection is broken."""
        budget = transport.turn_bytes
        queue = self._queue
        while queue:  # the last chunk that is sent leaves it empty
            first = queue[0]
            try:
                if isinstance(first, bytes):
                    data = self._joined_bytes(first)
                    sent = self._send_bytes(transport, data, MORE if self._file_follows() else 0)
                    self._advance(sent)
                else:
                    can_send_file: bool = transport.can_send_file
                    fd, position = first.file.fd, first.position + self._offset
                    size = self._cached(fd, position, first.size, _FILE_BYTES if can_send_file else _READ_BYTES)
                    if not size:
                        return _COLD
                    if can_send_file:
                        sent = self._send_file(transport, fd, position, size)
                    else:
                        data = os.pread(fd, size, position)
                        sent = transport.send(data) if data else 0
                    if sent == 0:
                        raise ConnectionAbortedError("a log file ends before the end of the range to send")
                    self._advance(sent)
            except (BlockingIOError, InterruptedError):
                return _SOCKET_FULL
            budget -= sent
            if budget <= 0 and queue:
                return _YIELD
        return _DONE

    def _send_bytes(self, transport: Transport, data: bytes | memoryview, flags: int) -> int:
        fd = transport.direct_fd if cython.compiled else -1
        if fd < 0 or not isinstance(data, bytes):
            return transport.send(data, flags)
        sent: int = send(fd, cython.cast(cython.p_char, data), len(data), flags | MSG_NOSIGNAL)
        if sent < 0:
            PyErr_SetFromErrno(OSError)
        return sent

    def _send_file(self, transport: Transport, fd: int, position: int, size: int) -> int:
        to = transport.direct_fd if cython.compiled and HAS_SEND_FILE else -1
        if to < 0:
            return transport.send_file(fd, position, size)
        with cython.nogil:
            sent: int = send_file(to, fd, position, size)
        if sent < 0:
            PyErr_SetFromErrno(OSError)
        return sent

    def skip(self, count: int) -> None:
        """Takes that many bytes out of the queue, which `send_at_once` has sent."""
        while count > 0:
            first = self._queue[0]
            size = len(first) if isinstance(first, bytes) else first.size
            sent = min(count, size - self._offset)
            self._advance(sent)
            count -= sent

    def warm(self) -> None:
        """Reads the next chunk into the page cache. Blocks, so it runs on an executor while the event loop does not
        send. Raises `OSError` for a read that the disk fails: it must not fail inside `sendfile`."""
        first = self._queue[0]
        if isinstance(first, bytes):
            return
        size = min(first.size - self._offset, _CHUNK_BYTES)
        first.file.read(size, first.position + self._offset)
        self._warm_until = self._offset + size

    def clear(self) -> None:
        """Drops all chunks and with them the references to files."""
        self._queue = _EMPTY
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
            if not self._queue:
                self._queue = _EMPTY

    def _cached(self, fd: int, position: int, size: int, most: int) -> int:
        """How much of what is left of the first chunk, a range of `size` bytes, can be sent from the page cache now: up
        to `most` bytes from `position`. 0 if it must be read from the disk first."""
        left = min(size - self._offset, most)
        warm = self._warm_until - self._offset
        if warm > 0:
            return min(left, warm)
        return _cached_from(fd, position, left)


def send_at_once(to: int, out: memoryview, size: int, cuts: memoryview, files: list[FilePart]) -> int:
    """Sends the bytes `out[:size]` to a plain socket, and each part of a file before its place in `cuts`, as far as the
    socket takes them and the page cache has them. Returns how many bytes were sent; a failure comes again when the rest
    is sent. Nothing may be queued.

    A client that waits is woken as early as possible, for it takes longer to wake than the rest to be sent: the bytes
    before a long range leave by themselves, and its first chunk before the next ones are probed. Compiled only."""
    pos = sent = number = 0
    while number < len(files):
        part = files[number]
        fd, position, left, cut = part.fd, part.position, part.size, cuts[number]
        if fd < 0:
            fd = part.file.fd
        if cut > pos:
            flags = MSG_NOSIGNAL if left > _CHUNK_BYTES else MSG_NOSIGNAL | _MORE
            count: int = send(to, cython.address(out[pos]), cut - pos, flags)
            if count != cut - pos:
                return sent + max(count, 0)
            sent += count
            pos = cut
        most = _CHUNK_BYTES
        while left > 0:
            piece = _cached_from(fd, position, min(left, most))
            if not piece:
                return sent
            with cython.nogil:
                count = send_file(to, fd, position, piece)
            if count != piece:
                return sent + max(count, 0)
            sent += count
            position += count
            left -= count
            most = _FILE_BYTES
        number += 1
    if size > pos:
        count = send(to, cython.address(out[pos]), size - pos, MSG_NOSIGNAL)
        sent += max(count, 0)
    return sent


def _cached_from(fd: int, position: int, size: int) -> int:
    """How many of the `size` bytes from `position` on the page cache has, by the chunk."""
    if not _is_cached(fd, position):
        return 0
    done = 0
    while done < size:
        end = min(done + _CHUNK_BYTES, size)
        if not _is_cached(fd, position + end - 1):
            break
        done = end
    return done


def _is_cached(fd: int, position: int) -> bool:
    """Whether the page cache has the byte at `position`, as far as the system tells."""
    if cython.compiled:
        found: bool = is_cached(fd, position)
        return found
    if not _RWF_NOWAIT:
        return True
    try:
        os.preadv(fd, [bytearray(1)], position, _RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:  # a file system without RWF_NOWAIT (tmpfs): assume that the page is cached
        return True
    return True
