"""`headrace` as a process, with a broker of ours behind it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.eventually import WITHIN_SECONDS
from tests.harness import HeadraceServer

Run = Callable[..., subprocess.CompletedProcess[bytes]]


def run_headrace(*arguments: str, stdin: bytes = b"", bootstrap: str = "") -> subprocess.CompletedProcess[bytes]:
    """Run `headrace` with these arguments; HEADRACE_BOOTSTRAP as given."""
    environment = {**os.environ, "HEADRACE_BOOTSTRAP": bootstrap or "127.0.0.1:1", "COLUMNS": "120"}
    command = [sys.executable, "-m", "headrace", *arguments]
    return subprocess.run(
        command, input=stdin, capture_output=True, timeout=WITHIN_SECONDS, env=environment, check=False
    )


@pytest.fixture(scope="session")
def cli_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    """One broker for all tests of the command line."""
    settings = {"group.initial.rebalance.delay.ms": "0"}
    server = HeadraceServer(tmp_path_factory.mktemp("cli") / "data", settings)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def headrace(cli_server: HeadraceServer) -> Run:
    """`headrace(*arguments, stdin=b"")` against that broker."""

    def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return run_headrace(*arguments, stdin=stdin, bootstrap=cli_server.bootstrap)

    return run
