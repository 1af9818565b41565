"""The grid's face of kcat: a process for each call.

kcat cannot say everything: it gives no timestamp to what it writes, takes keys and headers as arguments (so no NUL
in them) and values as files, and prints headers as text ("NULL" for null). `KCAT_MESSAGES` keeps to that.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.conformance.model import (
    NO_NEW_GROUPS,
    NO_SHARES,
    NO_STREAMS,
    OAUTHBEARER,
    Consumed,
    FromOffset,
    FromTime,
    GroupState,
    Header,
    Joining,
    Message,
    Refused,
    TransactionalProducer,
    Transforming,
    Writing,
)
from tests.eventually import WITHIN_SECONDS
from tests.harness import stop_process

MESSAGE_TOO_LARGE = 10  # kcat has words for errors, not numbers
END = b"\x1e-end-of-record-\x1e"
FORMAT = f"%p %o %T %K %S %k%s%h{END.decode()}"

KCAT_MESSAGES = (
    Message(b"key", b"value" * 100),
    Message(None, b"no key, no headers" * 20),
    Message("schlüssel".encode(), "значение 值 🎉".encode() * 30, (("sprache", "Русский 中文".encode()),)),
    Message(b"bytes", bytes(range(256)) * 8, (("h", b"1"), ("g", b"2"), ("h", b"3"))),
    Message(b"large", bytes(range(32, 127)) * 2_000, (("large", b"h" * 5_000),)),
)


NO_COMMAND = "has no command for it"
GAPS = {
    "cooperative": "assigns whole assignments, never a part of one",
    **NO_NEW_GROUPS,
    **NO_SHARES,
    **NO_STREAMS,
    **dict.fromkeys(("commit", "abort", "transform", "fence"), "has one transaction for all it writes"),
    OAUTHBEARER: "takes tokens from an endpoint only",
    "settings": NO_COMMAND,
    "alter": NO_COMMAND,
    "partitions": NO_COMMAND,
    "delete records": NO_COMMAND,
    "delete topic": NO_COMMAND,
    "groups": NO_COMMAND,
    "delete group": NO_COMMAND,
}


class Kcat:
    """The kcat command."""

    name = "kcat"
    messages: Sequence[Message] = KCAT_MESSAGES
    gaps: Mapping[str, str] = GAPS
    is_program = False

    def missing(self) -> str | None:
        """Why it cannot run here; None when it is installed."""
        return None if shutil.which("kcat") else "kcat is not on the path"

    def version(self) -> str:
        """From `kcat -V`."""
        text = subprocess.run(["kcat", "-V"], capture_output=True, text=True, timeout=WITHIN_SECONDS).stdout
        return next(line for line in text.splitlines() if line.startswith("Version ")).split()[1]

    def seen(self, message: Message) -> Message:
        """All of it."""
        return message

    def create_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        """kcat has no way but to ask for the topic, so that the broker makes it with its default partitions."""
        del partitions
        _kcat("-P", "-b", bootstrap, "-t", topic, stdin=b"the first record makes the topic\n")

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], how: Writing) -> None:
        """One process per message: key and headers belong to a whole run of kcat."""
        with tempfile.TemporaryDirectory() as directory:
            for number, message in enumerate(messages):
                assert message.value is not None
                file = Path(directory, str(number))
                file.write_bytes(message.value)
                key = [] if message.key is None else [b"-k", message.key]
                headers = [part for name, value in message.headers for part in (b"-H", _header(name, value))]
                where = ["-P", "-b", bootstrap, "-t", topic, "-p", str(-1 if how.partition is None else how.partition)]
                settings = (
                    f"acks={how.acks}",
                    f"enable.idempotence={str(how.idempotent).lower()}",
                    "topic.partitioner=murmur2_random",
                    "message.max.bytes=10485760",
                )
                options = [part for setting in settings for part in ("-X", setting)]
                _kcat(*where, "-z", how.codec, *options, *key, *headers, str(file))

    def read(self, bootstrap: str, topic: str, start: FromOffset | FromTime, count: int) -> list[Consumed]:
        """-o OFFSET or -o s@TIMESTAMP."""
        position = str(start.offset) if isinstance(start, FromOffset) else f"s@{start.timestamp_ms}"
        return self._consume(bootstrap, topic, position, count)

    def read_new(self, bootstrap: str, topic: str, count: int, write: Callable[[], None]) -> list[Consumed]:
        """-o -COUNT, the last that are there: kcat does not tell when it stands at the end."""
        write()
        return self._consume(bootstrap, topic, f"-{count}", count)

    def join(self, bootstrap: str, topic: str, group: str, how: Joining) -> "KcatMember":
        """A new member of a group."""
        return KcatMember(bootstrap, topic, group, how)

    def transactional(self, bootstrap: str, transactional_id: str) -> TransactionalProducer:
        """A gap."""
        raise NotImplementedError

    def read_committed(self, bootstrap: str, topic: str, count: int) -> list[Consumed]:
        """A gap."""
        raise NotImplementedError

    def transform(self, bootstrap: str, what: Transforming, commit: bool) -> list[Consumed]:
        """A gap."""
        raise NotImplementedError

    def list_offset(self, bootstrap: str, topic: str, when: int) -> int:
        """-Q -t TOPIC:PARTITION:TIMESTAMP."""
        return int(_kcat("-Q", "-b", bootstrap, "-t", f"{topic}:0:{when}").decode().split("offset ")[1])

    def topic_settings(self, bootstrap: str, topic: str) -> Mapping[str, str]:
        """A gap."""
        raise NotImplementedError(NO_COMMAND)

    def set_topic_setting(self, bootstrap: str, topic: str, name: str, value: str) -> None:
        """A gap."""
        raise NotImplementedError(NO_COMMAND)

    def add_partitions(self, bootstrap: str, topic: str, total: int) -> None:
        """A gap."""
        raise NotImplementedError(NO_COMMAND)

    def delete_records(self, bootstrap: str, topic: str, before: int) -> None:
        """A gap."""
        raise NotImplementedError(NO_COMMAND)

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        """A gap."""
        raise NotImplementedError(NO_COMMAND)

    def groups(self, bootstrap: str) -> set[str]:
        """A gap."""
        raise NotImplementedError(NO_COMMAND)

    def group_state(self, bootstrap: str, group: str) -> GroupState:
        """A gap."""
        raise NotImplementedError(NO_COMMAND)

    def delete_group(self, bootstrap: str, group: str) -> None:
        """A gap."""
        raise NotImplementedError(NO_COMMAND)

    def _consume(self, bootstrap: str, topic: str, position: str, count: int) -> list[Consumed]:
        where = ["-C", "-q", "-b", bootstrap, "-t", topic, "-p", "0", "-X", "check.crcs=true"]
        return _parse(_kcat(*where, "-o", position, "-c", str(count), "-f", FORMAT))


class KcatMember:
    """`kcat -G`: commits by itself, and a last time when it ends."""

    def __init__(self, bootstrap: str, topic: str, group: str, how: Joining) -> None:
        settings = [
            "auto.offset.reset=earliest",
            "fetch.wait.max.ms=100",
            "auto.commit.interval.ms=100",
            "heartbeat.interval.ms=300",
            f"partition.assignment.strategy={how.strategy}",
            *([f"group.instance.id={how.instance}"] if how.instance else []),
        ]
        options = [part for setting in settings for part in ("-X", setting)]
        command = ["kcat", "-G", group, "-u", "-b", bootstrap, *options, "-f", FORMAT, topic]
        self.directory = tempfile.TemporaryDirectory()
        self.errors = Path(self.directory.name, "stderr")
        self.output = Path(self.directory.name, "stdout")
        with self.errors.open("wb") as errors, self.output.open("wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
        self.seen = 0

    def assignment(self) -> set[int]:
        """From the last line that kcat wrote about it, like `% Group g rebalanced (..): assigned: t [0], t [1]`."""
        lines = [line for line in self.errors.read_text().splitlines() if "rebalanced" in line]
        if not lines or "assigned: " not in lines[-1]:
            return set()
        parts = lines[-1].partition("assigned: ")[2].split(", ")
        return {int(part.partition("[")[2].rstrip("]")) for part in parts if "[" in part}

    def poll(self, seconds: float) -> list[Consumed]:
        """What it printed since the last time."""
        deadline = time.monotonic() + seconds
        while True:
            text = self.output.read_bytes()
            end = text.rfind(END) + len(END)
            if end > self.seen + len(END) or time.monotonic() >= deadline:
                break
            time.sleep(0.02)
        fresh, self.seen = text[self.seen : max(end, self.seen)], max(end, self.seen) if END in text else self.seen
        return _parse(fresh)

    def commit(self) -> None:
        """kcat commits every 100 ms: wait for more than that."""
        time.sleep(0.5)

    def close(self) -> None:
        """Ctrl-C: kcat commits, leaves the group and ends."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(WITHIN_SECONDS)
        finally:
            stop_process(self.process)
            self.directory.cleanup()


