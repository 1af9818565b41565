"""Apache Kafka's share consumers: ShareConsumers.java, any number of consumers in one JVM."""

import itertools
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PROGRAM = Path(__file__).parents[1] / "conformance" / "java" / "ShareConsumers.java"


class Taken(NamedTuple):
    """One record as a consumer got it."""

    offset: int
    value: str
    delivery_count: int


class JavaShareConsumers:
    """The running program. It prints records as PARTITION:OFFSET:VALUE:DELIVERY-COUNT.

    `command` runs PROGRAM with kafka-clients on its class path and the bootstrap address as argument.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.numbers = itertools.count()

    def __call__(self, line: str) -> str:
        """Says a line; returns the answer without its "ok"."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(line, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().strip()
        assert answer.startswith("ok"), f"{line}: {answer}"
        return answer.removeprefix("ok").strip()

    def records(self, line: str) -> list[Taken]:
        """As said, for a line that is answered with records."""
        found = [each.split(":") for each in self(line).split()]
        return [Taken(int(offset), value, int(count)) for _, offset, value, count in found]

    def next_number(self) -> int:
        """A number for a consumer's name that no other has."""
        return next(self.numbers)

    def stop(self) -> None:
        """Ends the program at once: its consumers do not leave."""
        self.process.kill()
        self.process.wait()
