"""`headrace log import DIR`: the files of a data directory (ours, Apache Kafka's, Kafka 0.7's) into running topics.

headrace log import /var/kafka-logs --all
headrace log import /var/kafka-logs/flights-0 --topic flights-of-2013
headrace log import /old/kafka-0.7-logs --from clicks --topic clicks --dry-run

Kept: keys, values, headers, timestamps, partition numbers, order. Not kept: offsets, which the topic gives anew.
"""

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from headrace.cli.importing import Imported, Progress, copy, resume_at
from headrace.cli.output import Json, complain, print_json, print_table, printable
from headrace.cli.shared import CLIENT, DEFAULT_BOOTSTRAP, AsJson, Configs, DryRun, UsageProblem, checked, pairs
from headrace.client.admin import RESOURCE_TOPIC, Admin, NewTopic
from headrace.client.cluster import Cluster
from headrace.client.producer import Producer, ProducerSettings
from headrace.errors import ErrorCode, KafkaError, UnknownTopicOrPartition
from headrace.limits import INT32_MAX
from headrace.log.files import LocalFiles
from headrace.log.offline import StoredLog, StoredPartition, find_partitions, open_stored
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
        help="A broker; several with commas.",
    ),
]


class _Task(NamedTuple):
    """One partition to import."""

    stored: StoredPartition
    to: TopicPartition


def import_logs(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="A data directory, or one partition's.")],
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", metavar="NAME", help="Where to; else as it was.")
    ] = None,
    source: Annotated[str | None, typer.Option("--from", metavar="NAME", help="Which topic of several.")] = None,
    partition: Annotated[list[int], typer.Option("--partition", "-p", metavar="N", help="Only this; repeatable.")] = [],  # noqa: B006
    everything: Annotated[bool, typer.Option("--all", help="Every topic but internal ones.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on behind what an import before has written.")] = False,
    append: Annotated[bool, typer.Option("--append", help="Write behind whatever the partitions hold.")] = False,
    compression: Annotated[str, typer.Option("--compression", "-z", help="none, gzip, snappy, lz4, zstd.")] = "none",
    config: Configs = [],  # noqa: B006
    bootstrap: ImportBootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> int:
    """Write the records in log files to topics; exit code 1 when some could not be read.

    A topic that is not there is made, with as many partitions as the source had, and retention.ms=-1 unless --config
    says otherwise: old records would be deleted at once. What is there must be empty, but for --resume and --append.
    """
    if resume and append:
        raise UsageProblem("--resume goes on with an import, --append begins another: not both")
    settings = ProducerSettings(compression=compression)
    settings.policy(CLIENT.request_timeout_ms)
    files = LocalFiles()
    tasks = _chosen(find_partitions(files, path), topic, source, partition, everything)
    configs: dict[str, str | None] = {"retention.ms": "-1", **pairs("--config", config)}
    done: list[tuple[_Task, StoredLog, Imported]] = []
    started = time.monotonic()
    with Cluster(checked(bootstrap), CLIENT) as cluster:
        made = _prepare(cluster, tasks, configs, may_hold_records=resume or append, dry_run=dry_run)
        logs = [open_stored(files, task.stored) for task in tasks]
        skips = [0] * len(tasks)
        if resume:
            skips = [
                0 if task.to.topic in made else resume_at(cluster, open_stored(files, task.stored), task.to)
                for task in tasks
            ]
        topics = _settings_of(cluster, {task.to.topic for task in tasks})
        progress = Progress(sum(log.size_bytes for log in logs))
        with nullcontext() if dry_run else Producer(checked(bootstrap), settings, CLIENT) as producer:
            for task, log, skip in zip(tasks, logs, skips, strict=True):
                limit = int(topics[task.to.topic].get("max.message.bytes") or INT32_MAX)
                try:
                    each = copy(log, producer, task.to, skip=skip, record_bytes_max=limit, progress=progress)
                    done.append((task, log, each))
                except KafkaError:
                    complain(f"{task.to}: stopped; --resume goes on from there")
                    raise
        warnings = _warnings(topics, [each for _, _, each in done])
    _report(done, made, warnings, time.monotonic() - started, dry_run=dry_run, as_json=json)
    return 1 if any(log.damages for _, log, _ in done) else 0


def _chosen(
    found: list[StoredPartition], topic: str | None, source: str | None, only: list[int], everything: bool
) -> list[_Task]:
    """What to import, and where to. UsageProblem when that is not said."""
    topics = sorted({each.partition.topic for each in found})
    if everything:
        if topic is not None or source is not None:
            raise UsageProblem("--all writes every topic under its own name: leave --topic and --from out")
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
    """Make the topics that are not there; their names. UsageProblem when one that is there will not do."""
    admin = Admin(cluster)
    made = set()
    for topic in sorted({task.to.topic for task in tasks}):
        wanted = [task.to for task in tasks if task.to.topic == topic]
        needed = max(each.partition for each in wanted) + 1
        try:
            there = len(admin.describe_topic(topic).partitions)
        except UnknownTopicOrPartition:
            made.add(topic)
            given = {name: value for name, value in configs.items() if value is not None}
            admin.create_topics([NewTopic(topic, needed, -1, given)], validate_only=dry_run)
            continue
        if there < needed:
            raise UsageProblem(f"topic {topic} has {there} partitions: headrace topic alter {topic} -p {needed}")
        held = [each for each, (_, end) in admin.watermarks(wanted).items() if end > 0]
        if held and not may_hold_records:
            raise UsageProblem(f"{held[0]} is not empty: --resume to go on with an import, --append to write behind it")
    return made


def _settings_of(cluster: Cluster, topics: set[str]) -> dict[str, dict[str, str | None]]:
    """Every setting of each topic; none of one that is not there (in a dry run)."""
    admin = Admin(cluster)
    found: dict[str, dict[str, str | None]] = {}
    for topic in topics:
        try:
            found[topic] = {entry.name: entry.value for entry in admin.describe_configs(RESOURCE_TOPIC, topic)}
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            found[topic] = {}
    return found


def _warnings(settings: dict[str, dict[str, str | None]], done: list[Imported]) -> list[str]:
    """What the topics do not keep, or will soon delete again."""
    now_ms = time.time() * 1000
    warnings = []
    for topic, values in sorted(settings.items()):
        newest_ms = max((each.newest_ms for each in done if each.partition.topic == topic), default=-1)
        retention_ms = int(values.get("retention.ms") or -1)
        if values.get("message.timestamp.type") == "LogAppendTime":
            warnings.append(f"{topic}: timestamps are new, since its message.timestamp.type is LogAppendTime")
        elif retention_ms >= 0 and 0 <= newest_ms < now_ms - retention_ms:
            warnings.append(f"{topic}: all records are older than its retention.ms={retention_ms} and will be deleted")
    return warnings


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
