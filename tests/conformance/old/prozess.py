"""prozess, the npm package that speaks the wire of Kafka 0.7, as a program."""

import base64
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.programs import Machine, hash_of
from tests.peers.cache import build_once

HERE = Path(__file__).parent / "js"
_FILES = ("package.json", "prozess.js", "int64.js")


class ProzessProgram:
    """js/prozess.js with its packages."""

    tools = ("node", "npm")

    def command(self) -> list[str]:
        """The packages are beside a copy of the program, where node looks for them."""
        home = build_once(f"prozess-{hash_of(*(HERE / each for each in _FILES))}", self._build)
        return ["node", "--no-deprecation", str(home / "prozess.js")]

    def _build(self, home: Path) -> list[list[str]]:
        for each in _FILES:
            shutil.copy(HERE / each, home)
        options = ["--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund"]
        return [["npm", "install", "--prefix", str(home), *options]]


class Prozess:
    """A producer and a consumer at a port."""

    def __init__(self, port: int) -> None:
        self.machine = Machine(ProzessProgram(), {"port": port})

    def produce(self, topic: str, values: Sequence[bytes]) -> None:
        """Send values to partition 0, in one request."""
        self.machine.ask("produce", topic=topic, values=[base64.b64encode(value).decode() for value in values])

    def read(self, topic: str, count: int, offset: int = 0) -> tuple[list[bytes], int]:
        """At least `count` values from a position on, and the position that it has come to by adding up sizes."""
        found, position = self.machine.ask("read", topic=topic, count=count, offset=offset)
        return [base64.b64decode(value) for value in found], int(position)

    def offsets(self, topic: str) -> tuple[int, int]:
        """The earliest and the latest position."""
        earliest, latest = self.machine.ask("offsets", topic=topic)
        return int(earliest), int(latest)
