"""`headrace topic create|list|describe|alter|trim|move|delete`."""

from typing import Annotated

import typer

from headrace.cli.output import Json, counted, print_json, print_table
from headrace.cli.places import parse_place, resolve
from headrace.cli.shared import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Configs, DryRun, UsageProblem, cluster_of, pairs
from headrace.cli.topic_move import move
from headrace.client.core.metadata import TopicInfo
from headrace.client.operations.admin import RESOURCE_TOPIC, Admin, NewTopic
from headrace.errors import ErrorCode, KafkaError
from headrace.printable import printable
from headrace.types import TopicPartition

app = typer.Typer(no_args_is_help=True)
app.command("move")(move)

Name = Annotated[str, typer.Argument(metavar="TOPIC")]
Names = Annotated[list[str], typer.Argument(metavar="TOPIC...")]


@app.command()
def create(
    name: Name,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="Number of partitions; -1 takes the broker's num.partitions.")
    ] = -1,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor",
            "-r",
            help="Replicas of each partition; -1 takes the broker's default.replication.factor.",
        ),
    ] = -1,
    config: Configs = [],  # noqa: B006
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Exit with 0 if the topic already exists.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Create a topic."""
    wanted = NewTopic(name, partitions, replication_factor, pairs("--config", config))
    created = True
    with cluster_of(bootstrap) as cluster:
        admin = Admin(cluster)
        try:
            admin.create_topics([wanted], validate_only=dry_run)
        except KafkaError as failed:
            if not (if_not_exists and failed.code == ErrorCode.TOPIC_ALREADY_EXISTS):
                raise
            created = False
        count = partitions if dry_run else len(admin.describe_topic(name).partitions)
    if json:
        print_json({"topic": name, "partitions": count, "created": created and not dry_run, "dry_run": dry_run})
    else:
        verb = "would create" if dry_run and created else "created" if created else "exists:"
        print(f"{verb} topic {printable(name)}" + (f" with {counted(count, 'partition')}" if count > 0 else ""))


@app.command("list")
def list_topics(
    internal: Annotated[
        bool, typer.Option("--internal", help="Include internal topics, such as __consumer_offsets.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """List topics."""
    with cluster_of(bootstrap) as cluster:
        topics = Admin(cluster).list_topics(internal=internal)
    if json:
        print_json([_summary(topic) for topic in topics])
    else:
        rows = [(topic.name, len(topic.partitions), _replicas(topic)) for topic in topics]
        print_table(["TOPIC", "PARTITIONS", "REPLICAS"], rows)


@app.command()
def describe(names: Names, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: AsJson = False) -> None:
    """Show the partitions, leaders, replicas and offsets of topics, and the settings that differ from the default."""
    with cluster_of(bootstrap) as cluster:
        described = [_describe(Admin(cluster), name) for name in names]
    if json:
        print_json(described)
        return
    for one in described:
        _print_description(one)


@app.command()
def alter(
    name: Name,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="The new number of partitions; it can only grow.")
    ] = None,
    config: Configs = [],  # noqa: B006
    unset: Annotated[
        list[str], typer.Option("--unset", metavar="KEY", help="Reset this setting to its default; repeatable.")
    ] = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Add partitions to a topic or change its settings."""
    changes: dict[str, str | None] = {**pairs("--config", config), **dict.fromkeys(unset)}
    if partitions is None and not changes:
        raise UsageProblem("nothing to alter: give --partitions, --config or --unset")
    with cluster_of(bootstrap) as cluster:
        admin = Admin(cluster)
        if partitions is not None:
            admin.create_partitions(name, partitions, validate_only=dry_run)
        if changes:
            admin.alter_configs(RESOURCE_TOPIC, name, changes, validate_only=dry_run)
    if json:
        print_json({"topic": name, "partitions": partitions, "config": changes, "dry_run": dry_run})
    else:
        print(f"{'would alter' if dry_run else 'altered'} topic {printable(name)}")


