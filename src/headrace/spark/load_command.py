"""`headrace load TOPIC ... --table DIR`: the load job as a command.

    headrace load flights --bootstrap 127.0.0.1:9092 --table ./flights --value-json 'origin STRING, dep_delay DOUBLE'
    headrace load flights --table ./flights --follow                                     goes on as records come
    headrace load flights --table ./again --job again --from-time 2026-01-31T12:00Z      a replay into a second table

Exit codes: 0 loaded, or nothing new, or ended while following; 1 it failed and the table is as it was; 2 the command
line is wrong. With --json one object goes to stdout (with --follow one line for each load), and nothing else does.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from headrace.errors import KafkaError
from headrace.spark.delta_table import JOB_NAME, LoadTable, LostRaceError, SchemaChangedError
from headrace.spark.follow import ended_by_sigterm, follow
from headrace.spark.java import JavaNotFoundError
from headrace.spark.load import LoadJob, LoadResult, plan_ranges, run_load
from headrace.spark.offsets import DataLossError
from headrace.spark.options import OptionError

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
_PAUSE_SECONDS_MAX = 86_400
_EXPECTED_FAILURES = (KafkaError, LostRaceError, SchemaChangedError, JavaNotFoundError, DataLossError)


def build_parser() -> argparse.ArgumentParser:
    """Every option of the command, with its help."""
    parser = argparse.ArgumentParser(
        prog="headrace load",
        description="Load what is new in topics into a Delta table, exactly once, with Spark.",
        epilog="Run it again at any time, also after it was killed: it goes on where the table ends.",
    )
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="topics to load, all partitions")
    broker = os.environ.get("HEADRACE_BOOTSTRAP", DEFAULT_BOOTSTRAP)
    parser.add_argument("--bootstrap", "-b", default=broker, metavar="HOST:PORT", help=f"a broker ({broker})")
    parser.add_argument("--table", required=True, metavar="DIR", help="the Delta table; made if need be")
    parser.add_argument("--pattern", metavar="REGEX", help="topics whose whole name matches, instead of TOPIC")
    parser.add_argument("--job", default="load", metavar="NAME", help="whose progress in the table is meant (load)")
    parser.add_argument("--value-json", metavar="SCHEMA", help="parse values: 'origin STRING, dep_delay DOUBLE'")
    parser.add_argument("--from-time", metavar="TIME", help="start partitions not loaded yet at this time (ISO, or ms)")
    parser.add_argument("--min-partitions", metavar="N", help="split into about this many Spark tasks at least")
    parser.add_argument("--allow-data-loss", action="store_true", help="go on when records were deleted unloaded")
    parser.add_argument("--kafka", action="append", default=[], metavar="KEY=VALUE", help="a client setting")
    parser.add_argument("--master", default="local[2]", help="Spark master (local[2])")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a Spark setting")
    parser.add_argument("--follow", action="store_true", help="load again and again, until SIGTERM or Ctrl-C")
    parser.add_argument("--pause", type=float, default=2.0, metavar="S", help="with --follow: when nothing is new (2)")
    parser.add_argument("--dry-run", action="store_true", help="say what would be loaded; starts no Spark")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments (the process's own by default); the exit code."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    started = time.monotonic()
    try:
        job = _job(parser, arguments)
        if arguments.follow:
            _follow(arguments, job)
            return 0
        if arguments.dry_run:
            ranges = plan_ranges(job, LoadTable.open(job.table))
            result = LoadResult(None, sum(one.size for one in ranges), 0, tuple(ranges))
        else:
            result = run_load(job)
    except OptionError as wrong:
        print(f"headrace load: {wrong}", file=sys.stderr)
        return 2
    except _EXPECTED_FAILURES as failed:
        print(f"headrace load: {failed}", file=sys.stderr)
        return 1
    _report(arguments, result, time.monotonic() - started)
    return 0


def _follow(arguments: argparse.Namespace, job: LoadJob) -> None:
    begun = time.monotonic()

    def report(result: LoadResult) -> None:
        nonlocal begun
        _report(arguments, result, time.monotonic() - begun)
        sys.stdout.flush()
        begun = time.monotonic()

    with ended_by_sigterm() as end, suppress(KeyboardInterrupt):
        follow(job, arguments.pause, end, report, lambda trouble: print(f"headrace load: {trouble}", file=sys.stderr))


def _job(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> LoadJob:
    if bool(arguments.topics) == bool(arguments.pattern):
        _refuse(parser, "name topics, or give --pattern: one of the two")
    if not JOB_NAME.fullmatch(arguments.job):
        _refuse(parser, f"--job {arguments.job!r}: use letters, digits, dots, dashes and underscores, 128 at most")
    table = Path(arguments.table).absolute()
    if "://" in arguments.table:
        _refuse(parser, f"--table {arguments.table}: only a path on a local or mounted file system so far")
    if arguments.follow and arguments.dry_run:
        _refuse(parser, "--follow loads, --dry-run does not: give one of the two")
    if not 0 <= arguments.pause <= _PAUSE_SECONDS_MAX:
        _refuse(parser, f"--pause {arguments.pause}: seconds, from 0 to {_PAUSE_SECONDS_MAX}")
    if "%" in str(table):
        _refuse(parser, f"--table {arguments.table}: choose a path without a percent sign")
    options = {"kafka.bootstrap.servers": arguments.bootstrap}
    if arguments.pattern:
        options["subscribePattern"] = arguments.pattern
    else:
        options["subscribe"] = ",".join(arguments.topics)
    options |= {f"kafka.{key}": value for key, value in _pairs(parser, "--kafka", arguments.kafka)}
    if arguments.from_time is not None:
        options |= {
            "startingTimestamp": _milliseconds(arguments.from_time),
            "startingOffsetsByTimestampStrategy": "latest",
        }
    if arguments.min_partitions is not None:
        options["minPartitions"] = arguments.min_partitions
    if arguments.allow_data_loss:
        options["failOnDataLoss"] = "false"
    return LoadJob(
        table=table,
        read_options=options,
        name=arguments.job,
        value_json=arguments.value_json,
        master=arguments.master,
        spark_settings=dict(_pairs(parser, "--conf", arguments.conf)),
        is_repeated=arguments.follow,
    )


def _milliseconds(text: str) -> str:
    """A time as the source's options take it; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text) if not text.isdecimal() else None
    except ValueError:
        raise OptionError("from-time", text, "write 2026-01-31T12:00Z, or milliseconds since 1970") from None
    if moment is None:
        return text
    return str(round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


def _pairs(parser: argparse.ArgumentParser, option: str, given: Sequence[str]) -> list[tuple[str, str]]:
    for text in given:
        if "=" not in text:
            _refuse(parser, f"{option} {text!r}: write KEY=VALUE")
    return [(key, value) for key, _, value in (text.partition("=") for text in given)]


def _refuse(parser: argparse.ArgumentParser, problem: str) -> NoReturn:
    parser.exit(2, f"headrace load: {problem}\n")


def _report(arguments: argparse.Namespace, result: LoadResult, seconds: float) -> None:
    if arguments.json:
        print(json.dumps({**result.as_json(), "job": arguments.job, "seconds": round(seconds, 2)}))
        return
    for one in result.ranges:
        print(f"{one.topic}-{one.partition}  offsets {one.start} to {one.end}")
    if arguments.dry_run:
        print(f"would load up to {result.rows} records")
    elif result.table_version is None:
        print(f"nothing new; {arguments.table} is up to date")
    else:
        committed = f"committed as version {result.table_version} in {seconds:.1f} s"
        print(f"{result.rows} rows in {result.files} files, {committed}")


if __name__ == "__main__":
    sys.exit(main())
