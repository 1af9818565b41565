"""What the benchmarks of clients share: their options, and a broker of their own where none is named."""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

Run = Callable[[str, argparse.Namespace], None]


def options(description: str | None, results: Path) -> argparse.ArgumentParser:
    """A parser with the options that all have; `results` is where the figures go by default."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", help="a running broker; without it `headrace serve` is started")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=results, help="where the figures go")
    return parser


def run_beside(run: Run, arguments: argparse.Namespace) -> None:
    """Call `run` with the bootstrap address of the broker that was asked for, or of one on an empty directory."""
    if arguments.bootstrap:
        run(arguments.bootstrap, arguments)
        return
    with tempfile.TemporaryDirectory() as data:
        command = [sys.executable, "-m", "headrace", "serve", "--listen", "127.0.0.1:0", "--data", data]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert server.stdout is not None
            run(server.stdout.readline().split()[1], arguments)
        finally:
            server.terminate()
            server.wait()