@app.command()
def trim(
    name: Name,
    before: Annotated[
        str,
        typer.Option(
            "--before",
            metavar="PLACE",
            help="Delete records before this point: end, an offset N, -N (N before the end), or @TIME.",
        ),
    ],
    only: Annotated[
        list[int],
        typer.Option(
            "--partition", "-p", metavar="N", help="Only this partition; repeatable. Without it, all partitions."
        ),
    ] = [],  # noqa: B006
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Delete the oldest records of a topic. Disk space is freed one segment at a time."""
    place = parse_place("--before", before)
    with cluster_of(bootstrap) as cluster:
        admin = Admin(cluster)
        partitions = [each for each in admin.partitions_of(name) if not only or each.partition in only]
        unknown = set(only) - {each.partition for each in partitions}
        if unknown:
            raise UsageProblem(f"topic {name} has no partition {min(unknown)}")
        starts = {each: start for each, (start, _) in admin.watermarks(partitions).items()}
        wanted = resolve(admin, place, partitions)
        found = wanted if dry_run else admin.delete_records(wanted)
    rows = [(each.partition, starts[each], found[each]) for each in partitions]
    if json:
        print_json(
            [{"topic": name, "partition": p, "from": old, "to": new, "dry_run": dry_run} for p, old, new in rows]
        )
        return
    for number, old, new in rows:
        verb = "would delete" if dry_run else "deleted"
        print(f"{printable(name)}-{number}: {verb} {new - old} offsets; the log starts at {new}")


@app.command()
def delete(
    names: Names, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, dry_run: DryRun = False, json: AsJson = False
) -> None:
    """Delete topics and all their records."""
    with cluster_of(bootstrap) as cluster:
        admin = Admin(cluster)
        topics = [admin.describe_topic(name) for name in names]
        records = {topic.name: _records(admin, topic) for topic in topics}
        if not dry_run:
            admin.delete_topics(names)
    if json:
        print_json([{"topic": name, "records": count, "dry_run": dry_run} for name, count in records.items()])
        return
    for name, count in records.items():
        print(
            f"{'would delete' if dry_run else 'deleted'} topic {printable(name)} with about {counted(count, 'record')}"
        )


def _records(admin: Admin, topic: TopicInfo) -> int:
    marks = admin.watermarks(TopicPartition(topic.name, partition) for partition in topic.available)
    return sum(end - start for start, end in marks.values())


def _replicas(topic: TopicInfo) -> int:
    return max((len(info.replicas) for info in topic.partitions), default=0)


def _summary(topic: TopicInfo) -> dict[str, Json]:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id.hex(),
        "partitions": len(topic.partitions),
        "replicas": _replicas(topic),
        "internal": topic.is_internal,
    }


def _describe(admin: Admin, name: str) -> dict[str, Json]:
    topic = admin.describe_topic(name)
    marks = admin.watermarks(TopicPartition(name, partition) for partition in topic.available)
    entries = admin.describe_configs(RESOURCE_TOPIC, name)
    partitions: list[Json] = []
    for info in topic.partitions:
        start, end = marks.get(TopicPartition(name, info.partition), (None, None))
        partitions.append(
            {
                "partition": info.partition,
                "leader": info.leader,
                "leader_epoch": info.leader_epoch,
                "replicas": list(info.replicas),
                "isr": list(info.isr),
                "start_offset": start,
                "end_offset": end,
            }
        )
    config: dict[str, Json] = {entry.name: entry.value for entry in entries if not entry.is_default}
    return {**_summary(topic), "partitions": partitions, "config": config}


def _print_description(described: dict[str, Json]) -> None:
    partitions, config = described["partitions"], described["config"]
    assert isinstance(partitions, list) and isinstance(config, dict)
    print(f"topic {printable(str(described['topic']))}  id {described['topic_id']}")
    for key, value in config.items():
        print(f"  {printable(key)}={printable(str(value))}")
    keys = ["partition", "leader", "leader_epoch", "replicas", "isr", "start_offset", "end_offset"]
    rows = [[_cell(part[key]) for key in keys] for part in partitions]
    print_table([key.replace("_", " ").upper() for key in keys], rows)


def _cell(value: Json) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "-" if value is None else str(value)
