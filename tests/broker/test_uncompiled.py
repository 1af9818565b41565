"""A broker of which nothing is compiled does the same, more slowly: the modules that setup.py compiles are Python."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import child_environment, stop_process
from tests.wire import Wire, batch

UNCOMPILED = """
import sys
from importlib.machinery import FileFinder, SourceFileLoader
from pathlib import Path

sources = FileFinder.path_hook((SourceFileLoader, [".py"]))

def ours(path):
    if "headrace" not in Path(path).parts or "site-packages" in Path(path).parts:
        raise ImportError(path)
    return sources(path)

sys.path_hooks.insert(0, ours)
import headrace.broker.produce.produce_shortcut
import headrace.log.append_state
import headrace.network.connection
import headrace.network.late_answers
import headrace.protocol.plain_produce
import headrace.records.format2.kernel

for name, module in sys.modules.items():
    if name.startswith("headrace."):
        assert module.__file__.endswith(".py"), module.__file__
"""

SERVE = """
from headrace.cli.main import main

sys.argv = ["headrace", "serve", "--listen", "127.0.0.1:0", "--data", sys.argv[1]]
main()
"""

TEST = """
import pytest

sys.exit(pytest.main(sys.argv[1:]))
"""

OF_WHAT_IS_COMPILED = ("broker/test_append_plain", "broker/test_connection", "broker/test_late_writes", "log/test_room")
"""Tests that use compiled classes by themselves, and not only in a broker."""


@pytest.mark.slow
def test_appends_late_writes_and_connections_do_the_same_uncompiled(tmp_path: Path) -> None:
    tests = [str(Path(__file__).parents[1] / f"{name}.py") for name in OF_WHAT_IS_COMPILED]
    options = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "own")]
    environment = {name: value for name, value in child_environment().items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-c", UNCOMPILED + TEST, *options, *tests],
        capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[2], check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-20_000:]}\n{done.stderr[-5_000:]}"
    assert " passed" in done.stdout


@pytest.mark.slow
def test_an_uncompiled_broker_serves(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", UNCOMPILED + SERVE, str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        env=child_environment(),
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode().split()
        assert line[:1] == ["ready"]
        with Wire(line[1]) as wire:
            assert wire.create_topic("t", 2) == 0
            for number in range(20):
                answer = wire.produce("t", batch([b"x" * 100_000, b"y"]), acks=1 if number % 2 else -1)
                assert (answer.error_code, answer.base_offset) == (0, 2 * number)
            for _ in range(20):
                wire.send(3, 1, b"\0\0\0\0")
            assert [wire.receive()[0] for _ in range(20)] == list(
                range(wire.correlation_id - 19, wire.correlation_id + 1)
            )
            fetched = wire.fetch("t", 10)
            assert (fetched.error_code, fetched.high_watermark) == (0, 40)
            assert len(fetched.records) > 200_000
    finally:
        stop_process(process)
        if process.stdout is not None:
            process.stdout.close()
