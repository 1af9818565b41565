"""Brokers in processes of their own that start in a few milliseconds, to be killed by the hundred.

    with ForkedBrokers() as brokers:
        broker = brokers.start(data, settings, faults=["pwrite64:signal=SIGKILL:when=7"])
        broker.wait_until_ready()

One process (this module, run as a program) imports the whole broker and forks for each: what is forked is `headrace
serve` with all it does, less the time that Python needs to find its modules. `faults` are what `strace -e inject=`
takes; strace is there before the broker's first instruction, and counts system calls for each thread.
"""

import json
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import product
from pathlib import Path
from types import TracebackType

from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import child_environment, tail

LAYERS = (
    "broker",
    "config",
    "controller",
    "coordinators",
    "log",
    "metadata",
    "metastore",
    "network",
    "protocol",
    "records",
    "replication",
)


def missing_strace() -> str:
    """Why strace cannot be used here; empty when it can."""
    if not shutil.which("strace"):
        return "strace is not installed"
    tried = subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else f"strace cannot trace here: {tried.stderr.decode(errors='replace')[:200]}"


class ForkedBrokers:
    """The process that forks; ends, with its brokers, when the context does."""

    def __init__(self, directory: Path) -> None:
        self.stderr_file = directory / "brokers.stderr"
        self._newest: ForkedBroker | None = None
        self._log = self.stderr_file.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.broker.forked_brokers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=child_environment(),
            cwd=Path(__file__).parents[2],
        )

    def __enter__(self) -> "ForkedBrokers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        if self._newest is not None and self._newest.status is None:  # its test failed
            self._newest.end(signal.SIGKILL)
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.terminate()
        self._process.wait(WITHIN_SECONDS)
        self._log.close()

    def start(
        self, data: Path, settings: Mapping[str, str], faults: Sequence[str] = (), only: Sequence[Path] = ()
    ) -> "ForkedBroker":
        """Fork a broker; one at a time. The faults are of all its files, or `only` of some."""
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        argv = ["serve", "--listen", "127.0.0.1:0", "--data", str(data), *words]
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(argv).encode() + b"\n")
        self._process.stdin.flush()
        self._newest = started = ForkedBroker(self, int(self.next_line()))
        started.go(faults, only)
        return started

    def next_line(self) -> str:
        """What the forking process, or its broker, says next."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode().strip()
        assert line, f"no more brokers:\n{tail(self.stderr_file)}"
        return line


class ForkedBroker:
    """One broker."""

    def __init__(self, brokers: ForkedBrokers, pid: int) -> None:
        self.pid = pid
        self.bootstrap = ""
        self.status: int | None = None
        self.strace_file = brokers.stderr_file.with_name("strace.out")
        self._brokers = brokers
        self._strace: subprocess.Popen[bytes] | None = None

    def go(self, faults: Sequence[str], only: Sequence[Path]) -> None:
        """Have it run, under strace when there are faults."""
        if faults:
            inject = [word for fault in faults for word in ("-e", f"inject={fault}")]
            names = ",".join(fault.partition(":")[0] for fault in faults)
            trace = ["-e", f"trace={names}", "-e", "signal=none"]
            command = ["strace", "-f", "-qq", "-o", str(self.strace_file), *trace, *inject]
            command += [word for path in only for word in ("-P", str(path))]
            command += ["-p", str(self.pid)]
            self._strace = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            eventually(lambda: self._is_traced() or self._strace_ended(), "strace to attach")
            assert self._is_traced()
        os.kill(self.pid, signal.SIGCONT)

    def wait_until_ready(self) -> bool:
        """Whether it listens; False when it ended before that."""
        line = self._brokers.next_line()
        if line.startswith("ready "):
            self.bootstrap = line.split()[1]
            return True
        self._ended(line)
        return False

    def end(self, number: signal.Signals) -> int:
        """Signal it, unless it has ended; its wait status."""
        if self.status is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)
            while not (line := self._brokers.next_line()).startswith("ended "):
                pass
            self._ended(line)
        assert self.status is not None
        return self.status

    def faults_seen(self) -> int:
        """How often a fault came about, once it has ended."""
        return 0 if self._strace is None else tail(self.strace_file, 1 << 30).count("(INJECTED)")

    def _ended(self, line: str) -> None:
        assert line.startswith("ended "), line
        self.status = int(line.split()[1])
        if self._strace is not None:
            self._strace.wait(WITHIN_SECONDS)

    def _is_traced(self) -> bool:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return "TracerPid:\t0" not in status

    def _strace_ended(self) -> bool:
        return self._strace is not None and self._strace.poll() is not None


# The process that forks


def _modules() -> Iterator[str]:
    for layer in LAYERS:
        package = import_module(f"headrace.{layer}")
        yield from (found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))


def _fork_brokers() -> None:
    """For each line, the arguments of a broker: say its pid, and, when it ended, its wait status."""
    for name in _modules():
        with suppress(ImportError):  # what needs an extra
            import_module(name)
    for name in ("concurrent.futures.thread", "encodings.idna", "encodings.latin_1", "encodings.utf_16_be"):
        import_module(name)  # what is imported when first used
    from headrace.broker.request.dispatch import message_name
    from headrace.cli.main import main
    from headrace.protocol import messages
    from headrace.protocol.apis import ApiKey
    from headrace.protocol.headers import flexible_from

    for suffix, key in product(("Request", "Response"), ApiKey):
        flexible_from(key)  # reads its schema
        getattr(messages, message_name(key, suffix), None)

    for line in sys.stdin:
        pid = os.fork()
        if pid:
            _, _ = os.waitpid(pid, os.WUNTRACED)  # it waits to be traced
            print(pid, flush=True)
            print("ended", os.waitpid(pid, 0)[1], flush=True)
            continue
        os.kill(os.getpid(), signal.SIGSTOP)
        code = 1
        try:
            code = main(json.loads(line))
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _fork_brokers()
