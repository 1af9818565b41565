"""`headrace load TOPIC ... --table DIR`: the command of the load job.

    headrace load flights --bootstrap 127.0.0.1:9092 --table ./flights --value-json 'origin STRING, dep_delay DOUBLE'
    headrace load flights --table ./flights --follow                                     goes on as records come
    headrace load flights --table ./again --job again --from-time 2026-01-31T12:00Z      a replay into a second table

Exit codes: 0 loaded, or nothing new, or ended while following; 1 it failed and the table is as it was; 2 the command
line is wrong. With --json one object goes to stdout (with --follow one line for each load), and nothing else does.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from headrace.client.security.client_options import is_client_option
from headrace.client.security.command_options import DEFAULT_BOOTSTRAP, CommandOptions, command_options
from headrace.client.security.secrets import holds_secret
from headrace.config.lake_definition import PARTITIONS
from headrace.errors import InvalidConfig, KafkaError
from headrace.lake.compaction import compact
from headrace.lake.delta.delta_table import (
    JOB_NAME,
    LoadTable,
    LostRaceError,
    SchemaChangedError,
    TableUnreachableError,
)
from headrace.lake.delta.location import Location
from headrace.lake.delta.unsupported import UnsupportedTableError
from headrace.lake.iceberg import IcebergFace
from headrace.lake.publisher import Publisher
from headrace.spark.java import JavaNotFoundError
from headrace.spark.load.follow import COMPACT_AT, ended_by_sigterm, follow
from headrace.spark.load.load import LoadJob, LoadResult, OnStep, plan_ranges, run_load
from headrace.spark.load.shown import bytes_of, shown_progress, size_text
from headrace.spark.source.offsets import DataLossError
from headrace.spark.source.options import OptionError

_PAUSE_SECONDS_MAX = 86_400
_EXPECTED_FAILURES = (
    KafkaError,
    LostRaceError,
    SchemaChangedError,
    JavaNotFoundError,
    DataLossError,
    UnsupportedTableError,
    TableUnreachableError,
)


def build_parser() -> argparse.ArgumentParser:
    """The argument parser of the command."""
    parser = argparse.ArgumentParser(
        prog="headrace load",
        description="Load the new records of topics into a Delta table exactly once, with Spark.",
        epilog="Run the command again at any time, also after it was killed: it continues where the table ends.",
    )
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="topics to load, with all their partitions")
    parser.add_argument(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help=f"brokers to connect to first, separated by commas (default {DEFAULT_BOOTSTRAP})",
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="a properties file with Kafka's client options, such as security.protocol",
    )
    parser.add_argument("--context", metavar="NAME", help="the context to use; see headrace context")
    parser.add_argument(
        "--table", required=True, metavar="DIR", help="the directory of the Delta table; created if it does not exist"
    )
    parser.add_argument("--pattern", metavar="REGEX", help="load topics whose whole name matches, instead of TOPIC")
    parser.add_argument(
        "--job",
        default="load",
        metavar="NAME",
        help="the name that the job's progress is stored under in the table (default load)",
    )
    parser.add_argument(
        "--value-json",
        metavar="SCHEMA",
        help="parse values as JSON with this schema, such as 'origin STRING, dep_delay DOUBLE'",
    )
    parser.add_argument(
        "--partition-by",
        metavar="HOW",
        help="divide a new table: month, day or hour of the records' time, bucket:N of their keys, or field:NAME",
    )
    parser.add_argument(
        "--format",
        default="delta",
        choices=("delta", "iceberg"),
        help="iceberg: a Delta table, with Iceberg's metadata of the same files (default delta)",
    )
    parser.add_argument("--catalog", metavar="URI", help="with --format iceberg: the catalog (default: a SQLite file)")
    parser.add_argument(
        "--dead-letters",
        metavar="DIR",
        help="with --value-json: a second Delta table for rows whose value does not fit, instead of the table",
    )
    parser.add_argument("--headers", action="store_true", help="load the headers of records, in a column of their own")
    parser.add_argument(
        "--from-time",
        metavar="TIME",
        help="start partitions without progress at this time (ISO 8601, or milliseconds since 1970)",
    )
    parser.add_argument("--min-partitions", metavar="N", help="minimum number of Spark tasks, approximately")
    parser.add_argument(
        "--allow-data-loss", action="store_true", help="continue if records were deleted before they were loaded"
    )
    parser.add_argument(
        "--kafka", action="append", default=[], metavar="KEY=VALUE", help="a setting of the client; repeatable"
    )
    parser.add_argument(
        "--add-columns", action="store_true", help="add columns of --value-json that the table does not have to it"
    )
    parser.add_argument("--master", help="the Spark master (default: that of spark-submit, or local[*])")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a Spark setting; repeatable")
    parser.add_argument("--follow", action="store_true", help="keep loading until SIGTERM or Ctrl-C")
    parser.add_argument(
        "--pause",
        type=float,
        default=2.0,
        metavar="S",
        help="with --follow: seconds to wait after each load (default 2)",
    )
    parser.add_argument(
        "--compact-at",
        type=int,
        default=COMPACT_AT,
        metavar="FILES",
        help=f"with --follow: compact the table when it has so many small files; 0: never (default {COMPACT_AT})",
    )
    parser.add_argument(
        "--optimize",
        action="store_true",
        help="afterwards, make the table's small files large ones, also if nothing is new",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress on a terminal")
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be loaded and its size, without starting Spark"
    )
    parser.add_argument("--json", action="store_true", help="print the result as a JSON object")
    return parser


def main(argv: Sequence[str] | None = None, on_step: "OnStep | None" = None) -> int:
    """Runs the command with these arguments (default: the process's own). Returns the exit code.

    `on_step` is called at each step of the load, but not with --follow.
    """
    parser = build_parser()
    arguments = parser.parse_args(argv)
    started = time.monotonic()
    try:
        job = _job(parser, arguments)
        face = _iceberg(parser, arguments, job)
        if arguments.follow:
            _follow(arguments, job, face)
            return 0
        if arguments.dry_run:
            ranges = plan_ranges(job, LoadTable.open(job.table))
            result = LoadResult(None, sum(one.size for one in ranges), 0, tuple(ranges), bytes_of(job, ranges))
        else:
            with shown_progress(is_wanted=not (arguments.json or arguments.quiet)):
                result = run_load(job, on_step)
            if arguments.optimize:
                _optimize(job)
            if face is not None:
                face.publish()
    except OptionError as wrong:
        print(f"headrace load: {wrong}", file=sys.stderr)
        return 2
    except _EXPECTED_FAILURES as failed:
        print(f"headrace load: {failed}", file=sys.stderr)
        return 1
    except OSError as failed:
        if failed.filename is None:
            raise
        print(f"headrace load: {failed.filename}: {failed.strerror}", file=sys.stderr)
        return 1
    _report(arguments, result, time.monotonic() - started)
    return 0


def _optimize(job: LoadJob) -> None:
    """Compacts until nothing is small that could be larger, or somebody else does."""
    with suppress(LostRaceError):
        while (table := LoadTable.open(job.table)) is not None and compact(table):
            pass


def _iceberg(parser: argparse.ArgumentParser, arguments: argparse.Namespace, job: LoadJob) -> IcebergFace | None:
    """The Iceberg face of the table, if it has one."""
    if arguments.format != "iceberg":
        if arguments.catalog is not None:
            _refuse(parser, "--catalog is for --format iceberg")
        return None
    if arguments.catalog is not None and "@" in arguments.catalog:
        _refuse(parser, "--catalog: other users can read a password here; pyiceberg takes it from the environment")
    return IcebergFace(Location.of(job.table), arguments.catalog)


def _follow(arguments: argparse.Namespace, job: LoadJob, face: IcebergFace | None) -> None:
    begun = time.monotonic()

    def tell(trouble: Exception) -> None:
        print(f"headrace load: {trouble}", file=sys.stderr)

    publisher = None if face is None else Publisher(face, tell)

    def report(result: LoadResult) -> None:
        nonlocal begun
        _report(arguments, result, time.monotonic() - begun)
        sys.stdout.flush()
        if publisher is not None:
            publisher.is_due = True
            publisher.when_due()
        begun = time.monotonic()

    with ended_by_sigterm() as end, suppress(KeyboardInterrupt):
        follow(
            *(job, arguments.pause, end, report, tell),
            compact_at=arguments.compact_at,
        )
    if publisher is not None:
        publisher.finish()


def _job(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> LoadJob:
    if bool(arguments.topics) == bool(arguments.pattern):
        _refuse(parser, "give either TOPIC arguments or --pattern")
    if not JOB_NAME.fullmatch(arguments.job):
        _refuse(parser, f"--job {arguments.job!r}: use letters, digits, dots, dashes and underscores, 128 at most")
    table = Path(arguments.table.removeprefix("file://")).absolute()
    if "://" in arguments.table and not arguments.table.startswith("file:///"):
        _refuse(
            parser,
            f"--table {arguments.table}: only a path on a local or mounted file system, or file:///PATH, is supported; "
            "Spark's tasks would need the jars of an object store",
        )
    if arguments.follow and arguments.dry_run:
        _refuse(parser, "--follow and --dry-run exclude each other: give one of them")
    if arguments.compact_at < 0:
        _refuse(parser, f"--compact-at {arguments.compact_at}: a number of files, or 0 for never")
    if not 0 <= arguments.pause <= _PAUSE_SECONDS_MAX:
        _refuse(parser, f"--pause {arguments.pause}: seconds, from 0 to {_PAUSE_SECONDS_MAX}")
    if "%" in str(table):
        _refuse(parser, f"--table {arguments.table}: choose a path without a percent sign")
    if arguments.partition_by is not None and not PARTITIONS.fullmatch(arguments.partition_by):
        _refuse(
            parser,
            f"--partition-by {arguments.partition_by}: expected month, day, hour, bucket:N (1 to 1024), or field:NAME",
        )
    if arguments.dead_letters is not None and arguments.value_json is None:
        _refuse(parser, "--dead-letters needs --value-json: without it every value fits")
    letters = None if arguments.dead_letters is None else Path(arguments.dead_letters).absolute()
    if letters == table or "%" in str(letters):
        _refuse(parser, f"--dead-letters {arguments.dead_letters}: choose another directory, without a percent sign")
    access = _access(arguments)
    options = {"kafka.bootstrap.servers": access.bootstrap}
    if arguments.pattern:
        options["subscribePattern"] = arguments.pattern
    else:
        options["subscribe"] = ",".join(arguments.topics)
    if arguments.headers:
        options["includeHeaders"] = "true"
    options |= _security_options(access)
    for key, value in _pairs(parser, "--kafka", arguments.kafka):
        if holds_secret(key, value):
            _refuse(
                parser, f"--kafka {key}: other users can read it here; use --command-config, or write ${{env:NAME}}"
            )
        options[f"kafka.{key}"] = value
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
        adds_columns=arguments.add_columns,
        is_repeated=arguments.follow,
        partition_by=arguments.partition_by,
        dead_letters=letters,
    )


def _access(arguments: argparse.Namespace) -> CommandOptions:
    """Where to connect, and how; prints warnings."""
    try:
        found = command_options(arguments.bootstrap, arguments.command_config, arguments.context)
    except InvalidConfig as wrong:
        raise OptionError("kafka.*", None, wrong.message) from None
    for warning in found.warnings:
        print(f"headrace load: warning: {warning}", file=sys.stderr)
    return found


def _security_options(access: CommandOptions) -> dict[str, str]:
    """The options of a command as those of the source. A secret stays where it is: Spark gets a reference to it."""
    return {
        f"kafka.{name}": access.references[name] if holds_secret(name, value) else value
        for name, value in access.options.items()
        if is_client_option(name)
    }


def _milliseconds(text: str) -> str:
    """A time in the form of the source's options; without a zone it is UTC."""
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
        print(f"would load up to {result.rows} records, about {size_text(result.size)} of the topics' logs")
    elif result.table_version is None:
        print(f"nothing new; {arguments.table} is up to date")
    else:
        committed = f"committed as version {result.table_version} in {seconds:.1f} s"
        rows = f"{result.rows} row{'s' * (result.rows != 1)}"
        print(f"{rows} in {result.files} file{'s' * (result.files != 1)}, {committed}")
        kept = f", {result.rescued} with a value that does not fit" if result.rescued else ""
        dead = f", {result.dead} rows in {arguments.dead_letters}" if result.dead else ""
        print(f"{size_text(result.size)}, {result.rows / max(seconds, 0.001):,.0f} rows a second{kept}{dead}")


if __name__ == "__main__":
    sys.exit(main())
