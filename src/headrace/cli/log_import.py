"""`headrace log import DIR`: imports log files of headrace, Apache Kafka or Kafka 0.7 into topics of a running cluster.

headrace log import /var/kafka-logs --all
headrace log import /var/kafka-logs/flights-0 --topic flights-of-2013
headrace log import /old/kafka-0.7-logs --from clicks --topic clicks --dry-run

Keys, values, headers, timestamps, partition numbers and order are kept. Offsets are not: the topic assigns new ones.
"""

import time
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from headrace.cli.import_progress import ImportProgress
from headrace.cli.output import Json, complain, print_json, print_table
from headrace.cli.shared import DEFAULT_BOOTSTRAP, AsJson, Configs, DryRun, UsageProblem, access, pairs
from headrace.client.core.cluster import Cluster
from headrace.client.operations.partition_import import Imported, import_partition, resume_at
from headrace.client.operations.topic_import import (
    PartitionNotEmpty,
    TooFewPartitions,
    prepare_topics,
    topic_settings,
    warnings_of,
)
from headrace.client.producer.producer import Producer, ProducerSettings
from headrace.errors import KafkaError
from headrace.limits import INT32_MAX
from headrace.log.files import LocalFiles
from headrace.offline.stored_partitions import StoredLog, StoredPartition, find_partitions, open_stored
from headrace.printable import printable
from headrace.types import TopicPartition

_NOTE = "Offsets are new; keys, values, headers, timestamps, partitions and their order are the source's."
_DAMAGES_SHOWN = 20

ImportBootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        envvar="HEADRACE_BOOTSTRAP",
        help="Brokers to connect to first, separated by commas.",
    ),
]


class _Task(NamedTuple):
    """One partition to import, and its target."""

    stored: StoredPartition
    to: TopicPartition


