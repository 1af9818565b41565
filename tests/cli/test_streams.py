"""Standard streams that are closed, full, or not read to their end: a message or none, but never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.eventually import WITHIN_SECONDS

pytestmark = pytest.mark.slow  # processes of its own

HEADRACE = '"$0" -m headrace'
PRINTING = ["--help", "--version", "topic --help", "serve --help", "serve --explain log.retention.ms", "settings"]


def in_shell(script: str) -> subprocess.CompletedProcess[str]:
    """`script` with the interpreter as `$0`; stdout is of the script's last command."""
    command = ["bash", "-c", f"set -o pipefail; {script}", sys.executable]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_SECONDS, check=False, env=environment)


@pytest.mark.parametrize("arguments", PRINTING)
def test_a_reader_that_ends_at_once_is_no_error_message(arguments: str) -> None:
    for buffering in ("", "PYTHONUNBUFFERED=1 "):
        done = in_shell(f"(sleep 0.1; {buffering}{HEADRACE} {arguments}) | exec true")
        assert done.stderr == "" and done.returncode in (0, 1)  # 120: of the interpreter itself, at its exit


@pytest.mark.parametrize("arguments", PRINTING)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_output_that_cannot_be_written_is_said_in_one_line(arguments: str) -> None:
    done = in_shell(f"{HEADRACE} {arguments} > /dev/full")
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("headrace: ") and done.stderr.endswith("No space left on device\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-"])
def test_closed_streams_are_empty(closed: str) -> None:
    done = in_shell(f"{HEADRACE} topic list --bootstrap 127.0.0.1:1 {closed}")
    assert done.returncode == 1 and done.stderr.startswith("headrace: cannot connect") and done.stderr.count("\n") == 1
    done = in_shell(f"{HEADRACE} settings retention.ms {closed}")
    assert (done.returncode, done.stderr) == (0, "")


def test_no_socket_takes_the_number_of_a_closed_stream() -> None:
    code = (
        "import socket, sys; from headrace.cli.main import main; main(['-V']); sys.exit(socket.socket().fileno() < 3)"
    )
    done = in_shell(f'"$0" -c "{code}" <&- >&-')
    assert (done.returncode, done.stderr) == (0, "")
