"""samsa, the client of Kafka 0.7 that PyPI has: producers and groups of consumers that find brokers in ZooKeeper."""

import os
import shutil
from functools import cache
from pathlib import Path

from tests.conformance.programs import Machine, hash_of
from tests.peers.cache import build_once

PROGRAM = Path(__file__).parent / "py" / "samsa_client.py"
PACKAGES = ("samsa==0.3.11", "kazoo==2.8.0", "six==1.16.0")


PACKAGED = ("site-packages", "dist-packages")


@cache
def python_2() -> str | None:
    """Python 2.7 with pip; None where there is none."""
    installed = (Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions").glob("2.7*/bin/python2.7")
    for each in (shutil.which("python2.7"), *map(str, installed)):
        if each and any(
            (Path(each).resolve().parents[1] / "lib/python2.7" / name / "pip").is_dir() for name in PACKAGED
        ):
            return each
    return None


class SamsaProgram:
    """py/samsa_client.py with its packages."""

    tools = ()

    def command(self) -> list[str]:
        """The packages are in a directory of their own."""
        python = python_2()
        assert python is not None
        home = build_once(f"samsa-{hash_of(Path(__file__))}", self._build)
        return ["env", f"PYTHONPATH={home / 'packages'}", python, "-B", str(PROGRAM)]

    def _build(self, home: Path) -> list[list[str]]:
        options = ["-q", "--disable-pip-version-check", "--no-deps", "--target", str(home / "packages")]
        return [[python_2() or "", "-m", "pip", "install", *options, *PACKAGES]]


class Samsa:
    """One process: a producer, and a consumer once it has joined a group."""

    def __init__(self, zookeeper: str, topic: str, session_s: float) -> None:
        self.machine = Machine(SamsaProgram(), {"zookeeper": zookeeper, "topic": topic, "session_s": session_s})
        self.values: list[str] = []

    def partitions(self) -> list[str]:
        """What it has found, as `BROKER-PARTITION`."""
        found: list[str] = self.machine.ask("partitions")
        return found

    def produce(self, partition: str, *values: str) -> None:
        """Send values to a partition."""
        self.machine.ask("produce", partition=partition, values=values)

    def join(self, group: str) -> None:
        """Become a member of a group."""
        self.machine.ask("join", group=group)

    def owned(self) -> list[str]:
        """The partitions that it owns in its group."""
        found: list[str] = self.machine.ask("owned")
        return found

    def take(self) -> list[str]:
        """All values so far, with those that have arrived."""
        while (value := self.machine.ask("take")) is not None:
            self.values.append(value)
        return self.values

    def commit(self) -> None:
        """Commit what was taken."""
        self.machine.ask("commit")

    def kill(self) -> None:
        """SIGKILL."""
        self.machine.process.kill()
        self.machine.stop()
