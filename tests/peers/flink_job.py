"""A job of Apache Flink in one JVM, with its Kafka source and its exactly-once sink.

    job = CopyJob(bootstrap, "source", "target", "POOLING", directory).start()

It is built once with Maven and javac.
"""

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.programs import hash_of
from tests.harness import tail
from tests.peers.cache import build_once

HERE = Path(__file__).parent / "flink"
NAMINGS = ("INCREMENTING", "POOLING")
"""How the sink names transactions, and finds those that a killed job left open.

INCREMENTING has a transactional id for each checkpoint, and fences one id after the other until one is new. POOLING
uses ids again, lists the open transactions of its topics, and fences these.
"""
OPTIONS = (
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.log.org.apache.flink.metrics=error",  # it warns of each metric that has its name twice
)


@dataclass
class CopyJob:
    """CopyNumbers.java in a JVM of its own. Its checkpoints and its log are in `directory`.

    It copies all records of `source`, and those that come, until it is stopped.
    """

    bootstrap: str
    source: str
    target: str
    naming: str
    directory: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self, parallelism: int = 2) -> "CopyJob":
        """From the last complete checkpoint, where there is one. Each parallel writer has transactions of its own."""
        home = built()
        path = f"{home / 'classes'}{os.pathsep}{home / 'lib'}/*"
        topics, checkpoints = [self.source, self.target], str(self.directory / "checkpoints")
        arguments = [self.bootstrap, *topics, checkpoints, self.naming, str(parallelism)]
        command = ["java", *OPTIONS, f"-Djava.io.tmpdir={self.directory}", "-cp", path, "CopyNumbers", *arguments]
        with (self.directory / "flink.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.process is not None and self.process.poll() is None

    def pause(self) -> None:
        """SIGSTOP."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._send(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, also while it is paused; nothing if it does not run."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def checkpoints(self) -> set[Path]:
        """The complete checkpoints of all starts that are on the disk; a newer one replaces an older one."""
        return set((self.directory / "checkpoints").glob("*/chk-*/_metadata"))

    def resumed_transactions(self) -> int:
        """How many transactions that a checkpoint had prepared were committed by a later start, so far."""
        return (self.directory / "flink.log").read_text(errors="replace").count("Attempting to resume transaction")

    def log(self) -> str:
        """The end of what it logged."""
        return tail(self.directory / "flink.log")

    def _send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)


def built() -> Path:
    """The directory of the compiled program and of Flink's jars; the first caller downloads 57 MB."""
    return build_once(f"flink-{hash_of(HERE / 'pom.xml', HERE / 'CopyNumbers.java')}", _build)


def _build(home: Path) -> list[list[str]]:
    maven = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
    fetch = [*maven, f"-DoutputDirectory={home / 'lib'}", "-DincludeScope=runtime"]
    compiler = ["javac", "-nowarn", "-d", str(home / "classes"), "-cp", f"{home / 'lib'}/*"]
    return [fetch, [*compiler, str(HERE / "CopyNumbers.java")]]