def import_logs(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="A data directory, or the directory of one partition.")],
    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", metavar="NAME", help="The target topic; without it, the topic of the same name."),
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", metavar="NAME", help="The source topic, if the directory has several.")
    ] = None,
    partition: Annotated[
        list[int],
        typer.Option(
            "--partition", "-p", metavar="N", help="Only this partition; repeatable. Without it, all partitions."
        ),
    ] = [],  # noqa: B006
    everything: Annotated[bool, typer.Option("--all", help="Import every topic except internal ones.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue after the records that an earlier import has written.")
    ] = False,
    append: Annotated[bool, typer.Option("--append", help="Append to partitions that are not empty.")] = False,
    compression: Annotated[
        str, typer.Option("--compression", "-z", help="Codec: none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    config: Configs = [],  # noqa: B006
    bootstrap: ImportBootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> int:
    """Write the records of log files to topics; exit code 1 if some could not be read.

    A missing topic is created with as many partitions as the source, and with retention.ms=-1 unless --config sets it,
    because retention would delete old records at once. Existing partitions must be empty, except with --resume and
    --append.
    """
    if resume and append:
        raise UsageProblem(
            "--resume and --append exclude each other: --resume continues an import, --append starts another"
        )
    settings = ProducerSettings(compression=compression)
    reached = access(bootstrap)
    settings.policy(reached.settings.request_timeout_ms)
    files = LocalFiles()
    tasks = _chosen(find_partitions(files, path), topic, source, partition, everything)
    configs: dict[str, str | None] = {"retention.ms": "-1", **pairs("--config", config)}
    started = time.monotonic()
    with Cluster(*reached) as cluster:
        made = _prepare(cluster, tasks, configs, may_hold_records=resume or append, dry_run=dry_run)
        logs = [open_stored(files, task.stored) for task in tasks]
        skips = [0] * len(tasks)
        if resume:
            skips = [
                0 if task.to.topic in made else resume_at(cluster, open_stored(files, task.stored), task.to)
                for task in tasks
            ]
        topics = topic_settings(cluster, {task.to.topic for task in tasks})
        with nullcontext() if dry_run else Producer(reached.bootstrap, settings, reached.settings) as producer:
            done = _import(list(zip(tasks, logs, skips, strict=True)), producer, topics)
        warnings = warnings_of(topics, [each for _, _, each in done], time.time() * 1000)
    _report(done, made, warnings, time.monotonic() - started, dry_run=dry_run, as_json=json)
    return 1 if any(log.damages for _, log, _ in done) else 0


def _import(
    tasks: list[tuple[_Task, StoredLog, int]], producer: Producer | None, topics: Mapping[str, Mapping[str, str | None]]
) -> list[tuple[_Task, StoredLog, Imported]]:
    """Writes the records of each log behind those to skip; without a producer, reads them only."""
    done: list[tuple[_Task, StoredLog, Imported]] = []
    progress = ImportProgress(sum(log.size_bytes for _, log, _ in tasks))
    for task, log, skip in tasks:
        limit = int(topics[task.to.topic].get("max.message.bytes") or INT32_MAX)
        try:
            each = import_partition(
                log,
                producer,
                task.to,
                skip=skip,
                record_bytes_max=limit,
                on_progress=partial(progress.show, task.to, log),
            )
            done.append((task, log, each))
            progress.finished(log)
        except KafkaError:
            complain(f"{task.to}: the import stopped; run it again with --resume to continue")
            raise
    return done


def _chosen(
    found: list[StoredPartition], topic: str | None, source: str | None, only: list[int], everything: bool
) -> list[_Task]:
    """The partitions to import, and their targets. UsageProblem if the options do not determine them."""
    topics = sorted({each.partition.topic for each in found})
    if everything:
        if topic is not None or source is not None:
            raise UsageProblem(
                "--all cannot be combined with --topic or --from: it imports every topic under its own name"
            )
        chosen = [each for each in found if not each.partition.topic.startswith("__")]
    else:
        name = source or (topic if topic in topics else None) or (topics[0] if len(topics) == 1 else None)
        if name not in topics:
            known = ", ".join(topics[:10])
            raise UsageProblem(f"--from {name}: the topics there are {known}" if name else f"--all, or --from {known}?")
        chosen = [each for each in found if each.partition.topic == name]
    unknown = set(only) - {each.partition.partition for each in chosen}
    if unknown or not chosen:
        raise UsageProblem(f"there is no partition {min(unknown)}" if unknown else "there are internal topics only")
    return [
        _Task(each, TopicPartition(topic or each.partition.topic, each.partition.partition))
        for each in chosen
        if not only or each.partition.partition in only
    ]


def _prepare(
    cluster: Cluster, tasks: list[_Task], configs: dict[str, str | None], *, may_hold_records: bool, dry_run: bool
) -> set[str]:
    """Creates missing topics and returns their names. UsageProblem if an existing topic cannot take the records."""
    targets = [task.to for task in tasks]
    try:
        return prepare_topics(cluster, targets, configs, may_hold_records=may_hold_records, dry_run=dry_run)
    except TooFewPartitions as refused:
        raise UsageProblem(f"{refused}: headrace topic alter {refused.topic} -p {refused.needed}") from None
    except PartitionNotEmpty as refused:
        raise UsageProblem(f"{refused}: use --resume to continue an import, or --append to append to it") from None


def _report(
    done: list[tuple[_Task, StoredLog, Imported]],
    made: set[str],
    warnings: list[str],
    seconds: float,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    rows: list[dict[str, Json]] = [
        {
            "from": str(task.stored.directory),
            "to": str(task.to),
            "formats": log.formats,
            "records": each.records,
            "resumed_at": each.resumed_at,
            "bytes_read": each.bytes_read,
            "first_offset": each.first_offset,
            "source_offsets": [each.source_first_offset, each.source_last_offset],
            "left_out": log.records_left_out,
            "damaged": len(log.damages),
        }
        for task, log, each in done
    ]
    damages: list[dict[str, Json]] = [
        {"file": str(damage.path), "from": damage.offset, "to": damage.end_offset, "reason": damage.reason}
        for _, log, _ in done
        for damage in log.damages
    ]
    if as_json:
        print_json({"partitions": rows, "topics_made": sorted(made), "damages": damages, "warnings": warnings,
                    "seconds": round(seconds, 3), "dry_run": dry_run})  # fmt: skip
        return
    names = ["to", "formats", "records", "resumed_at", "first_offset", "source_offsets", "left_out", "damaged"]
    print_table(
        [name.upper().replace("_", " ") for name in names], [[_cell(row[name]) for name in names] for row in rows]
    )
    records, size = sum(each.records for _, _, each in done), sum(each.bytes_read for _, _, each in done)
    verb = "would import" if dry_run else "imported"
    print(f"{verb} {records:,} records from {size / 1e6:,.1f} MB in {seconds:.1f} s. {_NOTE}")
    if any(log.records_left_out for _, log, _ in done):
        print("Left out: records of transactions that were aborted or never ended.")
    for row in damages[:_DAMAGES_SHOWN]:
        complain(f"{row['file']}: bytes {row['from']} to {row['to']} are lost: {row['reason']}")
    if len(damages) > _DAMAGES_SHOWN:
        complain(f"and {len(damages) - _DAMAGES_SHOWN} more damaged places")
    for warning in warnings:
        complain(printable(warning))


def _cell(value: Json) -> str:
    match value:
        case [int(first), int(last)]:
            return f"{first}–{last}" if first >= 0 else "-"
        case list() | tuple():
            return ",".join(map(str, value))
        case -1:
            return "-"
    return str(value)
