"""Clients in other languages: a program for each, that is built once and answers JSON lines for a whole test run.

    headrace                     {"do": "list_offset", "bootstrap": "127.0.0.1:9092", "topic": "t", "position": -1}
    the program                  {"ok": 20}    or    {"error": "UnknownTopic...", "code": 3}

Bytes are base64. What is built or downloaded is kept in `HEADRACE_PEERS_CACHE`, or `~/.cache/headrace-peers`, under
the hash of what it was made from.
"""

import atexit
import base64
import hashlib
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.conformance.model import Consumed, Message, Refused
from tests.eventually import WITHIN_SECONDS
from tests.harness import stop_process, tail
from tests.peers.cache import build_once

HERE = Path(__file__).parent


class Program(Protocol):
    """How a client's program comes to be and is started."""

    @property
    def tools(self) -> Sequence[str]:
        """What must be on the path."""

    def command(self) -> list[str]:
        """Builds it, unless that was done before; the command line that runs it."""


class JavaProgram:
    """Grid.java with one version of Apache Kafka's client."""

    tools = ("java", "javac", "mvn")

    def __init__(self, version: str) -> None:
        self.version = version

    def command(self) -> list[str]:
        """The command line that runs Grid."""
        home = self._home()
        return java_command(f"{home / 'classes'}{os.pathsep}{self.library()}", "Grid")

    def library(self) -> str:
        """The class path of the client and of what it needs."""
        return f"{self._home() / 'lib'}/*"

    def _home(self) -> Path:
        sources = (HERE / "java" / "pom.xml", HERE / "java" / "Grid.java")
        return build_once(f"kafka-clients-{self.version}-{hash_of(*sources)}", self._build)

    def _build(self, home: Path) -> list[list[str]]:
        maven = ["mvn", "-q", "-B", "-f", str(HERE / "java" / "pom.xml"), f"-Dkafka.version={self.version}"]
        fetch = [*maven, "dependency:copy-dependencies", f"-DoutputDirectory={home / 'lib'}", "-DincludeScope=runtime"]
        compiler = ["javac", "-nowarn", "-d", str(home / "classes"), "-cp", f"{home / 'lib'}/*"]
        return [fetch, [*compiler, str(HERE / "java" / "Grid.java")]]


class GoProgram:
    """One of the commands of the module in go/."""

    tools = ("go",)

    def __init__(self, name: str) -> None:
        self.name = name

    def command(self) -> list[str]:
        """Both commands are built at once, as they share most of what they are made of."""
        home = build_once(f"go-clients-{hash_of(*sorted((HERE / 'go').rglob('*')))}", self._build)
        return [str(home / self.name)]

    def _build(self, home: Path) -> list[list[str]]:
        return [["go", "build", "-C", str(HERE / "go"), "-o", f"{home}/", "./franz", "./sarama"]]


class NodeProgram:
    """js/grid.js with its packages."""

    tools = ("node", "npm")

    def command(self) -> list[str]:
        """The packages are beside a copy of the program, where node looks for them."""
        home = build_once(f"kafkajs-{hash_of(HERE / 'js' / 'package.json', HERE / 'js' / 'grid.js')}", self._build)
        return ["node", str(home / "grid.js")]

    def _build(self, home: Path) -> list[list[str]]:
        for each in ("package.json", "grid.js"):
            shutil.copy(HERE / "js" / each, home)
        options = ["--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund"]
        return [["npm", "install", "--prefix", str(home), *options]]


class Machine:
    """A program that runs: one question, one answer; `always` is said in every question."""

    def __init__(self, program: Program, always: Mapping[str, object] | None = None) -> None:
        self.always = always or {}
        self.directory = tempfile.TemporaryDirectory()
        self.errors = Path(self.directory.name, "stderr")
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                program.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
        self.names = map(str, itertools.count())
        self.unread = bytearray()
        atexit.register(self.stop)

    def new_name(self) -> str:
        """A name for a consumer that no other has."""
        return next(self.names)

    def ask(self, what: str, **how: object) -> Any:
        """The answer to a command; Refused with what the program said."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": what, **self.always, **how}).encode() + b"\n")
        self.process.stdin.flush()
        answer = json.loads(self._line(time.monotonic() + WITHIN_SECONDS))
        if "error" in answer:
            raise Refused(answer["code"], answer["error"])
        return answer["ok"]

    def stop(self) -> None:
        """End the program."""
        stop_process(self.process)
        self.directory.cleanup()

    def _line(self, deadline: float) -> bytes:
        assert self.process.stdout is not None
        output = self.process.stdout.fileno()
        while (end := self.unread.find(b"\n")) < 0:
            ready, _, _ = select.select([output], [], [], max(deadline - time.monotonic(), 0))
            part = os.read(output, 1 << 20) if ready else b""
            assert part, f"{self.process.args!r} does not answer:\n{tail(self.errors)}"
            self.unread += part
        line = bytes(self.unread[:end])
        del self.unread[: end + 1]
        return line


def java_command(class_path: str, main_class: str) -> list[str]:
    """A JVM that stops optimizing early: it lives for seconds."""
    return ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", class_path, main_class]


def record_line(message: Message) -> dict[str, object]:
    """A record to write."""
    headers = [{"name": name, "value": _text(value)} for name, value in message.headers]
    return {
        "timestamp": message.timestamp_ms,
        "key": _text(message.key),
        "value": _text(message.value),
        "headers": headers,
    }


def consumed(line: dict[str, Any]) -> Consumed:
    """A record that was read."""
    headers = tuple((each["name"], _bytes(each["value"])) for each in line["headers"] or ())
    message = Message(_bytes(line["key"]), _bytes(line["value"]), headers, line["timestamp"])
    return Consumed(line["partition"], line["offset"], message)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def hash_of(*files: Path) -> str:
    """The name of what is made from these files."""
    contents = (each.read_bytes() for each in files if each.is_file())
    return hashlib.sha256(b"\0".join(contents)).hexdigest()[:12]


def missing_tools(tools: Sequence[str]) -> str | None:
    """Why a program cannot run on this machine; None when it can."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    return f"needs {' and '.join(missing)}" if missing else None
