"""Runs a broker in a subprocess of the test.

    test    ── stdin: a pipe that is held open ──▶  headrace.testing.served
            ◀── stdout: 'ready HOST:PORT' ────────
            ◀── stderr: a file without a name ────

The broker stops when the pipe closes, which also happens if the test is killed, so a crash leaves no broker behind.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from selectors import EVENT_READ, DefaultSelector
from typing import IO

from headrace.testing.host import BrokerFailed

READY_SECONDS = 30.0
STOP_SECONDS = 30.0
_TOLD_CHARS = 2_000


class BrokerProcess:
    """`Host` of a broker in a process of its own."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._log_file: IO[bytes] = tempfile.TemporaryFile(prefix="headrace-log-")  # noqa: SIM115 (_end closes it)

    def start(self, properties: Mapping[str, str]) -> str:
        """See `Host.start`."""
        with tempfile.NamedTemporaryFile("w", prefix="headrace-", suffix=".properties") as file:
            # settings may be passwords, which a command line would show to everybody
            file.writelines(f"{_escaped(name)}={_escaped(value)}\n" for name, value in properties.items())
            file.flush()
            return self._run(file.name)

    def _run(self, config: str) -> str:
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", "headrace.testing.served", "--config", config],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log_file,
        )  # fmt: skip
        try:
            word, _, address = _first_line(process).partition(" ")
        except BaseException:
            self._end()
            raise
        if word != "ready":
            output = self.log.strip() or f"exit code {process.poll()}"
            self._end()
            raise BrokerFailed(f"the broker did not start: {output[-_TOLD_CHARS:]}")
        return address

    def stop(self) -> None:
        """See `Host.stop`."""
        process = self._process
        assert process is not None
        ended_before = process.poll()
        process.terminate()
        try:
            status = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            status = None
        output = self.log
        self._end()
        if status is None:
            raise BrokerFailed(f"the broker has not stopped after {STOP_SECONDS:.0f} s:\n{output[-_TOLD_CHARS:]}")
        if status != 0 or ended_before is not None:
            how = "exited unexpectedly" if ended_before is not None else "ended"
            raise BrokerFailed(f"the broker {how} with status {status}:\n{output[-_TOLD_CHARS:]}")

    def kill(self) -> None:
        """See `Host.kill`."""
        self._end()

    @property
    def log(self) -> str:
        """The broker's standard error."""
        if self._log_file.closed:
            return ""
        descriptor = self._log_file.fileno()
        # pread, because the broker writes at the position that a seek here would move
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")

    def _end(self) -> None:
        process = self._process
        assert process is not None
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, self._log_file):
            if pipe is not None:
                pipe.close()


def _escaped(text: str) -> str:
    """For a properties file."""
    return "".join(_ESCAPES.get(each, each) for each in text)


_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", " ": "\\ ", "=": "\\=", ":": "\\:"}


def _first_line(process: "subprocess.Popen[bytes]") -> str:
    """The first line of output; empty if there is none. Raises `BrokerFailed` if it takes too long."""
    assert process.stdout is not None
    with DefaultSelector() as selector:
        selector.register(process.stdout, EVENT_READ)
        if not selector.select(READY_SECONDS):
            raise BrokerFailed(f"the broker is not ready after {READY_SECONDS:.0f} s")
    return process.stdout.readline().decode().strip()
