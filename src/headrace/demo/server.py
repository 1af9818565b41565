"""Runs `headrace serve` in a subprocess for the demo, on a free loopback port."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

STOP_SECONDS = 15


def serve_command(data: Path, listen: str) -> list[str]:
    """The command that serves a data directory; the demo tells it to the user as well."""
    return ["headrace", "serve", "--listen", listen, "--data", str(data)]


@contextmanager
def running_broker(data: Path, log_file: Path) -> Iterator[str]:
    """Its address, host:port, once it answers; ended cleanly on leaving. RuntimeError when it does not start."""
    command = [sys.executable, "-m", *serve_command(data, "127.0.0.1:0")]
    with log_file.open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        yield _address(process, command, log_file)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: "subprocess.Popen[str]", command: Sequence[str], log_file: Path) -> str:
    assert process.stdout is not None
    with process.stdout as said:
        line = said.readline()
    word, _, address = line.strip().partition(" ")
    if word != "ready":
        raise RuntimeError(f"{' '.join(command)} did not start: {log_file.read_text()[-2000:] or line}")
    return address
