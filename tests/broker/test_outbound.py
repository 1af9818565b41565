"""Answers leave in order and unharmed, whatever the socket takes at a time."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.limits import FILE_SEND_BYTES_MAX
from headrace.log.files import DiskFile, LocalFiles
from headrace.log.watched_files import DirectoryWatch, WatchedFile
from headrace.network.outbound import Outbound, Progress
from headrace.network.transport import PlainTransport
from tests.rotation import random_bytes


class OpenedFile(NamedTuple):
    fd: int

    def read(self, size: int, position: int) -> bytes:
        return os.pread(self.fd, size, position)


class Range(NamedTuple):
    file: OpenedFile | WatchedFile
    position: int
    size: int


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    yield ours, theirs
    ours.close()
    theirs.close()


class EncryptingTransport(PlainTransport):
    """Cannot have the kernel send a file, as TLS cannot."""

    __slots__ = ()

    can_send_file = False

    def send_file(self, fd: int, position: int, size: int) -> int:
        raise AssertionError("a file was sent past the encryption")


def drained(
    outbound: Outbound, ours: socket.socket, theirs: socket.socket, kind: type[PlainTransport] = PlainTransport
) -> bytes:
    received = bytearray()
    transport = kind(ours)
    while True:
        progress = outbound.send(transport)
        if progress is Progress.COLD:
            outbound.warm()
        try:
            received += theirs.recv(5000)
        except BlockingIOError:
            if progress is Progress.DONE:
                return bytes(received)


@pytest.mark.parametrize("kind", [PlainTransport, EncryptingTransport])
def test_bytes_and_file_ranges_arrive_in_order(
    pair: tuple[socket.socket, socket.socket], tmp_path: Path, kind: type[PlainTransport]
) -> None:
    content = random_bytes("outbound", 700_000)
    path = tmp_path / "segment"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    outbound = Outbound()
    outbound.add(b"head")
    outbound.add(b"er")
    outbound.add(Range(OpenedFile(fd), 100, 600_000))
    outbound.add(b"")
    outbound.add(b"x" * 50_000)
    outbound.add(Range(OpenedFile(fd), 0, 3))
    expected = b"header" + content[100:600_100] + b"x" * 50_000 + content[:3]
    assert outbound.queued_bytes == len(expected)
    assert drained(outbound, *pair, kind) == expected
    assert outbound.queued_bytes == 0
    assert not outbound
    os.close(fd)


@pytest.mark.parametrize("kind", [PlainTransport, EncryptingTransport])
def test_a_file_that_is_shorter_than_its_range_ends_the_connection(
    pair: tuple[socket.socket, socket.socket], tmp_path: Path, kind: type[PlainTransport]
) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"abc")
    fd = os.open(path, os.O_RDONLY)
    outbound = Outbound()
    outbound.add(Range(OpenedFile(fd), 0, 10))
    with pytest.raises(OSError, match="ends before the"):
        drained(outbound, *pair, kind)
    os.close(fd)


def test_a_range_that_is_not_in_the_page_cache_is_warmed_first(
    pair: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    path = tmp_path / "segment"
    path.write_bytes(random_bytes("outbound", 1 << 20))
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    outbound = Outbound()
    outbound.add(Range(OpenedFile(fd), 0, 1 << 20))
    assert drained(outbound, *pair) == path.read_bytes()
    os.close(fd)


class NotingTransport(PlainTransport):
    """Notes how much of a file it was given at a time."""

    __slots__ = ("sizes",)

    sizes: list[int]

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.direct_fd = -1  # compiled code would make the call itself
        self.sizes = []

    def send_file(self, fd: int, position: int, size: int) -> int:
        self.sizes.append(size)
        return super().send_file(fd, position, size)


def test_a_long_range_leaves_in_pieces(pair: tuple[socket.socket, socket.socket], tmp_path: Path) -> None:
    ours, theirs = pair
    path, size = tmp_path / "segment", 2 * FILE_SEND_BYTES_MAX + 5
    path.write_bytes(random_bytes("outbound", size))
    outbound, transport, received = Outbound(), NotingTransport(ours), bytearray()
    with path.open("rb") as file:
        outbound.add(Range(OpenedFile(file.fileno()), 0, size))
        while len(received) < size:
            if outbound and outbound.send(transport) is Progress.COLD:
                outbound.warm()
            with suppress(BlockingIOError):
                received += theirs.recv(1 << 20)
    assert received == path.read_bytes()
    assert 0 < min(transport.sizes) <= max(transport.sizes) <= FILE_SEND_BYTES_MAX


class UnreadableFile(DiskFile):
    """A file of a disk that has failed."""

    def read(self, size: int, position: int) -> bytes:
        raise OSError(errno.EIO, "no luck")


def test_a_disk_that_cannot_give_what_is_to_be_sent_takes_its_directory_offline(tmp_path: Path) -> None:
    path = tmp_path / "flights-0" / "0.log"
    path.parent.mkdir()
    path.write_bytes(b"x" * 1000)
    watch = DirectoryWatch(LocalFiles(), [tmp_path])
    outbound = Outbound()
    outbound.add(Range(WatchedFile(UnreadableFile(path, os.O_RDONLY), path, watch), 0, 1000))
    with pytest.raises(OSError, match="no luck"):
        outbound.warm()
    assert watch.failed == {tmp_path: "no luck (flights-0/0.log)"}
