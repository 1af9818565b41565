"""Apache Kafka's command line tools, all in one JVM: a JVM for each command would take a second or more."""

import base64
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.conformance.programs import hash_of
from tests.harness import stop_process
from tests.peers import kafka
from tests.peers.cache import build_once

SOURCE = Path(__file__).parent / "java" / "Tools.java"


class Tools:
    """A running JVM."""

    def __init__(self, process: "subprocess.Popen[bytes]", errors: IO[bytes]) -> None:
        self._process, self._errors = process, errors

    def run(self, main_class: str, *arguments: str) -> str:
        """What the tool prints on stdout and stderr, whatever its exit status."""
        return self._ask(main_class, *arguments)[1]

    def check(self, main_class: str, *arguments: str) -> str:
        """The same; RuntimeError with it if the exit status is not 0."""
        status, printed = self._ask(main_class, *arguments)
        if status != 0:
            raise RuntimeError(f"{main_class} ended with {status}:\n{printed}")
        return printed

    def status(self, main_class: str, *arguments: str) -> tuple[int, str]:
        """The tool's exit status, and what it prints on stdout and stderr."""
        return self._ask(main_class, *arguments)

    def _ask(self, main_class: str, *arguments: str) -> tuple[int, str]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("\t".join((main_class, *arguments)).encode() + b"\n")
        stdin.flush()
        answer = stdout.readline()
        if not answer:
            self._errors.seek(0)
            said = self._errors.read()[-4000:].decode(errors="replace")
            raise RuntimeError(f"the JVM of the tools ended with {self._process.wait()}:\n{said}")
        status, printed = answer.split(b" ")
        return int(status), base64.b64decode(printed).decode()


@contextmanager
def kafka_tools(logs: Path, java: Sequence[str] = ()) -> Iterator[Tools]:
    """Starts the JVM, and ends it afterwards. `java`: the start of its command line; without it, that of 4.3."""
    *options, jars = java or kafka.java_command(logs, "-Xmx256m", *kafka.QUICK_START, *kafka.shared_classes())
    command = [*options, f"{jars}{os.pathsep}{_classes()}", "Tools"]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        try:
            yield Tools(process, errors)
        finally:
            stop_process(process)


def _classes() -> Path:
    """The directory of the compiled program; to compile it at each start would take a second."""
    compiler = ["javac", "-nowarn", "-cp", f"{kafka.jars()}/*"]
    return build_once(f"kafka-tools-{hash_of(SOURCE)}", lambda home: [[*compiler, "-d", str(home), str(SOURCE)]])
