r"""`headrace consume TOPIC`: prints records to stdout.

    headrace consume flights                         all records, then new ones as they arrive
    headrace consume flights --exit --count 10       the first ten
    headrace consume flights --from -10 --exit       the last ten of each partition
    headrace consume flights --from @2013-06-01 --to @2013-07-01
    headrace consume flights --group readers         continue at the group's offsets, and commit
    headrace consume flights --format '%p %o %k %s\n'

A format's letters are kcat's: %t topic, %p partition, %o offset, %k key, %s value, %h headers, %T time in ms, %K and %S
lengths of key and value (-1: null), %% a percent sign; \n, \t, \\ as in C.
"""

import base64
import re
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from typing import Annotated

import typer

from headrace.cli.output import Json, as_json
from headrace.cli.places import END, parse_place, resolve
from headrace.cli.shared import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, UsageProblem, access, cluster_of
from headrace.client.consumer.consumer import Consumer, ConsumerSettings
from headrace.client.consumer.fetched_batches import ConsumerRecord
from headrace.client.operations.admin import Admin
from headrace.printable import printable
from headrace.types import Offset, TopicPartition

Print = Callable[[ConsumerRecord], bytes]

_PLACES = "beginning, end, N, -N (before the end) or @TIME."
_FORMAT = "Such as '%p %o %k %s\\n'; letters as kcat's."
_POLL_MS = 500
_POLL_RECORDS = 10_000
_TERMINATED = 128 + signal.SIGTERM
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "0": "\0"}
_PART = re.compile(r"%(.?)|\\(.?)|([^%\\]+)", re.DOTALL)


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            "-f",
            metavar="PLACE",
            help="Where to start: beginning, end, an offset N, -N (N before the end), or @TIME.",
        ),
    ] = "beginning",
    stop: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="PLACE", help="Where to stop: end, N, -N or @TIME. Without it, wait for new records."
        ),
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit", "-e", help="Stop at the end of the log; short for --to end.")
    ] = False,
    count: Annotated[int | None, typer.Option("--count", "-n", min=0, help="Stop after this many records.")] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", help="Only this partition; repeatable. Without it, all partitions."),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Join this consumer group, and commit offsets.")
    ] = None,
    text_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Output format, such as '%p %o %k %s\\n': %t topic, %p partition, %o offset, %k key, %s value, %h "
            "headers, %T time (ms).",
        ),
    ] = None,
    committed: Annotated[
        bool, typer.Option("--read-committed", help="Omit records of aborted and open transactions.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Print the records of a topic."""
    if json and text_format is not None:
        raise UsageProblem("--json and --format exclude each other: give one of them")
    if group is not None and (partition or stop or exit_at_end):
        raise UsageProblem(
            "--group cannot be combined with --partition, --to or --exit: the group assigns the partitions "
            "and has no end"
        )
    show = _as_json_line if json else _formatter(text_format or "%s\\n", sys.stdout.isatty())
    settings = ConsumerSettings(
        group_id=group,
        auto_offset_reset="latest" if group is not None and start in ("end", "latest") else "earliest",
        isolation_level="read_committed" if committed else "read_uncommitted",
    )
    address, client = access(bootstrap)
    with suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    with Consumer(address, settings, client) as consumer:
        if group is not None:
            consumer.subscribe([topic])
            _print(_records(consumer, {}, count), show)
        else:
            stop = "end" if exit_at_end and stop is None else stop
            ends = _prepare(bootstrap, consumer, topic, start, stop, partition)
            _print(_records(consumer, ends, count), show)


def _prepare(
    bootstrap: str, consumer: Consumer, topic: str, start: str, stop: str | None, chosen: list[int] | None
) -> dict[TopicPartition, Offset]:
    """Assigns and seeks the partitions. Returns the offset to stop at, for each partition that has one."""
    first = parse_place("--from", start)
    last = None if stop is None else parse_place("--to", stop)
    with cluster_of(bootstrap) as cluster:
        admin = Admin(cluster)
        partitions = admin.partitions_of(topic)
        if chosen:
            unknown = sorted(set(chosen) - {each.partition for each in partitions})
            if unknown:
                raise UsageProblem(f"--partition {unknown[0]}: topic {topic} has partitions 0 to {len(partitions) - 1}")
            partitions = [each for each in partitions if each.partition in chosen]
        starts = resolve(admin, first, partitions)
        ends = {} if last is None else resolve(admin, last, partitions)
        readable = resolve(admin, END, partitions) if ends else {}
    consumer.assign(partitions)
    for partition, offset in starts.items():
        consumer.seek(partition, offset)
    return {partition: min(end, readable[partition]) for partition, end in ends.items()}


def _records(
    consumer: Consumer, ends: dict[TopicPartition, Offset], count: int | None
) -> Generator[ConsumerRecord, None, None]:
    """Yields at most `count` records, until every partition has reached its end; without ends, it does not return.

    It never polls more records than it still needs, because a group commits everything that poll returned. What was
    printed goes out before the next poll, which may wait for long and commits: whoever reads a pipe sees it at once.
    """
    unfinished = set(ends)
    left = sys.maxsize if count is None else count
    while left > 0:
        if ends:
            done = [each for each in unfinished if consumer.position(each) >= ends[each]]
            consumer.pause(done)
            unfinished.difference_update(done)
            if not unfinished:
                return
        sys.stdout.buffer.flush()
        for record in consumer.poll(_POLL_MS, min(left, _POLL_RECORDS)):
            partition = TopicPartition(record.topic, record.partition)
            end = ends.get(partition)
            if end is None or record.offset < end:
                left -= 1
                try:
                    yield record
                except GeneratorExit:  # an interrupt: the group gets again what was not printed
                    consumer.seek(partition, record.offset)
                    raise


def _print(records: Generator[ConsumerRecord, None, None], show: Print) -> None:
    out = sys.stdout.buffer
    with closing(records):
        for record in records:
            out.write(show(record))
            if out.isatty():
                out.flush()
    out.flush()


# -- formats


def _as_json_line(record: ConsumerRecord) -> bytes:
    line: dict[str, Json] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _json_of(record.key),
        "value": _json_of(record.value),
        "headers": [[name, _json_of(value)] for name, value in record.headers],
    }
    return as_json(line).encode() + b"\n"


def _json_of(data: bytes | None) -> Json:
    """UTF-8 as a string, null as null, other bytes as {"base64": ...}."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _formatter(text_format: str, to_terminal: bool) -> Print:
    """Compiles the format into a function."""
    fields = _fields(to_terminal)
    parts: list[bytes | Print] = []
    for letter, escape, plain in _PART.findall(text_format):
        if plain:
            parts.append(plain.encode())
        elif letter == "%":
            parts.append(b"%")
        elif letter in fields and letter:
            parts.append(fields[letter])
        elif escape in _ESCAPES and escape:
            parts.append(_ESCAPES[escape].encode())
        else:
            raise UsageProblem(
                f"--format: %{letter} is unknown; the letters are {', '.join('%' + known for known in fields)}"
            )

    def show(record: ConsumerRecord) -> bytes:
        return b"".join([part if isinstance(part, bytes) else part(record) for part in parts])

    return show


def _fields(to_terminal: bool) -> dict[str, Print]:
    shown = _for_terminal if to_terminal else bytes
    return {
        "t": lambda record: printable(record.topic).encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "T": lambda record: b"%d" % record.timestamp_ms,
        "k": lambda record: shown(record.key or b""),
        "s": lambda record: shown(record.value or b""),
        "K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
        "S": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
        "h": lambda record: _for_terminal(b",".join([_header(*header) for header in record.headers])),
    }


def _header(name: str, value: bytes | None) -> bytes:
    return name.encode() + b"=" + (b"NULL" if value is None else value)


def _for_terminal(data: bytes) -> bytes:
    return printable(data.decode("utf-8", "backslashreplace"), keep="\t").encode()
