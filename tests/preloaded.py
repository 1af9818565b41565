"""Starts `headrace serve` with a fifth of the processor time: from a process that has imported its modules already.

    worker of pytest ──▶ this module as a program, once for each worker: imports the broker, and waits
           │                        │ clone
           └──── is the parent of ──┴─▶ headrace serve

To import the broker takes a quarter of a second of processor time, which is nearly all of its start, and the tests
start it a thousand times. The new process is a child of the test's process and not of the one that it is copied from
(CLONE_PARENT), so it is a `subprocess.Popen` like any other: its pid, its status, its end.

A copy gets the environment, the directory and the limits of the test's process. It starts as usual instead where
variables differ that Python, its libraries or the linker read at their start, and on other systems than Linux on two
architectures.
"""

import atexit
import ctypes
import json
import os
import platform
import resource
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

PROGRAM = [sys.executable, "-m", "headrace", "serve"]
_ROOT = Path(__file__).parents[1]
_CLONE = {"x86_64": 56, "aarch64": 220}
"""The number of the system call."""
_CLONE_PARENT = 0x8000
_SIGCHLD = 17
_REQUEST_BYTES_MAX = 1 << 17
_READ_AT_START = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "OPENSSL_", "TZ", "LANG", "LC_")
_LIMITS = range(resource.RLIMIT_NOFILE + 1)


def popen(command: Sequence[str], *, env: Mapping[str, str], **streams: Any) -> "subprocess.Popen[bytes]":
    """`subprocess.Popen(command, env=env, **streams)`, or a copy of the preloaded process that is the same."""
    if sys.platform == "linux" and platform.machine() in _CLONE and list(command[:4]) == PROGRAM:
        with _lock:
            preloaded = _preloaded_by.get(os.getpid())  # a process that was forked has none yet
            if preloaded is None:
                preloaded = _preloaded_by[os.getpid()] = _Preloaded(env)
        if preloaded.read_at_start == _read_at_start(env):
            try:
                return _Copy(preloaded, command, env, **streams)
            except OSError:  # where the system call is not allowed, as in some containers
                pass
    return subprocess.Popen(command, env=env, **streams)


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environment.items() if name.startswith(_READ_AT_START)}


class _Preloaded:
    """The process that is copied."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.read_at_start = _read_at_start(environment)
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.preloaded", str(other.fileno())],
                cwd=_ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
            )  # fmt: skip
        atexit.register(self._end)

    def copy(self, arguments: Sequence[str], environment: Mapping[str, str], streams: Sequence[int]) -> int:
        """The pid of a copy that runs this command of ours."""
        limits = [resource.getrlimit(each) for each in _LIMITS]
        request = _Request(list(arguments), dict(environment), os.getcwd(), limits)
        with _lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], streams)
            pid = int(self._socket.recv(_REQUEST_BYTES_MAX) or -1)
        if pid < 0:
            raise OSError(f"the preloaded process made no copy; its status is {self._process.poll()}")
        return pid

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()


class _Request(NamedTuple):
    """What a copy is to be and do."""

    arguments: list[str]
    environment: dict[str, str]
    directory: str
    limits: list[tuple[int, int]]

    def prepare(self) -> None:
        """Makes it so in the copy."""
        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(self.directory)
        for each, limit in zip(_LIMITS, self.limits, strict=True):
            resource.setrlimit(each, limit)
        sys.argv = ["headrace", *self.arguments]


_lock = Lock()
_preloaded_by: dict[int, _Preloaded] = {}
"""By the process that it is a child of."""


class _Copy(subprocess.Popen[bytes]):
    """A process that was copied where others are forked and executed."""

    def __init__(
        self, preloaded: _Preloaded, command: Sequence[str], environment: Mapping[str, str], **streams: Any
    ) -> None:
        self._preloaded, self._environment = preloaded, environment
        super().__init__(command, **streams)

    def _execute_child(self, command: Sequence[str], *others: Any) -> None:
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = others[9:15]
        self.pid = self._preloaded.copy(command[3:], self._environment, [p2cread, c2pwrite, errwrite])
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]


def _clone() -> int:
    """As `os.fork()`, but the new process is a sibling."""
    python, system = ctypes.pythonapi, ctypes.PyDLL(None)
    system.syscall.restype = ctypes.c_long
    python.PyOS_BeforeFork()
    pid = int(system.syscall(*map(ctypes.c_long, (_CLONE[platform.machine()], _CLONE_PARENT | _SIGCHLD, 0, 0, 0, 0))))
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return pid


def _make_copies(requests: socket.socket) -> _Request | None:
    """Makes copies until the other end is closed, and returns None then; in each copy, what it is to do."""
    while True:
        data, streams, _, _ = socket.recv_fds(requests, _REQUEST_BYTES_MAX, 3)
        if not data:
            return None
        pid = _clone()
        if pid == 0:
            for own, given in enumerate(streams):
                os.dup2(given, own)
        for given in streams:
            os.close(given)
        if pid == 0:
            return _Request(*json.loads(data))
        requests.send(str(pid).encode())


def main() -> int:
    """The preloaded process, and each of its copies."""
    import_module("headrace.broker.app")
    from headrace.cli.main import main as command

    with socket.socket(fileno=int(sys.argv[1])) as requests:
        wanted = _make_copies(requests)
    if wanted is None:
        return 0
    wanted.prepare()
    return command()


if __name__ == "__main__":
    sys.exit(main())
