"""`headrace.flush.acks` in a real process, by its system calls: no answer leaves before its records are on the disk."""

import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.broker.forked_brokers import missing_strace
from tests.eventually import eventually
from tests.harness import HeadraceServer
from tests.wire import Wire, batch

pytestmark = pytest.mark.slow  # processes of its own

CALLS = "pwrite64,fdatasync,fsync,openat,mkdir,rename,sendto"
LINE = re.compile(r"^(\d+) +(?:<\.\.\. )?(\w+)(\(| resumed>)(.*)$")


@contextmanager
def traced(server: HeadraceServer, trace: Path) -> Iterator[None]:
    """The server's system calls are written to a file."""
    assert server.process is not None
    pid = server.process.pid
    command = ["strace", "-f", "-qq", "-y", "-s", "0", "-e", f"trace={CALLS}", "-e", "signal=none", "-o", str(trace)]
    with subprocess.Popen([*command, "-p", str(pid)], stderr=subprocess.DEVNULL) as strace:
        eventually(lambda: "TracerPid:\t0" not in Path(f"/proc/{pid}/status").read_text(), "strace to attach")
        try:
            yield
        finally:
            strace.send_signal(signal.SIGTERM)


class Unsynced:
    """What is not on the disk yet, as the calls go by."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.changes = 0
        self.paths: dict[Path, int] = {}  # path -> the number of its last change
        self.syncing: dict[str, tuple[Path, int]] = {}  # thread -> what it syncs, and the last change before that
        self.answers = self.rolls = 0
        self.written: set[Path] = set()

    def on_line(self, line: str) -> None:
        """One call, or its first or second half."""
        found = LINE.match(line)
        if found is None:
            return
        thread, call, how, rest = found.groups()
        if call in ("fdatasync", "fsync"):
            if how == "(":
                self.syncing[thread] = path_of(rest), self.changes
            if "unfinished" not in rest:
                assert rest.endswith("= 0"), line
                path, change = self.syncing.pop(thread)
                if self.paths.get(path, 0) <= change:
                    self.paths.pop(path, None)
            return
        if how != "(":
            return
        if call == "pwrite64" and path_of(rest).suffix == ".log":
            self.written.add(path_of(rest))
            self._changed(path_of(rest))
        elif call == "openat" and "O_CREAT" in rest and (name := quoted(rest)).endswith(".log"):
            self.rolls += 1
            self._changed(Path(name).parent)
        elif call == "mkdir":
            self._changed(Path(quoted(rest)).parent)
        elif call == "sendto" and self.written:
            self.answers += 1
            assert not {path for path in self.paths if path == self.directory or self.directory in path.parents}, line

    def _changed(self, path: Path) -> None:
        self.changes += 1
        self.paths[path] = self.changes


def path_of(rest: str) -> Path:
    """The path of the descriptor that a call begins with."""
    return Path(rest[rest.index("<") + 1 : rest.index(">")])


def quoted(rest: str) -> str:
    """The name that a call is about."""
    return rest.split('"')[1]


@pytest.mark.slow
def test_no_answer_leaves_before_its_records_and_their_names_are_synced(
    headrace_server: Callable[..., HeadraceServer], tmp_path: Path
) -> None:
    if reason := missing_strace():
        pytest.skip(reason)
    server = headrace_server(settings={"headrace.log.flush.acks": "true"})
    trace = tmp_path / "trace"
    with traced(server, trace), Wire(server.bootstrap) as wire:
        assert wire.create_topic("t", 1, {"segment.bytes": "400"}) == 0
        for number in range(12):
            code, base_offset = wire.produce("t", batch([b"x" * 100]), acks=1 if number % 2 else -1)
            assert (code, base_offset) == (0, number)
    unsynced = Unsynced(server.data.resolve())
    for line in trace.read_text().splitlines():
        unsynced.on_line(line)
    assert unsynced.answers >= 12
    assert unsynced.rolls >= 4
