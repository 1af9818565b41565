"""What tests share to run real processes: free ports, a headrace server in a subprocess, clean endings by pid."""

import fcntl
import os
import random
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from tests import preloaded
from tests.eventually import WITHIN_SECONDS, eventually

PORTS = range(20_000, 32_000)
"""Below those that Linux and macOS draw for outgoing connections and for port 0: nobody gets one by chance."""

KEEPS_OLD_RECORDS = {"log.retention.check.interval.ms": "86400000"}
"""Tests write records with times that are older than `retention.ms`. A check, every five minutes by default, deletes
them while a test reads them."""


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody listens on, all different, and this process's own until it ends.

    A server takes its port some time after the choice. Until then no other test may choose it, in this worker or in
    another process: each port is a locked byte of one file. The locks end with the process.
    """
    found = list(islice(filter(_claim, random.Random().sample(PORTS, len(PORTS))), count))
    if len(found) < count:
        raise RuntimeError(f"{count} ports are wanted, and only {len(found)} of {PORTS} are free")
    return found


def free_range(count: int) -> int:
    """The first of so many loopback ports in a row, like `free_ports`."""
    for first in random.Random().sample(PORTS, len(PORTS)):
        if all(_claim(port) for port in range(first, first + count)):
            return first
    raise RuntimeError(f"{count} free ports in a row are wanted, and {PORTS} have none")


def _claim(port: int) -> bool:
    """Whether the port is free, and ours from now on."""
    if port in _claimed:  # a process may lock its own byte again
        return False
    try:
        fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
    except OSError:
        return False
    _claimed.add(port)
    return True


_claimed: set[int] = set()


@cache
def _claims() -> BinaryIO:
    """The file of locks. It is open once, as its locks end when a process closes any of its handles."""
    return (Path(tempfile.gettempdir()) / f"headrace-test-ports-{os.getuid()}").open("ab")


def unused(name: str) -> str:
    """A name of a topic that nobody has used before, nor an earlier try of the same test on the same servers."""
    return f"{name}-{time.monotonic_ns()}"


def stop_process(process: subprocess.Popen[bytes], *, seconds: float = WITHIN_SECONDS) -> int:
    """Ask a process to end, insist after `seconds`; its exit status."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait(WITHIN_SECONDS)


def tail(path: Path, size: int = 4000) -> str:
    """The end of a text file; empty when there is none."""
    return path.read_text(errors="replace")[-size:] if path.exists() else ""


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """`size` bytes from a socket; ConnectionError when it ends before."""
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(min(size - len(parts), 1 << 20))
        if not part:
            raise ConnectionError(f"the connection ended after {len(parts)} of {size} bytes")
        parts += part
    return bytes(parts)


def receive_frame(connection: socket.socket) -> bytes:
    """One size-prefixed answer, without its size."""
    (size,) = struct.unpack(">i", receive_exactly(connection, 4))
    return receive_exactly(connection, size)


def answers_api_versions(port: int) -> bool:
    """Whether what listens on a loopback port answers ApiVersions version 0."""
    request = struct.pack(">hhih", 18, 0, 7, -1)
    with socket.create_connection(("127.0.0.1", port), 1) as connection:
        connection.settimeout(2)
        connection.sendall(struct.pack(">i", len(request)) + request)
        return receive_frame(connection)[:6] == struct.pack(">ih", 7, 0)


def eventually_serves(
    process: subprocess.Popen[bytes],
    answers: Callable[[], bool],
    what: str,
    *,
    log: Callable[[], str],
) -> None:
    """Returns once a server's process answers; fails at once when it has ended instead."""

    def is_known() -> bool:
        if process.poll() is not None:
            return True
        with suppress(OSError):
            return answers()
        return False

    eventually(is_known, f"{what} to answer", state=log)
    if process.poll() is not None:
        raise AssertionError(f"{what} ended with status {process.returncode} before it answered\n{log()}")


@dataclass
class HeadraceServer:
    """`headrace serve` in a process of its own."""

    data: Path
    settings: dict[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    listen: str | None = "127.0.0.1:0"
    """None: the settings name the listeners."""
    is_preloaded: bool = True
    """Copied from a process that has the modules already (`tests/preloaded.py`), or executed."""
    process: subprocess.Popen[bytes] | None = None
    bootstrap: str = ""

    @property
    def port(self) -> int:
        """The loopback port it answers on."""
        return int(self.bootstrap.rpartition(":")[2])

    @property
    def stderr_file(self) -> Path:
        """Where its log goes; beside the data, not in it."""
        return self.data.with_name(self.data.name + ".stderr")

    def command(self) -> list[str]:
        """The command line that starts it."""
        chosen = {**KEEPS_OLD_RECORDS, **self.settings}
        settings = [part for key, value in chosen.items() for part in ("--set", f"{key}={value}")]
        listen = [] if self.listen is None else ["--listen", self.listen]
        base = [sys.executable, "-m", "headrace", "serve", *listen, "--data", str(self.data)]
        return [*base, *settings, *self.arguments]

    def start(self) -> "HeadraceServer":
        """Start it and wait for its line `ready HOST:PORT`."""
        with self.stderr_file.open("ab") as log:
            start = preloaded.popen if self.is_preloaded else subprocess.Popen
            self.process = start(
                self.command(), env=child_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
        line = _first_line(self.process, WITHIN_SECONDS)
        if not line.startswith("ready "):
            self.stop()
            raise RuntimeError(f"headrace serve said {line!r}, not ready:\n{tail(self.stderr_file)}")
        self.bootstrap = line.split()[1]
        return self

    def stop(self) -> int:
        """SIGTERM, and its exit status."""
        if self.process is None:
            return 0
        status = stop_process(self.process)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return status

    def kill(self) -> None:
        """SIGKILL: no chance to say goodbye."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.stop()

    def restart(self) -> "HeadraceServer":
        """Start again on the same data directory and, so that clients find it, the same port."""
        if self.listen is not None and "://" not in self.listen:  # else it names its ports
            self.listen = self.bootstrap or self.listen
        return self.start()


def child_environment() -> dict[str, str]:
    """The environment of a subprocess: ours, unbuffered."""
    return {**os.environ, "PYTHONUNBUFFERED": "1"}


def _first_line(process: subprocess.Popen[bytes], seconds: float) -> str:
    assert process.stdout is not None
    deadline = time.monotonic() + seconds
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not line.endswith(b"\n") and (left := deadline - time.monotonic()) > 0:
            if selector.select(left):
                part = os.read(process.stdout.fileno(), 4096)
                if not part:
                    break
                line += part
    return line.decode(errors="replace").strip()