def _kcat(*arguments: str | bytes, stdin: bytes = b"") -> bytes:
    command = [os.fsencode(part) for part in ("kcat", *arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=WITHIN_SECONDS)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace")
        raise Refused(MESSAGE_TOO_LARGE if "Message size too large" in said else 0, said)
    return done.stdout


def _header(name: str, value: bytes | None) -> bytes:
    return name.encode() if value is None else name.encode() + b"=" + value


def _parse(output: bytes) -> list[Consumed]:
    return [_parse_record(part) for part in output.split(END) if part]


def _parse_record(part: bytes) -> Consumed:
    partition, offset, timestamp, key_size, value_size, rest = part.split(b" ", 5)
    key, rest = _cut(rest, int(key_size))
    value, headers = _cut(rest, int(value_size))
    return Consumed(int(partition), int(offset), Message(key, value, _parse_headers(headers), int(timestamp)))


def _cut(data: bytes, size: int) -> tuple[bytes | None, bytes]:
    return (None, data) if size < 0 else (data[:size], data[size:])


def _parse_headers(text: bytes) -> tuple[Header, ...]:
    if not text:
        return ()
    pairs = (part.partition(b"=") for part in text.split(b","))
    return tuple((name.decode(), None if value == b"NULL" else value) for name, _, value in pairs)
