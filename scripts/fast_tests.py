"""Runs the fast tests, as `make quick` does: in a few processes of pytest, each with a part of the test files.

    usage: scripts/fast_tests.py [ARGUMENTS OF PYTEST]

pytest-xdist has each worker import all files and report each test to the first process, which takes as long as a third
of the fast tests.
"""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress

PARTS = 3
"""On two cores: some tests wait, and the parts are not equal."""
OPTIONS = ["-q", "-n", "0", "-p", "no:cacheprovider", "--durations", "5", "--ignore", "tests/tree"]
END_SECONDS = 10
FAST = "not slow and not spark and not peer and not soak"
AT_EXIT = b"nanobind: leaked"
"""The beginning of what duckdb prints when the process of its tests ends."""
NO_TESTS = 5
"""Pytest's exit code for a part that has none of the files that the arguments name."""


def main(arguments: list[str]) -> int:
    """The exit code: 1 if a part has failed."""
    command = [sys.executable, "-m", "pytest", *OPTIONS, "-m", FAST, *arguments]
    codes = []
    with ExitStack() as stack:
        running = []
        for part in range(PARTS):
            said = stack.enter_context(tempfile.TemporaryFile())
            environment = {**os.environ, "HEADRACE_QUICK": "1", "HEADRACE_PART": f"{part}/{PARTS}"}
            process = subprocess.Popen(command, env=environment, stdout=said, stderr=subprocess.STDOUT)
            stack.callback(end, process)
            running.append((process, said))
        for process, said in running:
            codes.append(process.wait())
            said.seek(0)
            sys.stdout.buffer.write(said.read().partition(AT_EXIT)[0])
            sys.stdout.flush()
    return int(any(code not in (0, NO_TESTS) for code in codes))


def end(process: subprocess.Popen[bytes]) -> None:
    """Interrupts a part that still runs; pytest then stops its servers."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
