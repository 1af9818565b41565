"""Members of a group as processes, which print what they consume: Kafka 0.8.2's consumer and ours.

MEMBER ZOOKEEPER GROUP topic|white|black NAME STREAMS [key=value ...]
ready                                          printed when the streams exist
STREAM TOPIC PARTITION OFFSET VALUE            printed for each record
commit / committed, or refused (ours)          read from standard input; its end shuts the member down
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

from tests.conformance.old import old_programs
from tests.conformance.programs import hash_of
from tests.eventually import eventually
from tests.harness import child_environment
from tests.peers.cache import build_once

HERE = Path(__file__).parent
SOURCE = HERE / "java" / "HighLevel.java"
POM = old_programs.HERE / "pom.xml"
SETTINGS = {
    "auto.offset.reset": "smallest",
    "auto.commit.interval.ms": "3600000",
    "zookeeper.session.timeout.ms": "2000",
    "zookeeper.connection.timeout.ms": "30000",
    "rebalance.backoff.ms": "500",
    "rebalance.max.retries": "40",
}
IN_KAFKA = {"offsets.storage": "kafka", "dual.commit.enabled": "true"}


class Seen(NamedTuple):
    """One record that a member printed."""

    member: str
    topic: str
    partition: int
    offset: int
    value: int


def scala_command(version: str = "0.8.2.2") -> list[str]:
    """Kafka's high-level consumer of a release from 0.8.2 to 0.10; built once on a machine."""

    def build(home: Path) -> list[list[str]]:
        release = [f"-Dkafka.version={version}", "-Dkafka.artifact=kafka_2.11"]
        fetch = ["dependency:copy-dependencies", f"-DoutputDirectory={home / 'lib'}", "-DincludeScope=runtime"]
        compiler = ["javac", "-nowarn", "-d", str(home / "classes"), "-cp", f"{home / 'lib'}/*"]
        return [["mvn", "-q", "-B", "-f", str(POM), *release, *fetch], [*compiler, str(SOURCE)]]

    home = build_once(f"kafka-high-level-consumer-{version}-{hash_of(POM, SOURCE)}", build)
    path = f"{home / 'classes'}{os.pathsep}{home / 'lib'}/*"
    return ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", path, "HighLevel"]


def own_command() -> list[str]:
    """Our consumer."""
    return [sys.executable, str(HERE / "high_level.py")]


class Member:
    """One process of a group."""

    def __init__(
        self, name: str, command: list[str], *arguments: str, log: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.seen: list[Seen] = []
        self._words: list[str] = []
        self._log = log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*command, *arguments, *(f"{key}={value}" for key, value in {**SETTINGS, **(settings or {})}.items())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=child_environment(),
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            parts = line.split()
            if len(parts) == 5:
                self.seen.append(Seen(self.name, parts[1], int(parts[2]), int(parts[3]), int(parts[4])))
            else:
                self._words.append(line.strip())

    def wait_for(self, word: str, count: int = 1) -> Self:
        """Returns when it has printed a word so often."""
        eventually(lambda: self._words.count(word) >= count or self.process.poll() is not None, f"{self.name}: {word}")
        assert self._words.count(word) >= count, f"{self.name} ended:\n{self._log.read_text()[-4000:]}"
        return self

    def commit(self) -> None:
        """Returns when it has committed."""
        count = self._words.count("committed")
        self.ask_to_commit()
        self.wait_for("committed", count + 1)

    def ask_to_commit(self) -> None:
        """It may be paused."""
        assert self.process.stdin is not None
        self.process.stdin.write("commit\n")
        self.process.stdin.flush()

    def has_said(self, *words: str) -> bool:
        """Whether it has printed one of these words."""
        return any(word in self._words for word in words)

    def pause(self) -> None:
        """SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; afterwards `seen` has all that it printed."""
        self.process.kill()
        self._end()

    def stop(self) -> None:
        """End of its input, and wait."""
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self._end()

    def _end(self) -> None:
        self.process.wait()
        self._reader.join()
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdout.close()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
