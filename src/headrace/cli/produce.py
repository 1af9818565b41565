"""`headrace produce TOPIC`: sends lines, files or JSON objects to a topic.

seq 3 | headrace produce numbers
headrace produce pictures --whole *.png
echo 'k:v' | headrace produce pairs --key-separator :
echo '{"key": "k", "value": {"a": 1}, "headers": {"h": "x"}}' | headrace produce events --json-lines
"""

import json as json_module
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, NamedTuple

import typer

from headrace.cli.output import counted, print_json
from headrace.cli.shared import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, UsageProblem, access, pairs
from headrace.client.producer.column_input import Headers
from headrace.client.producer.delivery import RecordMetadata
from headrace.client.producer.producer import Producer, ProducerSettings
from headrace.errors import KafkaError
from headrace.printable import printable

_FIELDS = {"key", "value", "headers", "partition", "timestamp_ms"}


class Input(NamedTuple):
    """One record of the command's input."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Tally:
    """Counts acknowledged records, and keeps the first failure."""

    def __init__(self) -> None:
        self.partitions: Counter[int] = Counter()
        self.failure: KafkaError | None = None

    def __call__(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        if metadata is not None:
            self.partitions[metadata.partition] += 1
        elif self.failure is None:
            self.failure = error


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE...]", help="Files to read instead of stdin.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            "-K",
            help="The separator between key and value in each line; without it, a line is a value.",
        ),
    ] = None,
    header: Annotated[list[str], typer.Option("--header", "-H", metavar="NAME=VALUE")] = [],  # noqa: B006
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="Send to this partition, instead of choosing it by key.")
    ] = None,
    json_lines: Annotated[
        bool,
        typer.Option(
            "--json-lines", help="Read one JSON object per line: key, value, headers, partition, timestamp_ms."
        ),
    ] = False,
    whole: Annotated[bool, typer.Option("--whole", help="Send each file as one record.")] = False,
    empty_is_null: Annotated[bool, typer.Option("--empty-is-null", "-Z", help="Send an empty value as null.")] = False,
    compression: Annotated[
        str, typer.Option("--compression", "-z", help="Codec: none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    acks: Annotated[
        str, typer.Option("--acks", help="Acknowledgements to wait for: all, 1 (leader only) or 0 (none).")
    ] = "all",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Send records to a topic, one per line of input."""
    if json_lines and (key_separator is not None or whole):
        raise UsageProblem("--json-lines cannot be combined with --key-separator or --whole")
    fixed = Input(None, None if key is None else key.encode(), _headers(header), partition)
    settings = ProducerSettings(acks=acks, compression=compression)
    tally = Tally()
    address, client = access(bootstrap)
    with Producer(address, settings, client) as producer:
        try:
            for record in _records(files or [], fixed, json_lines, whole, key_separator):
                value = None if empty_is_null and record.value == b"" else record.value
                producer.send(
                    topic, value, record.key, record.partition, record.timestamp_ms, record.headers, on_delivery=tally
                )
                if tally.failure is not None:
                    break
        except UsageProblem:  # of a line: those before it are sent, so that it is known where to go on
            producer.flush()
            raise
    if tally.failure is not None:
        raise tally.failure
    count = tally.partitions.total()
    if json:
        spread = {str(index): tally.partitions[index] for index in sorted(tally.partitions)}
        print_json({"topic": topic, "records": count, "partitions": spread})
    elif sys.stderr.isatty():
        print(f"{counted(count, 'record')} to {printable(topic)}", file=sys.stderr)


def _records(
    files: list[Path], fixed: Input, json_lines: bool, whole: bool, key_separator: str | None
) -> Iterator[Input]:
    if whole:
        for value in [path.read_bytes() for path in files] or [sys.stdin.buffer.read()]:
            yield fixed._replace(value=value)
        return
    for number, line in enumerate(_lines(files), 1):
        if json_lines:
            yield _from_json(line, number, fixed)
        elif key_separator is not None:
            key, found, value = line.partition(key_separator.encode())
            if not found:
                raise UsageProblem(f"line {number} has no {key_separator!r} between key and value")
            yield fixed._replace(key=key, value=value)
        else:
            yield fixed._replace(value=line)


def _lines(files: Iterable[Path]) -> Iterator[bytes]:
    paths = list(files)
    if not paths:
        yield from _stripped(sys.stdin.buffer)
    for path in paths:
        with path.open("rb") as file:
            yield from _stripped(file)


def _stripped(file: BinaryIO) -> Iterator[bytes]:
    for line in file:
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _from_json(line: bytes, number: int, fixed: Input) -> Input:
    try:
        record = json_module.loads(line)
    except ValueError as wrong:
        raise UsageProblem(f"line {number} is not JSON: {wrong}") from None
    if not isinstance(record, dict) or not set(record) <= _FIELDS:
        raise UsageProblem(f"line {number} is not a JSON object, or has fields other than {', '.join(sorted(_FIELDS))}")
    headers = record.get("headers") or {}
    partition, timestamp_ms = record.get("partition", fixed.partition), record.get("timestamp_ms")
    if not isinstance(headers, dict) or not all(isinstance(one, int | None) for one in (partition, timestamp_ms)):
        raise UsageProblem(f"line {number}: headers must be an object, partition and timestamp_ms must be integers")
    own = [(name, _json_bytes(value)) for name, value in headers.items()]
    key = _json_bytes(record["key"]) if "key" in record else fixed.key
    return Input(_json_bytes(record.get("value")), key, [*fixed.headers, *own], partition, timestamp_ms)


def _json_bytes(value: object) -> bytes | None:
    """A string as its own bytes, null as null, anything else as compact JSON."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    return json_module.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _headers(given: list[str]) -> Headers:
    return [(name, value.encode()) for text in given for name, value in pairs("--header", [text]).items()]
